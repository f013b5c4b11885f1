"""Test beds as jobs of Slurm: an array of tasks, one for each; Slurm decides when and where each one runs.

A task is `vmtoll campaign run --bed`, which is safe to be started twice, so Slurm may requeue it.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vmtoll.campaign.fan_out import last_line
from vmtoll.campaign.slices import write_list
from vmtoll.files import write_durably
from vmtoll.model.errors import UserError

ARRAY = 1000  # tasks of an array: Slurm's own limit is 1,001 unless configured (MaxArraySize)
SUBMITTED, LOGS = "submitted.json", "logs"
_LIMIT_S = 60.0
_SCRIPT = """\
#!/bin/sh
#SBATCH --job-name={name}
#SBATCH --output={logs}/%A-%a.log
#SBATCH --open-mode=append
#SBATCH --requeue
# A task for each test bed: the line of the file that its number says.
bed=$(sed -n "$((VMTOLL_FIRST + SLURM_ARRAY_TASK_ID + 1))p" {folder}/"$VMTOLL_BEDS")
exec {command} --bed "$bed" --inventory {folder}/slices/"$bed".json
"""


@dataclass(frozen=True)
class Job:
    """An array of Slurm: its number, and the test beds of its tasks, in order."""

    number: str
    beds: Sequence[str]


def submit(
    folder: Path, beds: Sequence[str], command: Sequence[str], options: Sequence[str] = (), at_once: int | None = None
) -> list[Job]:
    """Write the script of the array and the list of test beds, and submit them.

    `folder`: of the campaign, on a file system that all nodes see, with the test beds' inventories in `slices`;
    `command`: measures one test bed, but for --bed and --inventory; `options`: of sbatch; `at_once`: tasks of an array
    that run at the same time. Arrays of earlier calls stay as they are. Raises UserError if Slurm refuses it.
    """
    folder = folder.absolute()
    logs, jobs = folder / LOGS, submitted(folder)
    logs.mkdir(parents=True, exist_ok=True)
    # Tasks of an earlier array, which may wait still, or be requeued, read their own list.
    file = write_list(beds, folder)
    script = _SCRIPT.format(
        name=shlex.quote(folder.name), logs=logs, folder=shlex.quote(str(folder)), command=shlex.join(command)
    )
    write_durably(folder / "job.sh", script.encode())
    arrays = list[Job]()
    for first in range(0, len(beds), ARRAY):
        part = beds[first : first + ARRAY]
        limit = f"%{at_once}" if at_once else ""
        array = ["--array", f"0-{len(part) - 1}{limit}", f"--export=ALL,VMTOLL_FIRST={first},VMTOLL_BEDS={file.name}"]
        number = _run("sbatch", "--parsable", *array, *options, str(folder / "job.sh")).partition(";")[0]
        arrays.append(Job(number, part))
        _record(folder, [*jobs, *arrays])
    return arrays


def _record(folder: Path, jobs: Sequence[Job]) -> None:
    content = [{"job": job.number, "beds": list(job.beds)} for job in jobs]
    write_durably(folder / SUBMITTED, json.dumps(content, indent=1).encode() + b"\n")


def submitted(folder: Path) -> list[Job]:
    """All arrays that were submitted, the last one last. Raises UserError for a file that vmtoll did not write."""
    file = folder / SUBMITTED
    if not file.exists():
        return []
    try:
        return [Job(str(entry["job"]), [str(bed) for bed in entry["beds"]]) for entry in json.loads(file.read_bytes())]
    except (ValueError, TypeError, KeyError):
        raise UserError(f"{file}: not written by `vmtoll campaign submit`; remove it") from None


def active(folder: Path, jobs: Sequence[Job]) -> dict[str, str]:
    """Test bed → state of its task in Slurm's words (`pending`, `running`, …), for tasks that have not ended.

    `folder`: of the campaign, whose name the arrays have. Of a test bed in several arrays, the task of the last one.
    Raises UserError if Slurm does not answer.
    """
    states: dict[str, str] = {}
    for job in jobs:
        try:
            listing = _run(
                "squeue", "--noheader", "--array", "--jobs", job.number, "--name", folder.absolute().name,
                "--format", "%K %T",
            )  # fmt: skip
        except UserError as error:
            if "Invalid job id" not in str(error):
                raise
            continue  # all of its tasks have ended, and Slurm has forgotten it
        for place, state in re.findall(r"^(\d+) (\w+)$", listing, re.MULTILINE):
            # A task that is completing may be one that Slurm is about to start again.
            if state not in ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT") and int(place) < len(job.beds):
                states[job.beds[int(place)]] = state.lower()
    return states


def last_lines(folder: Path, jobs: Sequence[Job]) -> Mapping[str, str]:
    """Test bed → the last line that its task of the last array printed, for tasks that have printed any."""
    lines = {
        bed: last_line(folder / LOGS / f"{job.number}-{place}.log")
        for job in jobs
        for place, bed in enumerate(job.beds)
    }
    return {bed: line for bed, line in lines.items() if line}


def _run(program: str, *options: str) -> str:
    if not shutil.which(program):
        raise UserError(f"{program} is not on the PATH: run it on a machine of the cluster (Debian: slurm-client)")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "SBATCH_"))}
    environment |= {name: value for name, value in os.environ.items() if name == "SLURM_CONF"}
    try:
        done = subprocess.run(
            [program, *options], capture_output=True, text=True, timeout=_LIMIT_S, check=False, env=environment
        )
    except subprocess.TimeoutExpired:
        raise UserError(f"{program}: no answer within {_LIMIT_S:g} s; see whether slurmctld runs") from None
    if done.returncode:
        words = " ".join(done.stderr.split())
        raise UserError(f"{program}: {words.removeprefix(f'{program}: ').removeprefix('error: ')}")
    return done.stdout.strip()

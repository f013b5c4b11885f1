"""A test bed as a job: its slice of the inventory, measured by itself, safe to be started twice; arrays of Slurm."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from tests.integration.campaign.test_campaign import RUN_IN_PROJECT, Hosts, write_inventory
from tests.integration.campaign.test_campaign import small as small  # noqa: PLC0414
from tests.integration.campaign.test_campaign import two_testbeds as two_testbeds  # noqa: PLC0414
from tests.support.measured import plan
from tests.support.program import vmtoll
from tests.support.slurm import MISSING, cluster
from vmtoll.campaign import slurm
from vmtoll.campaign.campaign import Campaign, bed_states
from vmtoll.campaign.slices import slice_of, write_slices
from vmtoll.campaign.testbeds import read_testbeds
from vmtoll.cli import app
from vmtoll.model.errors import UserError
from vmtoll.spec.catalog import Registry
from vmtoll.spec.inventory import read_inventory

JOB_IN_PROJECT = str(Path(__file__).parents[2] / "support" / "job_in_project.py")


def job(project: Registry, inventory: Path, folder: Path, bed: str) -> Campaign:
    """The campaign `spring` on one test bed, as `campaign run --bed` makes it."""
    program = [sys.executable, RUN_IN_PROJECT, str(project.root)]
    plans = {"tiny": plan(project.experiment_file("tiny"), project)}
    (chosen,) = [each for each in read_testbeds(inventory) if each.name == bed]
    return Campaign(folder / "jobs" / bed, folder / "data", inventory, plans, [chosen], program=program, of="spring")


def test_a_slice_is_the_inventory_of_one_test_bed(tmp_path: Path) -> None:
    groups: dict[str, Hosts] = {
        "rack1": {
            "client1": {"vmtoll_link": "100mbit", "vmtoll_link_mbit": 100},
            "metal1": {"vmtoll_environment": "metal"},
        },
        "rack2": {"client2": {}, "metal2": {"vmtoll_environment": "metal"}},
    }
    path = write_inventory(tmp_path / "hosts.yml", groups)
    tree = yaml.safe_load(path.read_text())
    tree["all"]["vars"] = {"ansible_user": "lab"}
    tree["all"]["children"]["metal_hosts"]["vars"] = {"vmtoll_http_port": 8099}
    path.write_text(yaml.safe_dump(tree))
    data, beds = read_inventory(path), read_testbeds(path)
    files = write_slices(data, beds, tmp_path / "slices")
    assert set(files) == {"rack1", "rack2"}
    cut = read_inventory(files["rack2"])
    assert cut["_meta"]["hostvars"] == {host: data["_meta"]["hostvars"][host] for host in ("client2", "metal2")}
    assert cut["_meta"]["hostvars"]["metal2"]["vmtoll_http_port"] == 8099
    (bed,) = read_testbeds(files["rack2"])
    assert (bed.name, bed.limit, sorted(bed.hosts)) == ("rack2", "rack2", ["client2", "metal2"])
    assert slice_of(cut, bed) == slice_of(data, beds[1]), "a slice of a slice is the slice"


def test_a_job_that_is_started_again_finds_its_run_done(
    small: Registry, two_testbeds: dict[str, Hosts], tmp_path: Path
) -> None:
    """On the same machine by its folder, on another one by the dataset; a job writes no page."""
    path, folder = write_inventory(tmp_path / "beds.yml", two_testbeds), tmp_path / "spring"
    assert job(small, path, folder, "cell_a").measure() == 0
    assert not (folder / "campaign.html").exists()
    (run,) = (folder / "jobs/cell_a/testbeds/cell_a/tiny").glob("*Z-*")
    (file,) = (folder / "data/trials").rglob("*.parquet")
    assert "campaign=spring/testbed=cell_a/experiment=tiny" in str(file)
    assert job(small, path, folder, "cell_a").measure() == 0
    (folder / "jobs").rename(tmp_path / "gone")
    again = job(small, path, folder, "cell_a")
    assert again.measure() == 0
    assert again.outcome(("cell_a", "tiny")).status == "complete"
    assert list((folder / "data/trials").rglob("*.parquet")) == [file]
    assert run.name == file.stem
    states = bed_states(folder, ["cell_a", "cell_b"], {"cell_b": "pending"}, {})
    assert states == {"cell_a": {"state": "done"}, "cell_b": {"state": "pending"}}


def test_what_cannot_be_measured_is_one_sentence(tmp_path: Path) -> None:
    path = write_inventory(
        tmp_path / "beds.yml",
        {"rack1": {"client1": {}, "metal1": {"vmtoll_environment": "metal"}}, "rack2": {"client2": {}}},
    )
    said = vmtoll("campaign", "run", "demo", "-i", path, "--bed", "rack3", "--output", tmp_path / "spring")
    assert said.returncode == 2
    assert "test bed 'rack3' (did you mean 'rack2'?); allowed: rack1, rack2" in said.stderr
    said = vmtoll("campaign", "demo", "tails", "-i", path)
    assert (said.returncode, said.stderr.partition(":")[0]) == (2, "vmtoll")
    assert f"`vmtoll campaign run demo tails -i {path}`" in said.stderr
    (tmp_path / "spring").mkdir()
    said = vmtoll("campaign", "status", tmp_path / "spring")
    assert said.returncode == 2
    assert "no `vmtoll campaign submit`" in said.stderr
    (tmp_path / "spring" / slurm.SUBMITTED).write_text("[{}]")
    with pytest.raises(UserError, match="remove it"):
        slurm.submitted(tmp_path / "spring")


def test_a_dry_run_writes_the_slices_and_submits_nothing(tmp_path: Path) -> None:
    path = write_inventory(
        tmp_path / "beds.yml", {name: {f"client{name}": {}} for name in ("rack1", "rack2")}
    )  # fmt: skip
    words = ["campaign", "submit", "demo", "-i", str(path), "--output", str(tmp_path / "spring"), "--dry-run", "--json"]
    answer = json.loads(CliRunner().invoke(app, words).stdout)
    listed = Path(answer.pop("list"))
    assert answer == {"beds": ["rack1", "rack2"], "jobs": [], "busy": {}}
    assert listed.read_text() == "rack1\nrack2\n"
    names = {file.name for file in (tmp_path / "spring").rglob("*")}
    assert names == {".lock", "rack1.json", "rack2.json", "slices", listed.name}


SBATCH = """#!/bin/sh
# Keeps the script and the environment of each array, as Slurm does, and numbers the arrays.
n=$(($(ls {folder} | grep -c export) + 1))
for word; do case $word in --export=*) echo "$word" > {folder}/export-$n;; esac; done
cp "$word" {folder}/job-$n.sh
echo $n
"""
TASK = "#!/bin/sh\necho measured $*\n"


def test_a_later_array_leaves_the_waiting_tasks_of_an_earlier_one_their_test_beds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The twin with Slurm itself is the last test."""
    programs, folder = tmp_path / "bin", tmp_path / "the spring"
    for name, text in {"sbatch": SBATCH.format(folder=programs), "measure": TASK}.items():
        programs.mkdir(exist_ok=True)
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    first = slurm.submit(folder, ["rack1", "rack2", "rack3"], ["measure"])
    second = slurm.submit(folder, ["rack2"], ["measure", "--scale", "full"])
    assert slurm.submitted(folder) == [*first, *second]

    def task(array: int, place: int) -> str:
        exported = (programs / f"export-{array}").read_text().strip().removeprefix("--export=ALL,")
        words = ["env", *exported.split(","), f"SLURM_ARRAY_TASK_ID={place}", "sh", str(programs / f"job-{array}.sh")]
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout

    assert task(1, 2) == f"measured --bed rack3 --inventory {folder}/slices/rack3.json\n"
    assert task(2, 0) == f"measured --scale full --bed rack2 --inventory {folder}/slices/rack2.json\n"
    logs = folder / slurm.LOGS
    (logs / "1-1.log").write_text("killed\n")
    assert slurm.last_lines(folder, slurm.submitted(folder)) == {}, "the later task of rack2 has printed nothing"


def wait_for(condition: Callable[[], Any], limit_s: float = 300) -> Any:
    deadline = time.monotonic() + limit_s
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    return found


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """For munge's socket, whose path must be short."""
    folder = Path("/tmp") / f"vmtoll-slurm-{os.getpid()}"
    folder.mkdir(mode=0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.long
@pytest.mark.skipif(bool(MISSING), reason=MISSING)
def test_slurm_measures_two_test_beds_and_one_is_killed_in_the_middle(
    small: Registry, two_testbeds: dict[str, Hosts], tmp_path: Path, short_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Real munge, slurmctld and two slurmd. The killed task's run goes on when it is submitted again."""
    path, folder = write_inventory(tmp_path / "beds.yml", two_testbeds), tmp_path / "spring"
    file = small.experiment_file("tiny")
    file.write_text(yaml.safe_dump(yaml.safe_load(file.read_text()) | {"blocks": 6, "duration_s": 1.0}))
    beds = read_testbeds(path)
    write_slices(read_inventory(path), beds, folder / "slices")
    program = [sys.executable, JOB_IN_PROJECT, str(small.root)]
    words = [*program, "tiny", "--output", str(folder), "--dataset", str(folder / "data")]
    with cluster(short_folder) as environment:
        for name in ("SLURM_CONF", "PATH"):
            monkeypatch.setenv(name, environment[name])
        (array,) = slurm.submit(folder, ["cell_a", "cell_b"], words)
        wait_for(lambda: list((folder / "jobs/cell_b").rglob("trials.jsonl")))
        run = wait_for(lambda: list((folder / "jobs/cell_b/testbeds/cell_b/tiny").glob("*Z-*")))[0]
        wait_for(lambda: (run / "trials.jsonl").read_text().count("\n") >= 2)
        subprocess.run(["scancel", "--full", "--signal=KILL", f"{array.number}_1"], check=True)
        wait_for(lambda: not slurm.active(folder, [array]))
        states = bed_states(folder, array.beds, slurm.active(folder, [array]), slurm.last_lines(folder, [array]))
        assert states["cell_a"] == {"state": "done"}
        assert states["cell_b"]["state"] == "ended"
        measured = (run / "trials.jsonl").read_text().count("\n")
        assert 2 <= measured < 12
        assert slurm.submitted(folder) == [array]
        (again,) = slurm.submit(folder, ["cell_b"], words)
        assert again.number != array.number
        assert slurm.submitted(folder) == [array, again]
        assert slurm.active(folder, [again]) in (
            {"cell_b": "pending"},
            {"cell_b": "running"},
            {"cell_b": "configuring"},
        )
        wait_for(lambda: not slurm.active(folder, [again]))
    states = bed_states(folder, ["cell_b"], {}, slurm.last_lines(folder, [again]))
    assert states == {"cell_b": {"state": "done"}}
    assert list((folder / "jobs/cell_b/testbeds/cell_b/tiny").glob("*Z-*")) == [run], "the run was resumed"
    assert len(list((folder / "data/trials").rglob("*.parquet"))) == 2

"""Run other programs so that a failure names the command and the last line that it printed; print lines on stderr."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NotRequired, TypedDict

from vmtoll import children
from vmtoll.model.errors import UserError
from vmtoll.paths import PLAYBOOKS


def say(message: str) -> None:
    """Print one line of progress on stderr."""
    print(f"vmtoll: {message}", file=sys.stderr, flush=True)


def run(argv: Sequence[str | Path], *, log: Path | None = None, cwd: Path | None = None) -> str:
    """Run a command to its end; return its standard output.

    With `log`, appends both output streams to that file and returns an empty string. Raises UserError with the command,
    its exit code, the last line that it printed, and the file that has the rest.
    """
    command = [str(word) for word in argv]
    if not shutil.which(command[0]):
        raise UserError(f"{command[0]}: program not found; install it")
    if log is None:
        pipe = subprocess.PIPE
        done = children.run(command, cwd=cwd, stdout=pipe, stderr=pipe, errors="replace")
        output, printed = done.stdout, (done.stderr or done.stdout)
    else:
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as stream:
            done = children.run(command, cwd=cwd, stdout=stream, stderr=stream)
        output, printed = "", log.read_text(errors="replace")
    if done.returncode != 0:
        if not log and "\n" in printed.strip():
            log = _save_output(printed, Path(command[0]).name)
        raise UserError(_failure(f"`{' '.join(command)}` {_exit_text(done.returncode)}", _last_line(printed), log))
    return output


def _exit_text(status: int) -> str:
    return f"failed (exit code {status})" if status > 0 else f"was ended by signal {-status}"


def _last_line(printed: str) -> str:
    """The last line that a program printed, without make's own lines."""
    lines = printed.strip().splitlines() or [""]
    line = next((line for line in reversed(lines) if not line.startswith("make")), lines[-1])
    return " ".join(line.split()).rstrip(".")


def _save_output(printed: str, name: str) -> Path | None:
    """Write a program's output to a temporary file; return the file, None if writing fails (full disk)."""
    try:
        with tempfile.NamedTemporaryFile("w", prefix=f"vmtoll-{name}-", suffix=".log", delete=False) as stream:
            stream.write(printed)
    except OSError:
        return None
    return Path(stream.name)


def _failure(program: str, cause: str, log: Path | None) -> str:
    return ": ".join(filter(None, [program, cause])) + (f"; see {log}" if log else "")


LOOK_S = 15.0  # between two looks at what may keep a playbook from its end
LONGEST = 600  # characters of a task's message in an error


class AnsibleChange(TypedDict):
    """A task that changed a machine."""

    task: str
    items: NotRequired[list[object]]  # of a loop
    diff: NotRequired[list[object]]  # with --diff


Changes = dict[str, list[AnsibleChange]]  # by machine; one that was not changed has an empty list


class _Failure(TypedDict):
    machine: str
    task: str
    message: str


class _PlayRecord(TypedDict):
    """The file that playbooks/plugins/callback/changes.py writes."""

    machines: Changes
    failures: list[_Failure]


def play(
    playbook: str,
    *options: str | Path,
    inventory: Path | str = "localhost,",
    quiet: bool = False,
    changes: Changes | None = None,
    watch: Callable[[], str] | None = None,
) -> None:
    """Run a playbook of this repository with its output on the terminal.

    With `changes`, the output goes to stderr, and the tasks that changed a machine are added to `changes`. With
    `quiet`, the output is kept, in a temporary file, only when the playbook fails. `watch` is called every LOOK_S; when
    it returns a text, the playbook is interrupted. Raises UserError with that text, or with the machine and the task
    that failed.
    """
    command = [Path(sys.executable).parent / "ansible-playbook", "-i", inventory, PLAYBOOKS / playbook, *options]
    enabled = [name for name in (os.environ.get("ANSIBLE_CALLBACKS_ENABLED"), "changes") if name]
    with tempfile.TemporaryDirectory(prefix="vmtoll-play-") as folder:
        record_file, printed = Path(folder) / "changes.json", Path(folder) / "printed"
        environment = {
            "ANSIBLE_CONFIG": str(PLAYBOOKS / "ansible.cfg"),
            "ANSIBLE_CALLBACKS_ENABLED": ",".join(enabled),
            "VMTOLL_CHANGES_FILE": str(record_file),
            # A killed play leaves its shared connections behind; a later play must not reuse one to a dead machine.
            "ANSIBLE_SSH_CONTROL_PATH_DIR": f"{folder}/ssh",
        }
        with (
            printed.open("wb") as output,
            children.command(os.environ | environment) as marked,
            subprocess.Popen(
                [str(word) for word in command],
                env=marked,
                stdout=output if quiet else None if changes is None else sys.__stderr__,
                stderr=subprocess.STDOUT if quiet else None,
            ) as ansible,
        ):
            seen = _wait(ansible, watch)
        text = printed.read_text("utf-8", errors="replace")
        record: _PlayRecord = json.loads(record_file.read_text("utf-8")) if record_file.exists() else _EMPTY_RECORD
    if seen:
        raise UserError(seen)
    if ansible.returncode != 0:
        failed = next(iter(record["failures"]), None)
        program = ": ".join([Path(playbook).name, *([failed["machine"], failed["task"]] if failed else [])])
        cause = " ".join(failed["message"].split())[:LONGEST].rstrip(".") if failed else _exit_text(ansible.returncode)
        if not quiet:
            raise UserError(f"{program}: {cause}; see Ansible's output above")
        raise UserError(_failure(program, cause, _save_output(text, Path(playbook).stem)))
    if changes is not None:
        for machine, machine_changes in record["machines"].items():
            changes.setdefault(machine, []).extend(machine_changes)


def _wait(process: subprocess.Popen[bytes], watch: Callable[[], str] | None) -> str:
    """Wait for a process; interrupt it when `watch`, called every LOOK_S, returns a text, and return that text."""
    seen, over = list[str](), threading.Event()

    def look() -> None:
        while watch and not seen and not over.wait(LOOK_S):
            if text := watch():
                seen.append(text)
                process.send_signal(signal.SIGINT)
                if not over.wait(LOOK_S):
                    process.kill()

    threading.Thread(target=look, daemon=True).start()
    try:
        process.wait()
    finally:
        over.set()
    return "".join(seen)


_EMPTY_RECORD: _PlayRecord = {"machines": {}, "failures": []}

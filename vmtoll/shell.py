"""Other programs, run so that a failure says which command, and what it printed last; and lines on stderr."""

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from vmtoll.model.errors import UserError
from vmtoll.paths import PLAYBOOKS, STATE


def say(message: str) -> None:
    """Print one line of what is being done."""
    print(f"vmtoll: {message}", file=sys.stderr, flush=True)


def run(argv: Sequence[str | Path], *, log: Path | None = None, cwd: Path | None = None) -> str:
    """Run a command to its end; return its standard output.

    With `log`, both streams are appended there instead. Raises UserError with the command, its exit code and
    the last lines it printed.
    """
    command = [str(word) for word in argv]
    if log is None:
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
        output, tail = done.stdout, (done.stderr or done.stdout)
    else:
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as stream:
            done = subprocess.run(command, cwd=cwd, stdout=stream, stderr=stream, text=True, check=False)
        output, tail = "", log.read_text(errors="replace")
    if done.returncode != 0:
        last = "\n".join(tail.strip().splitlines()[-20:])
        where = f"\nAll of it: {log}" if log else ""
        raise UserError(f"`{' '.join(command)}` ended with {done.returncode}:\n{last}{where}")
    return output


def play(playbook: str, *options: str | Path, inventory: Path | str = "localhost,", quiet: bool = False) -> None:
    """Run a playbook of this repository with its output on the terminal (or, if quiet, only when it fails)."""
    command = [
        Path(sys.executable).parent / "ansible-playbook",
        "-i",
        inventory,
        PLAYBOOKS / playbook,
        *options,
    ]
    environment: Mapping[str, str] = os.environ | {"ANSIBLE_CONFIG": str(PLAYBOOKS / "ansible.cfg")}
    done = subprocess.run(
        [str(word) for word in command],
        env=environment,
        stdout=subprocess.PIPE if quiet else None,
        stderr=subprocess.STDOUT if quiet else None,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        if quiet:
            print(done.stdout, file=sys.stderr)
        raise UserError(f"The playbook {playbook} failed; the task above says why.")


@contextmanager
def lock(name: str) -> Iterator[None]:
    """Keep two commands from changing the same thing at once: wait for the other one, and say so.

    A dead holder leaves no lock behind.
    """
    STATE.mkdir(parents=True, exist_ok=True, mode=0o711)
    with (STATE / f"{name}.lock").open("w") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"vmtoll: another vmtoll is working on the {name}; waiting for it", file=sys.stderr, flush=True)
            fcntl.flock(stream, fcntl.LOCK_EX)
        yield

"""^C and SIGTERM end what a running command has started: real programs, in real trees of processes."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from vmtoll.children import VARIABLE, command, run

# As a build does: a make whose recipes run at once, in a session of their own, ignoring SIGTERM, without a parent.
MAKEFILE = """
all: plain session deaf orphan
plain session deaf orphan:
\t@$(how_$@) sh $@.sh $(and_$@)
how_session = setsid --wait
and_orphan = & sleep 600
"""
SLEEP = "echo $$ >{name}.pid; sleep 600"
SCRIPTS = {
    "deaf": "trap '' TERM; echo $$ >{name}.pid; while :; do sleep 1; done",
    "orphan": "(sh -c 'echo $$ >{name}.pid; exec sleep 600') &",
}
TREE = ("plain", "session", "deaf", "orphan")
# The main thread waits for the one that builds, as `lab up` does; then it cleans up by a command.
PROGRAM = """
import signal, sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from vmtoll import children
from vmtoll.shell import run

def build():
    run(["make", "-s", "-j4"], cwd=Path(sys.argv[1]), log=Path(sys.argv[1], "log"))

def build_both():
    for _ in range(2):
        try:
            build()
        except Exception:
            pass

children.GRACE_S = 1.0
children.end_on(signal.SIGTERM, signal.SIGINT)
try:
    with ThreadPoolExecutor() as pool:
        builds = pool.submit(build_both)
        build() if sys.argv[2] == "main" else builds.result()
except KeyboardInterrupt:
    run(["touch", "cleaned-up"], cwd=Path(sys.argv[1]))
    sys.exit(7)
"""


def pids_in(folder: Path, program: "subprocess.Popen[bytes]") -> list[int]:
    """The processes of the tree, once all of it runs."""
    files = [folder / f"{name}.pid" for name in TREE]
    while not all(file.exists() and file.read_text().strip() for file in files):
        assert program.poll() is None
        time.sleep(0.02)
    return [int(file.read_text()) for file in files]


def runs(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def marked_with(folder: Path) -> list[str]:
    """Command lines of processes that work in this folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (process / "cwd").readlink() == folder:
                found.append((process / "cmdline").read_text().replace("\0", " "))
    return found


@pytest.mark.parametrize("thread", ["main", "other"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_build_ends_with_its_program(tmp_path: Path, number: signal.Signals, thread: str) -> None:
    """The signal reaches the program alone, which neither waits for the build nor begins the next one."""
    (tmp_path / "Makefile").write_text(MAKEFILE)
    for name in TREE:
        (tmp_path / f"{name}.sh").write_text(SCRIPTS.get(name, SLEEP).format(name=name))
    with subprocess.Popen([sys.executable, "-c", PROGRAM, tmp_path, thread]) as program:
        tree = pids_in(tmp_path, program)
        is_complete = all(map(runs, tree))
        program.send_signal(number)
    assert is_complete
    assert program.returncode == 7
    assert not any(map(runs, tree))
    assert marked_with(tmp_path) == []
    assert (tmp_path / "cleaned-up").exists()


def test_what_a_command_leaves_behind_stays_when_nothing_interrupts() -> None:
    """As a daemon that a playbook has started."""
    done = run(["sh", "-c", "sleep 600 >/dev/null 2>&1 & echo $!"], stdout=subprocess.PIPE)
    assert runs(int(done.stdout))
    os.kill(int(done.stdout), signal.SIGKILL)


def test_an_error_ends_what_the_command_has_started() -> None:
    """As a time limit: subprocess ends the command alone."""
    with pytest.raises(subprocess.TimeoutExpired) as caught, command() as environment:
        subprocess.run(
            ["sh", "-c", "sleep 600 & echo $!; wait"], env=environment, stdout=subprocess.PIPE, timeout=1, check=False
        )
    assert caught.value.stdout
    assert not runs(int(caught.value.stdout))


def test_a_command_has_an_input_and_a_mark() -> None:
    done = run(["sh", "-c", f"cat; echo ${VARIABLE}"], stdin="read ", stdout=subprocess.PIPE)
    word, mark = done.stdout.split()
    assert word == "read"
    assert len(mark) == 32
    assert VARIABLE not in os.environ

"""Commands that end with vmtoll: when ^C or SIGTERM ends it, so does everything that its running commands have started.

Such processes have a variable in their environment, which children inherit: so they are found in any session and
process group, and when their parents have ended. Agents lack it: they clean up and end when vmtoll closes their lines.
"""

import os
import signal
import subprocess
import threading
import time
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

VARIABLE = "VMTOLL_COMMAND"
GRACE_S = 5.0  # between SIGTERM and SIGKILL
_LOOK_S = 0.05
_running: set[str] = set()  # values of the variable
_interrupted = threading.Event()


def end_on(*numbers: signal.Signals) -> None:
    """On these signals, end running commands and raise KeyboardInterrupt in the main thread."""
    for number in numbers:
        signal.signal(number, _interrupt)


def _interrupt(*_: object) -> None:
    _interrupted.set()
    # The main thread may wait for a thread that waits for a command.
    threading.Thread(target=_end, args=(set(_running),), daemon=True).start()
    raise KeyboardInterrupt


@contextmanager
def command(environment: Mapping[str, str] | None = None) -> Iterator[dict[str, str]]:
    """Yield the environment for a command that is started and ends within this context: this one (default: vmtoll's
    own), marked.

    An exception, and an interrupt, ends all processes of this environment. Raises KeyboardInterrupt in a thread that
    begins a command after an interrupt; the main thread may clean up by commands.
    """
    mark, is_done = uuid.uuid4().hex, False
    _running.add(mark)
    try:
        if _interrupted.is_set() and threading.current_thread() is not threading.main_thread():
            raise KeyboardInterrupt
        yield {**(os.environ if environment is None else environment), VARIABLE: mark}
        is_done = True
    finally:
        _running.discard(mark)
        if not is_done or _interrupted.is_set():
            _end({mark})


def run(argv: Sequence[str], *, stdin: str | None = None, **options: Any) -> "subprocess.CompletedProcess[str]":
    """Run a command to its end, as subprocess.run does with text; `stdin`: its input. Its children end with vmtoll."""
    if stdin is not None:
        options["stdin"] = subprocess.PIPE
    with command() as environment, subprocess.Popen(argv, env=environment, text=True, **options) as process:
        stdout, stderr = process.communicate(stdin)
    return subprocess.CompletedProcess(argv, process.returncode, stdout, stderr)


def _end(marks: Collection[str]) -> None:
    """End all processes of these commands: by SIGTERM, after GRACE_S by SIGKILL, which may take as long."""
    began, told = time.monotonic(), set[int]()
    while (pids := _processes(marks)) or _running.intersection(marks):
        waited_s = time.monotonic() - began
        if waited_s > 2 * GRACE_S:
            break
        for pid in pids:
            with suppress(ProcessLookupError, PermissionError):
                if waited_s > GRACE_S:
                    os.kill(pid, signal.SIGKILL)
                elif pid not in told:
                    os.kill(pid, signal.SIGTERM)
        told.update(pids)
        time.sleep(_LOOK_S)


def _processes(marks: Collection[str]) -> list[int]:
    """The processes of these commands, without those that have ended and wait for their parents."""
    words, pids = [f"{VARIABLE}={mark}".encode() for mark in marks], []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended, or is another user's
            environment = (folder / "environ").read_bytes().split(b"\0")
            if any(word in environment for word in words):
                pids.append(int(folder.name))
    return pids

"""A process that looks like another monitor's: its program's name, and a busy thread that is called a virtual CPU."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_PROGRAM = """
import os, threading
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
def spin():
    with open(f"/proc/self/task/{threading.get_native_id()}/comm", "w") as file:
        file.write("vcpu0")
    print("runs", flush=True)
    while True:
        pass
threading.Thread(target=spin, daemon=True).start()
threading.Event().wait()
"""
_RIVAL = """
import os
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
while True:
    pass
"""


@contextmanager
def monitor(name: str, *words: str) -> Iterator["subprocess.Popen[str]"]:
    """The process, and another one that wants the same CPU all the time."""
    argv = [name, "-c", _PROGRAM, *words]
    pipe = subprocess.PIPE
    with (
        subprocess.Popen(argv, executable=sys.executable, stdout=pipe, text=True) as process,
        subprocess.Popen([sys.executable, "-c", _RIVAL]) as rival,
    ):
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "runs\n"
            yield process
        finally:
            process.kill()
            rival.kill()

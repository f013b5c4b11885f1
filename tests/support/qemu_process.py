"""A real QEMU process, emulated, with a QMP socket of its own."""

import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

QEMU = shutil.which("qemu-system-x86_64") or "qemu-system-x86_64"
PLAIN = ("-accel", "tcg", "-display", "none", "-vga", "none", "-m", "32")


@contextmanager
def qemu(folder: Path, *words: str, stopped: bool = True, socket: str = "qmp.sock") -> Iterator[Path]:
    """The QMP socket of a QEMU that runs for as long; `stopped`: it does not begin to run the guest's code."""
    path = folder / socket
    argv = [QEMU, *PLAIN, *words, *(["-S"] if stopped else []), "-qmp", f"unix:{path},server=on,wait=off"]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        try:
            while not path.exists():
                assert process.poll() is None, process.stderr and process.stderr.read()
                time.sleep(0.01)
            yield path
        finally:
            process.kill()

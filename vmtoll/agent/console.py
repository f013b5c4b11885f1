"""What a guest's console says, a file on its host: whether its kernel has panicked, whether it has booted. Python 3.9.

Imports nothing of vmtoll: the role kvm_guest runs it on KVM hosts, too.
Usage: console.py CONSOLE SILENCE [COMMAND…] — wait until the guest of this console has booted, as long as the console
grows. Fail with its last lines when it has not for SILENCE seconds, or when the kernel has panicked; then run COMMAND,
which ends the guest. A slow guest is waited for, one that hangs is not.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

PANIC = "Kernel panic - "
# A kernel with `panic=SECONDS` prints this last, and then boots again.
_BOOTS_AGAIN = "Rebooting in "
# A console that is written for so long after a panic belongs to a kernel that goes on.
SILENT_S = 5.0
_LAST_LINES = 5
_READ_BYTES = 1 << 16
# Seconds since the kernel started, with which each of its own lines begins.
_STAMP = re.compile(r"\[ *(\d+\.\d+)\]")
_BOOTED = re.compile(r"reached target.*multi-user", re.IGNORECASE)
# What programs print to color and position text, and other control characters.
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x1f\x7f]+")


def panic(console: Path, since: float = 0.0) -> str:
    """The panic that a console ends with and the last lines before its end; empty without one.

    `since`: when the guest was started, as seconds since 1970. A console may have the panic of an earlier boot, which
    counts only if nothing was printed since: the text of a boot after a panic has no such line at its end.
    """
    try:
        written = console.stat().st_mtime
        if written < since or time.time() - written < SILENT_S:
            return ""
        lines = _lines(_end(console))
    except OSError:
        return ""
    at = next((number for number in reversed(range(len(lines))) if PANIC in lines[number]), None)
    if at is None or any(_BOOTS_AGAIN in line for line in lines[at:]) or _another_boot(lines[at], lines[at + 1 :]):
        return ""
    first = next(line for line in lines if PANIC in line and not _another_boot(line, lines[lines.index(line) + 1 :]))
    return f"{first}; its console ends with: {_last(lines)}"


def _another_boot(panicked: str, later: list[str]) -> bool:
    """Return whether lines after a panic are of a kernel that started after it."""
    stamps = [_STAMP.match(line) for line in (panicked, *later)]
    if stamps[0] is None:
        return any("Linux version " in line for line in later)
    return any(stamp is None or float(stamp[1]) < float(stamps[0][1]) for stamp in stamps[1:])


def _end(console: Path) -> str:
    with console.open("rb") as stream:
        stream.seek(max(0, console.stat().st_size - _READ_BYTES))
        return stream.read().decode("utf-8", "replace")


def _lines(text: str) -> list[str]:
    lines = (_CONTROL.sub(" ", line).strip() for line in text.splitlines())
    return [line for line in lines if line]


def _last(lines: list[str]) -> str:
    return " | ".join(lines[-_LAST_LINES:]) or "nothing"


def wait_until_booted(console: Path, silence_s: float) -> str:
    """Wait until a guest has booted, as long as its console grows; return why it does not, empty once it has."""
    name = console.name.replace("-console.log", "")
    size, changed = -1, time.monotonic()
    while True:
        try:
            text = console.read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            text = f"{console}: {error.strerror}"
        if _BOOTED.search(text):
            return ""
        if why := panic(console):
            return f"the guest {name} does not boot: {why}"
        if len(text) != size:
            size, changed = len(text), time.monotonic()
        if time.monotonic() - changed > silence_s:
            last = _last(_lines(text))
            return (
                f"the guest {name} hangs: its console has shown nothing new for {silence_s:g} s; it ends with: {last}"
            )
        time.sleep(1)


def main(words: list[str]) -> int:
    console, silence_s, *end = words
    why = wait_until_booted(Path(console), float(silence_s))
    if PANIC in why and end:
        subprocess.run(end, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    if why:
        print(why, file=sys.stderr)
    return 1 if why else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

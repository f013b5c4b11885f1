"""What the counting machine wrote: the plugin's windows (vmtoll/builds/instructions/counter.c), exits by reason."""

import re
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from vmtoll.agent.exits import reasons
from vmtoll.model.errors import UserError

MAGIC = b"vmtollc1"
_HEAD, _RECORD = 5, 10  # words of 64 bits
_BEGIN, _END = 8, 9
_SVM = 2  # number of AMD's virtualization in the kernel's event kvm_exit
_REASON = re.compile(r"\{ exit_reason:\s*(\d+) \} hitcount:\s*(\d+)")


@dataclass(frozen=True)
class Window:
    """The instructions between two marks, by level and kind. `client`: the client's own user code. `repeats`: further
    iterations of REP instructions, which the counts leave out. `entries`: how often the host entered the guest.
    """

    host_kernel: int
    host_user: int
    client: int
    guest_kernel: int
    guest_user: int
    repeats: int
    entries: int

    @property
    def instructions(self) -> int:
        """All that a request causes, without the client's own user code."""
        return self.host_kernel + self.host_user + self.guest_kernel + self.guest_user


@dataclass(frozen=True)
class Progress:
    """How far a running machine is: marks written, instructions executed."""

    marks: int
    executed: int


def read_progress(content: bytes) -> Progress:
    """Progress by the head of the plugin's file; nothing yet where the file is empty."""
    words = _words(content[: 8 * _HEAD])
    return Progress(words[1], sum(words[2:])) if len(words) == _HEAD else Progress(0, 0)


def read_windows(content: bytes) -> list[Window]:
    """The finished windows of the plugin's file, in order. Raises UserError for another file, or marks out of order."""
    words = _words(content)
    if content[:8] != MAGIC:
        raise UserError("the counter's file does not begin as one; is QEMU's plugin of another version?")
    records = [words[at : at + _RECORD] for at in range(_HEAD, _HEAD + words[1] * _RECORD, _RECORD)]
    windows = []
    for begin, end in zip(records[::2], records[1::2], strict=False):
        if (begin[0], end[0]) != (_BEGIN, _END):
            raise UserError(f"marks {begin[0]} and {end[0]} follow each other in the counter's file, not 8 and 9")
        counted = [after - before for before, after in zip(begin[1:], end[1:], strict=True)]
        host_kernel, host_user, client, guest_kernel, guest_user, _, *repeats, entries = counted
        windows.append(Window(host_kernel, host_user, client, guest_kernel, guest_user, sum(repeats), entries))
    return windows


def _words(content: bytes) -> Sequence[int]:
    return array("Q", content[: len(content) // 8 * 8])


def read_exits(console: str) -> list[dict[str, int]]:
    """Exits by the kernel's name of their reason, of each window that the client probed, in order."""
    names = reasons("\n".join(line.removeprefix("FORMAT ") for line in _lines(console) if line.startswith("FORMAT ")))
    probes: list[dict[int, int]] = []
    for line in _lines(console):
        if line == "PROBE":
            probes.append({})
        elif probes and (row := _REASON.search(line)):
            probes[-1][int(row[1])] = int(row[2])
    return [
        {names.get((_SVM, reason), hex(reason)): count - before.get(reason, 0) for reason, count in after.items()}
        for before, after in zip(probes[::2], probes[1::2], strict=False)
    ]  # fmt: skip


def _lines(console: str) -> Iterator[str]:
    return (line.rstrip("\r") for line in console.split("\n"))

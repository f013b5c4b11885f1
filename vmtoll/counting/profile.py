"""Where the instructions are: a profiled boot's windows by level and symbol."""

import bisect
import re
import tarfile
import tempfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from vmtoll.builds.counting import CLIENT_AT
from vmtoll.shell import run

LEVELS = ("host", "guest")
Profile = Counter[tuple[str, str]]  # (level, symbol) → instructions
_GRANULE = 16  # bytes of code that the plugin counts together
_MODULE = re.compile(r"GUEST (\S+) (\d+) \d+ \S+ Live (0x[0-9a-f]+)")


@dataclass(frozen=True)
class Symbols:
    """Addresses in ascending order, and the names of what begins there."""

    addresses: list[int]
    names: list[str]

    @classmethod
    def of(cls, pairs: Iterable[tuple[int, str]]) -> "Symbols":
        """Sorted; of several names of an address, the first one stays."""
        unique: dict[int, str] = {}
        for address, name in pairs:
            unique.setdefault(address, name)
        ordered = sorted(unique.items())
        return cls([address for address, _ in ordered], [name for _, name in ordered])

    def name(self, address: int) -> str:
        """The symbol that most of this granule belongs to: the last one that begins before its end."""
        at = bisect.bisect_right(self.addresses, address + _GRANULE - 1) - 1
        return self.names[at] if at >= 0 else "unknown"


def kernel_symbols(kallsyms: str) -> Iterator[tuple[int, str]]:
    """(address, `vhost_worker [vhost]`) of each line of kallsyms, without the padding before functions."""
    for line in kallsyms.splitlines():
        address, _, name, *module = line.split()
        if not name.startswith("__pfx_"):
            yield int(address, 16), " ".join([name, *module])


def guest_symbols(kallsyms: str, console: str) -> Iterator[tuple[int, str]]:
    """The host's symbols outside of modules, which the guest has at the same addresses (the same kernel, nokaslr), and
    the guest's modules as one symbol each, from its /proc/modules on the console.
    """
    yield from (pair for pair in kernel_symbols(kallsyms) if not pair[1].endswith("]"))
    for name, size, base in _MODULE.findall(console):
        yield int(base, 16), f"[{name}]"
        yield int(base, 16) + int(size), "unknown"


def server_symbols(program: bytes) -> Iterator[tuple[int, str]]:
    """(address, `send_text (server)`) of each function of the server, a program of fixed addresses."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(program)
        file.flush()
        for line in run(["nm", "--defined-only", file.name]).splitlines():
            address, kind, name = line.split(maxsplit=2)
            if kind in "tTwW":
                yield int(address, 16), f"{name} (server)"


@dataclass(frozen=True)
class Maps:
    """The symbols of the kernels by level, and of the server, which both levels run at the same addresses."""

    kernels: Sequence[Symbols]
    server: Symbols

    def name(self, level: int, address: int) -> str:
        """The symbol of a granule of code."""
        if address >> 63:
            return self.kernels[level].name(address)
        if address < CLIENT_AT[0]:
            return self.server.name(address)
        return "client" if address < CLIENT_AT[1] else "other user code"


def read_profile(text: str, maps: Maps) -> Profile:
    """The profile in a file of the plugin's: lines of level, address and count."""
    counts: Profile = Counter()
    for line in text.splitlines():
        level, address, count = line.split()
        counts[LEVELS[int(level)], maps.name(int(level), int(address, 16))] += int(count)
    return counts


def read_boot(folder: Path) -> Callable[[range], Profile]:
    """What returns the profile of windows of the boot in this folder, counted from 0."""
    console = (folder / "console.log").read_text(errors="replace")
    kallsyms = zlib.decompressobj(31).decompress((folder / "symbols").read_bytes()).decode()
    with tarfile.open(folder / "job.tar") as tar:
        server = tar.extractfile("lighttz")
        assert server
        kernels = (Symbols.of(kernel_symbols(kallsyms)), Symbols.of(guest_symbols(kallsyms, console)))
        maps = Maps(kernels, Symbols.of(server_symbols(server.read())))

    def of(windows: range) -> Profile:
        files = (folder / f"profile.{window}" for window in windows)
        return sum((read_profile(file.read_text(), maps) for file in files), Counter())

    return of

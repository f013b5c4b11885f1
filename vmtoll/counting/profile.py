"""Where the instructions are: a profiled boot's windows by level and symbol."""

import bisect
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

LEVELS = ("host", "guest")
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


def read_profile(text: str, host: Symbols, guest: Symbols) -> Counter[tuple[str, str]]:
    """(level, symbol) → instructions, of a file of the plugin's: lines of level, address and count."""
    counts: Counter[tuple[str, str]] = Counter()
    for line in text.splitlines():
        level, address, count = int(line.split()[0]), int(line.split()[1], 16), int(line.split()[2])
        name = (host, guest)[level].name(address) if address >> 63 else "user code"
        counts[LEVELS[level], name] += count
    return counts


def read_boot(folder: Path, kallsyms: str, windows: range) -> Counter[tuple[str, str]]:
    """The profile of these windows of a boot, counted from 0."""
    console = (folder / "console.log").read_text(errors="replace")
    host, guest = Symbols.of(kernel_symbols(kallsyms)), Symbols.of(guest_symbols(kallsyms, console))
    counts: Counter[tuple[str, str]] = Counter()
    for window in windows:
        counts += read_profile((folder / f"profile.{window}").read_text(), host, guest)
    return counts

"""Boots of the counting machine until every side has enough of them; what they counted, as rows to judge."""

import itertools
import statistics
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vmtoll.counting.machine import Boot, Load, Parts, boot
from vmtoll.counting.profile import Profile, read_boot
from vmtoll.counting.sides import Side
from vmtoll.counting.windows import Window
from vmtoll.model.errors import UserError
from vmtoll.recordings.rows import Better, Row, Value

MOST_APART = 0.02  # boots of one side that differ by more give no figure
MIN_WINDOWS = 2  # that a side needs of a boot that ended early
METRIC = "instructions"
# metric → its count in a window; those of the guest's levels are zero on metal, and are left out there
METRICS: Mapping[str, Callable[[Window], int]] = {
    METRIC: lambda window: window.instructions,
    "host kernel": lambda window: window.host_kernel,
    "host user": lambda window: window.host_user,
    "guest kernel": lambda window: window.guest_kernel,
    "guest user": lambda window: window.guest_user,
    "guest entries": lambda window: window.entries,
}


@dataclass
class Counted:
    """What one boot counted of a side. `exits`: by reason, in one more window, which had this many `entries`; `host`:
    its kernel and its QEMU.
    """

    seed: int
    windows: Sequence[Window]
    host: str = ""
    exits: Mapping[str, int] = field(default_factory=dict)
    entries: int = 0
    profile: Profile = field(default_factory=Counter)


Counts = dict[str, list[Counted]]  # side → its boots


def by_side(result: Boot, sides: Sequence[Side], load: Load) -> Iterator[tuple[str, int, Counted]]:
    """(side, number of its first window, what was counted). A side that the boot did not finish keeps its windows."""
    exits, per_side = iter(result.exits), load.windows + 1
    for side, first in zip(sides, itertools.count(0, per_side), strict=False):
        windows = result.windows[first : first + per_side]
        if len(windows) < MIN_WINDOWS:
            return
        counted = Counted(result.seed, windows[: load.windows], result.host)
        if len(windows) == per_side and side.environment == "guest":
            counted.exits, counted.entries = next(exits, {}), windows[-1].entries
        yield side.name, first, counted


def count(
    parts: Parts, sides: Sequence[Side], load: Load, boots: int, say: Callable[[str], None], *, profile: bool = False
) -> Counts:
    """Boot until each side has this many boots. Raises UserError when too many boots end early."""
    counts: Counts = {side.name: [] for side in sides}
    seeds = itertools.count(1)
    for parameters in dict.fromkeys(side.host_parameters for side in sides):
        alike = [side for side in sides if side.host_parameters == parameters]
        for attempt in itertools.count():
            lacking = [side for side in alike if len(counts[side.name]) < boots]
            if not lacking:
                break
            if attempt == 2 * boots + 2:
                raise UserError(f"{attempt} boots gave {lacking[0].name} {len(counts[lacking[0].name])} of {boots}")
            with tempfile.TemporaryDirectory(prefix="vmtoll-count-") as folder:
                result = boot(parts, lacking, load, next(seeds), Path(folder), profile=profile)
                profile_of = read_boot(Path(folder)) if profile and result.windows else None
                for name, first, counted in by_side(result, lacking, load):
                    counts[name].append(counted)
                    if profile_of:
                        counted.profile = profile_of(range(first, first + len(counted.windows)))
            shown = ", ".join(f"{side.name} {len(counts[side.name])}" for side in alike)
            say(f"boot {result.seed}: {result.result}, {result.took_s:.0f} s; boots of {shown}; {result.host}")
    return counts


def apart(boots: Sequence[Counted]) -> float:
    """How far the means of boots lie apart, as a share of their mean."""
    means = [statistics.fmean(window.instructions for window in counted.windows) for counted in boots]
    return (max(means) - min(means)) / statistics.fmean(means)


def rows(counts: Counts, load: Load) -> list[Row]:
    """A judge file's rows: a boot is a block, a window a replicate, each metric per request. Fewer are better."""
    result = []
    for side, boots in counts.items():
        for block, counted in enumerate(boots, 1):
            for replicate, window in enumerate(counted.windows, 1):
                for metric, of in METRICS.items():
                    if side.startswith("metal") and metric.startswith("guest"):
                        continue
                    value = of(window) / load.requests
                    unit = "per request"
                    number = Value(metric, value, Better.LOWER, unit=unit, replicate=replicate, requests=load.requests)
                    result.append(Row(block, side, number, boot=block))
    return result


def mean(boots: Sequence[Counted], of: Callable[[Window], int], load: Load) -> float:
    """A figure per request: the mean over boots of their windows' mean."""
    return statistics.fmean(statistics.fmean(map(of, each.windows)) for each in boots) / load.requests


def exits(boots: Sequence[Counted], load: Load) -> dict[str, float]:
    """Exits per request by reason, the most frequent first, over the boots that have them."""
    total: defaultdict[str, int] = defaultdict(int)
    having = [each for each in boots if each.exits]
    for each in having:
        for reason, number in each.exits.items():
            total[reason] += number
    return {
        reason: number / (load.requests * len(having))
        for reason, number in sorted(total.items(), key=lambda item: -item[1])
        if number
    }


def profile_rows(counts: Counts, load: Load) -> Iterator[tuple[str, str, str, float]]:
    """(side, level, symbol, instructions per request) of the boots that were profiled, most instructions first."""
    for side, boots in counts.items():
        windows = sum(len(each.windows) for each in boots)
        for (level, symbol), number in sum((each.profile for each in boots), Counter()).most_common():
            yield side, level, symbol, number / (load.requests * windows)

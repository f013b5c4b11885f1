"""Boots of the counting machine until every side has enough of them; what they counted, as rows to judge."""

import itertools
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vmtoll.counting.machine import Boot, Load, Parts, boot
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
    """What one boot counted of a side. `first`: number of its first window in the boot; `exits`: by reason, in one more
    window, which had this many `entries`.
    """

    seed: int
    first: int
    windows: Sequence[Window]
    exits: Mapping[str, int] = field(default_factory=dict)
    entries: int = 0


Counts = dict[str, list[Counted]]  # side → its boots


def by_side(result: Boot, sides: Sequence[Side], load: Load) -> Iterator[tuple[str, Counted]]:
    """The windows of a boot by side. A side that the boot did not finish keeps the windows that it has."""
    exits, per_side = iter(result.exits), load.windows + 1
    for number, side in enumerate(sides):
        first = number * per_side
        windows = result.windows[first : first + per_side]
        if len(windows) < MIN_WINDOWS:
            return
        counted = Counted(result.seed, first, windows[: load.windows])
        if len(windows) == per_side and side.environment == "guest":
            counted.exits, counted.entries = next(exits, {}), windows[-1].entries
        yield side.name, counted


def count(
    parts: Parts, sides: Sequence[Side], load: Load, boots: int, say: Callable[[str], None], *,
    keep: Path | None = None,
) -> Counts:  # fmt: skip
    """Boot until each side has this many boots. `keep`: a folder for each boot's profile.

    Raises UserError when too many boots end early.
    """
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
            seed = next(seeds)
            with tempfile.TemporaryDirectory(prefix="vmtoll-count-") as folder:
                place = keep / f"boot-{seed}" if keep else Path(folder)
                place.mkdir(parents=True, exist_ok=True)
                result = boot(parts, lacking, load, seed, place, profile=keep is not None)
            for name, counted in by_side(result, lacking, load):
                counts[name].append(counted)
            shown = ", ".join(f"{side.name} {len(counts[side.name])}" for side in alike)
            say(f"boot {seed}: {result.result}, {result.took_s:.0f} s; boots of {shown}; {result.host}")
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

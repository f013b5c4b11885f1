"""Whether responses kept coming, from the bytes that the client received, a few times a second."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

# Below this share of the mean a slice holds no response: what is left is the line to the agent.
_SILENT = 0.02
# Slices that a comparison of the beginning with the rest needs at least.
_FEWEST = 12
# Standard errors that the beginning must lie away from the rest, to be no accident of the files' sizes.
_SURE = 3.0


@dataclass(frozen=True)
class Slice:
    """Bytes received in some seconds."""

    length_s: float
    size_bytes: float


def slices(pulse: Sequence[tuple[float, float]], started_at_s: float, wall_s: float) -> list[Slice]:
    """The slices that lie within a load, from the first to the last in which bytes came; `pulse`: time, counter."""
    inside = [(t, size) for t, size in pulse if started_at_s <= t <= started_at_s + wall_s]
    found = [Slice(b[0] - a[0], b[1] - a[1]) for a, b in itertools.pairwise(inside)]
    loud = [i for i, one in enumerate(found) if one.size_bytes > _silence(found) * one.length_s]
    return found[loud[0] : loud[-1] + 1] if loud else []


def _silence(found: Sequence[Slice]) -> float:
    """Bytes per second below which nothing was answered."""
    return _SILENT * sum(s.size_bytes for s in found) / sum(s.length_s for s in found)


def longest_gap_s(found: Sequence[Slice]) -> float | None:
    """The longest time without a response, as fine as the slices; None without slices."""
    if not found:
        return None
    longest = gap = 0.0
    for one in found:
        gap = gap + one.length_s if one.size_bytes <= _silence(found) * one.length_s else 0.0
        longest = max(longest, gap)
    return longest


def slower_start_pct(found: Sequence[Slice]) -> float | None:
    """How much slower the first third was than the rest, in percent; 0 when that may be chance.

    Welch's t of the rates; None with too few slices to tell.
    """
    third = len(found) // 3
    if third < _FEWEST // 3:
        return None
    rates = np.array([one.size_bytes / one.length_s for one in found])
    first, rest = rates[:third], rates[third:]
    error = np.sqrt(first.var(ddof=1) / len(first) + rest.var(ddof=1) / len(rest))
    lacking = rest.mean() - first.mean()
    return float(100 * lacking / rest.mean()) if lacking > _SURE * error else 0.0

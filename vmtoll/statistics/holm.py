"""Holm's step-down correction, weighted, for comparisons that may be looked at several times."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from vmtoll.statistics.thresholds import ALPHA


@dataclass(frozen=True)
class Adjusted:
    """A p-value, as it is and after Holm. `level`: at which it is judged, ALPHA times its weight and the share of its
    look over the weight that is left; of one that is not rejected the weight left where Holm stopped, so that its
    interval at this level contains zero. `rejects`: it lies below its level.
    """

    p: float
    holm: float
    level: float
    rejects: bool


def holm(
    p_values: Sequence[float], weights: Sequence[float] | None = None, shares: Sequence[float] | None = None
) -> list[Adjusted]:
    """Adjust (Holm 1979): each p times the weight that is left ÷ its own, in ascending order of p ÷ weight, never
    falling, at most 1. Without weights these are m, m − 1, …

    `shares`: of the level that the look of each p may spend, 0 before the first look. A p ÷ its share is the p of a
    comparison that is looked at several times, whenever it is stopped: over all looks it lies below ALPHA at most as
    often, because their shares add up to 1 or less.
    """
    weight_of = weights or [1.0] * len(p_values)
    spent = shares or [1.0] * len(p_values)

    def scaled(index: int) -> float:
        return p_values[index] / spent[index] / weight_of[index] if spent[index] else math.inf

    adjusted: dict[int, Adjusted] = {}
    left, stopped_at, highest = math.fsum(weight_of), 0.0, 0.0
    for index in sorted(range(len(p_values)), key=lambda i: (scaled(i), i)):
        left = max(left, weight_of[index])  # rounding
        highest = max(highest, min(1.0, scaled(index) * left))
        rejects = highest < ALPHA
        stopped_at = stopped_at if rejects or stopped_at else left
        level = ALPHA * weight_of[index] / (stopped_at or left) * spent[index]
        adjusted[index] = Adjusted(p_values[index], highest, min(level, ALPHA), rejects)
        left -= weight_of[index]
    return [adjusted[index] for index in range(len(p_values))]

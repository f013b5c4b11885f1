"""Holm's step-down correction, weighted, for comparisons with several looks."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from vmtoll.statistics.thresholds import ALPHA


@dataclass(frozen=True)
class Adjusted:
    """A p-value, before and after Holm's correction."""

    p: float
    holm: float
    # ALPHA times the comparison's weight and its look's share, divided by the weight left; if it does not reject, by
    # the weight left where Holm stopped, so that its interval at this level contains zero
    level: float
    rejects: bool  # the adjusted p lies below ALPHA


def holm(
    p_values: Sequence[float], weights: Sequence[float] | None = None, shares: Sequence[float] | None = None
) -> list[Adjusted]:
    """Adjust p-values (Holm 1979): each p times the weight left ÷ its own weight, in ascending order of p ÷ weight,
    never falling, at most 1. Without weights the factors are m, m − 1, …

    `shares`: the share of ALPHA that each p's look may spend, 0 before the first look. p ÷ share is a valid p-value for
    a comparison with several looks, whenever it stops: the shares of all looks add up to 1 or less, so over all looks
    it falls below ALPHA with a probability of at most ALPHA.
    """
    weight_of = weights or [1.0] * len(p_values)
    share_of = shares or [1.0] * len(p_values)

    def scaled(index: int) -> float:
        return p_values[index] / share_of[index] / weight_of[index] if share_of[index] else math.inf

    adjusted: dict[int, Adjusted] = {}
    weight_left, stopped_at, highest = math.fsum(weight_of), 0.0, 0.0
    for index in sorted(range(len(p_values)), key=lambda i: (scaled(i), i)):
        weight_left = max(weight_left, weight_of[index])  # rounding errors may leave less
        highest = max(highest, min(1.0, scaled(index) * weight_left))
        rejects = highest < ALPHA
        stopped_at = stopped_at if rejects or stopped_at else weight_left
        level = ALPHA * weight_of[index] / (stopped_at or weight_left) * share_of[index]
        adjusted[index] = Adjusted(p_values[index], highest, min(level, ALPHA), rejects)
        weight_left -= weight_of[index]
    return [adjusted[index] for index in range(len(p_values))]

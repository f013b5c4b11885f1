"""Means of independent figures with their intervals."""

from collections.abc import Sequence

from vmtoll.model.verdict import Estimate
from vmtoll.statistics.student import mean_of


def amount_of(values: Sequence[float]) -> Estimate | None:
    """The mean with Student's 95% interval, which a single value has not; None without values."""
    if not values:
        return None
    mean = mean_of(values)
    return Estimate(mean.mean, *((mean.t.low, mean.t.high) if mean.t else ()))

"""Means of independent figures with their intervals."""

from collections.abc import Sequence

from vmtoll.model.verdict import Amount
from vmtoll.statistics.student import mean_of


def amount_of(values: Sequence[float]) -> Amount | None:
    """The mean with Student's 95% interval, which a single value has not; None without values."""
    if not values:
        return None
    mean = mean_of(values)
    return Amount(mean.mean, mean.t.low if mean.t else None, mean.t.high if mean.t else None)

"""Means and medians of figures that may be missing."""

from collections.abc import Iterable
from statistics import median

from vmtoll.model.verdict import Estimate
from vmtoll.statistics.student import mean_of


def median_of(values: Iterable[float | None]) -> float | None:
    """The median of the known values; None without one."""
    known = [value for value in values if value is not None]
    return float(median(known)) if known else None


def amount_of(values: Iterable[float | None]) -> Estimate | None:
    """The mean of the known values with Student's 95% interval, which a single value has not; None without values."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    mean = mean_of(known)
    return Estimate(mean.mean, *((mean.t.low, mean.t.high) if mean.t else ()))

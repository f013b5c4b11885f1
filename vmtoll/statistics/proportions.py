"""Tests and intervals for shares of trials and of requests."""

import scipy

from vmtoll.statistics.student import Interval
from vmtoll.statistics.thresholds import CONFIDENCE


def mcnemar(only_first: int, only_second: int) -> float:
    """The exact two-sided p of McNemar's test, from the numbers of pairs in which only one side succeeded."""
    n = only_first + only_second
    return float(scipy.stats.binomtest(only_first, n).pvalue) if n else 1.0


def clopper_pearson(successes: int, trials: int) -> Interval:
    """The exact 95% interval of a share (Clopper and Pearson 1934); fractions."""
    interval = scipy.stats.binomtest(successes, trials).proportion_ci(CONFIDENCE, method="exact")
    return Interval(float(interval.low), float(interval.high))


def wilson(successes: int, trials: int) -> Interval:
    """Wilson's 95% interval of a share (Wilson 1927, without continuity correction); fractions."""
    interval = scipy.stats.binomtest(successes, trials).proportion_ci(CONFIDENCE, method="wilson")
    return Interval(float(interval.low), float(interval.high))

"""The 99th percentile of all planned requests, a failed one being slower than any that was answered."""

import math
from collections.abc import Callable
from itertools import pairwise
from statistics import NormalDist

from vmtoll.model.finding import FINDINGS, Code, Validity
from vmtoll.model.trial import TrialRecord

# What makes a trial invalid because requests failed. The objective of a capacity permits some of them.
FAILURES = frozenset({Code.FAILED_REQUESTS, Code.TIMED_OUT})
# A logarithm needs a number for "never": ten times the objective, and no less than a load tool's time limit.
NEVER_US = 10_000_000.0
_NORMAL = NormalDist()


def may_count(record: TrialRecord) -> bool:
    """Return whether a trial counts for an objective: nothing but failed requests makes it invalid.

    To leave such trials out would leave out those in trouble, and keep the p99 of the others.
    """
    return not any(FINDINGS[code].severity is Validity.INVALID for code in record.codes - FAILURES)


def p99_of_planned_us(record: TrialRecord, at_rank: Callable[[int], float] | None = None) -> float | None:
    """The response time in µs within which 99% of the planned requests were answered with success; infinite where
    fewer were, and where the load was not answered in time. None without response times or counts. Of fewer than 100
    requests it is the longest: a record has no p99 of so few.

    `at_rank`: the response time of a rank among the answered requests, from 1, of a trial whose histogram is at hand.
    The percentiles of a record are those of the answered requests. With failures the rank that is looked for lies
    higher among these: without a histogram, the logarithm of the time is interpolated between two recorded percentiles
    over the normal quantile of the share, on which lognormal times lie on a straight line.
    """
    measured = record.primary
    if Code.TIMED_OUT in record.codes:
        return math.inf
    if measured is None or (measured.response_time_p99_us is None and measured.response_time_max_us is None):
        return None
    planned, successful = measured.requests, measured.successful
    if not planned or successful is None:
        return measured.response_time_p99_us if measured.failed in (None, 0) else None
    rank = -(-99 * planned // 100)
    if successful < rank:
        return math.inf
    if at_rank:
        return at_rank(rank)
    points = [
        (share, time_us)
        for share, time_us in (
            (0.99, measured.response_time_p99_us),
            (0.999, measured.response_time_p999_us),
            (1.0, measured.response_time_max_us),
        )
        if time_us is not None
    ]
    return _between(points, rank / successful, successful)


def _between(points: list[tuple[float, float]], share: float, requests: int) -> float:
    """The time at a share of the requests, from shares and times in ascending order; beyond the last one its time."""

    def normal_quantile(quantile: float) -> float:
        return _NORMAL.inv_cdf(min(quantile, 1 - 1 / (2 * requests)))

    for (low, low_us), (high, high_us) in pairwise(points):
        if share <= high:
            span = normal_quantile(high) - normal_quantile(low)
            part = (normal_quantile(share) - normal_quantile(low)) / span if span > 0 else 1.0
            return low_us * (high_us / low_us) ** min(max(part, 0.0), 1.0) if low_us > 0 else high_us
    return points[-1][1]


def log_p99(p99_us: float, limit_us: float) -> float:
    """The logarithm of a p99, with a number for one that is infinite."""
    return math.log(max(NEVER_US, 10 * limit_us) if math.isinf(p99_us) else p99_us)

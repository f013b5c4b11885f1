"""The 99th percentile of all planned requests; a failed request counts as slower than any answered one."""

import math
from collections.abc import Callable
from itertools import pairwise
from statistics import NormalDist

from vmtoll.model.finding import FINDINGS, Code, Validity
from vmtoll.model.trial import TrialRecord

# Findings that make a trial invalid because requests failed. A capacity's objective permits some failed requests.
FAILURES = frozenset({Code.FAILED_REQUESTS, Code.TIMED_OUT})
# A logarithm needs a number for "never": ten times the objective, but at least a load tool's time limit.
NEVER_US = 10_000_000.0
_NORMAL = NormalDist()


def may_count(record: TrialRecord) -> bool:
    """Return whether a trial counts for an objective: nothing but failed requests or a timeout makes it invalid.

    Leaving out trials with failed requests would keep only the p99 of the trials without trouble.
    """
    return not any(FINDINGS[code].severity is Validity.INVALID for code in record.codes - FAILURES)


def p99_of_planned_us(record: TrialRecord, at_rank: Callable[[int], float] | None = None) -> float | None:
    """The response time in µs within which 99% of the planned requests were answered with success; infinite if fewer
    were, or if the load timed out. None without response times or counts. The longest time for fewer than 100 requests,
    because their records have no p99.

    `at_rank`: rank among the answered requests, from 1 → response time, for a trial with a histogram. A record's
    percentiles are those of the answered requests, so failures move the wanted rank up among these. Without a histogram
    the function interpolates the logarithm of the time between two recorded percentiles, linearly over the normal
    quantile of the share: exact for lognormal times.
    """
    measurement = record.primary
    if Code.TIMED_OUT in record.codes:
        return math.inf
    if measurement is None or (measurement.response_time.p99_us is None and measurement.response_time.max_us is None):
        return None
    planned, successful = measurement.requests, measurement.successful
    if not planned or successful is None:
        return measurement.response_time.p99_us if measurement.failed in (None, 0) else None
    rank = -(-99 * planned // 100)
    if successful < rank:
        return math.inf
    if at_rank:
        return at_rank(rank)
    points = [
        (share, time_us)
        for share, time_us in (
            (0.99, measurement.response_time.p99_us),
            (0.999, measurement.response_time.p999_us),
            (1.0, measurement.response_time.max_us),
        )
        if time_us is not None
    ]
    return _between(points, rank / successful, successful)


def _between(points: list[tuple[float, float]], share: float, requests: int) -> float:
    """Interpolate the time at a share of the requests from `points` (share, time in µs), ascending; beyond the last
    point, that point's time.
    """

    def normal_quantile(quantile: float) -> float:
        return _NORMAL.inv_cdf(min(quantile, 1 - 1 / (2 * requests)))

    for (low, low_us), (high, high_us) in pairwise(points):
        if share <= high:
            span = normal_quantile(high) - normal_quantile(low)
            fraction = (normal_quantile(share) - normal_quantile(low)) / span if span > 0 else 1.0
            return low_us * (high_us / low_us) ** min(max(fraction, 0.0), 1.0) if low_us > 0 else high_us
    return points[-1][1]


def log_p99(p99_us: float, limit_us: float) -> float:
    """The logarithm of a p99 in µs; an infinite p99 counts as the larger of NEVER_US and ten times the limit."""
    return math.log(max(NEVER_US, 10 * limit_us) if math.isinf(p99_us) else p99_us)


def margin_of(record: TrialRecord) -> float | None:
    """log(p99 / deadline) of the worst guest of a trial; None for a trial without figures. A load that timed out missed
    by far.
    """
    if record.density:
        return max((_log_ratio(tile.p99_ms, tile.deadline_ms) for tile in record.density.tiles), default=None)
    return _log_ratio(None, record.offered.deadline_ms or NEVER_US / 1000) if Code.TIMED_OUT in record.codes else None


def _log_ratio(p99_ms: float | None, deadline_ms: float) -> float:
    """`p99_ms`: None if fewer than 99% of the requests were answered."""
    p99_us, deadline_us = math.inf if p99_ms is None else 1000 * p99_ms, 1000 * deadline_ms
    return log_p99(p99_us, deadline_us) - math.log(deadline_us)

"""The time that requests take inside the server, and the lag of its event loop, from the server's own histograms.

A server whose description names `metrics` serves two cumulative histograms in the text format of Prometheus, in
seconds: `lighttz_service_seconds` and `lighttz_loop_lag_seconds`. vmtoll reads them before and after a load; the
difference is the load's.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from operator import add

import numpy as np

from vmtoll.model.percentiles import FEWEST
from vmtoll.model.trial import Times

PERCENTILES = {"p50": 0.5, "p99": 0.99, "p999": 0.999}


@dataclass(frozen=True)
class Histogram:
    """A histogram."""

    bounds_us: tuple[float, ...]  # the buckets' upper bounds, the last one infinite
    counts: tuple[int, ...]  # values in each bucket

    def since(self, before: "Histogram") -> "Histogram | None":
        """Counts since `before`; None if `before` is not an earlier state of the same histogram."""
        growth = tuple(new - old for new, old in zip(self.counts, before.counts, strict=False))
        return Histogram(self.bounds_us, growth) if self.bounds_us == before.bounds_us and min(growth) >= 0 else None

    def __add__(self, other: "Histogram") -> "Histogram":
        """The sum of two histograms with the same buckets."""
        return Histogram(self.bounds_us, tuple(map(add, self.counts, other.counts)))

    def percentile_us(self, share: float) -> float | None:
        """The value that this share of the values (a fraction) does not exceed, in µs; None without values.

        Assumes that values are spread evenly over their bucket, as Prometheus' `histogram_quantile` does; in the last
        bucket, which has no upper end, returns its lower bound.
        """
        cumulative = np.cumsum(self.counts)
        rank = share * cumulative[-1]
        if not rank:
            return None
        bucket = int(np.searchsorted(cumulative, rank))
        low_us, high_us = (0.0, *self.bounds_us)[bucket], self.bounds_us[bucket]
        if math.isinf(high_us):
            return low_us
        below = int(cumulative[bucket]) - self.counts[bucket]
        return low_us + (high_us - low_us) * float(rank - below) / self.counts[bucket]

    @property
    def percentiles(self) -> Times:
        """The percentiles that have enough values."""
        enough = {name: share for name, share in PERCENTILES.items() if sum(self.counts) >= FEWEST[name]}
        return Times(**{f"{name}_us": self.percentile_us(share) for name, share in enough.items()})


@dataclass(frozen=True)
class ServerTimes:
    """A server's two histograms."""

    service: Histogram
    loop_lag: Histogram

    def since(self, before: "ServerTimes") -> "ServerTimes | None":
        """Counts since `before`; None if the server has restarted from zero in between."""
        service, loop_lag = self.service.since(before.service), self.loop_lag.since(before.loop_lag)
        return ServerTimes(service, loop_lag) if service and loop_lag else None

    def __add__(self, other: "ServerTimes") -> "ServerTimes":
        return ServerTimes(self.service + other.service, self.loop_lag + other.loop_lag)


def parse(page: str | None) -> ServerTimes | None:
    """Both histograms of a page of metrics; None if there is no page, or a histogram is missing or damaged."""
    service, loop_lag = (_histogram(page or "", f"lighttz_{name}_seconds") for name in ("service", "loop_lag"))
    return ServerTimes(service, loop_lag) if service and loop_lag else None


def _histogram(page: str, name: str) -> Histogram | None:
    buckets = re.findall(rf'^{name}_bucket\{{le="(.*)"\}} (.*)$', page, re.MULTILINE)
    try:
        bounds_us = tuple(float(bound) * 1e6 for bound, _ in buckets)
        cumulative = [int(count) for _, count in buckets]
    except ValueError:
        return None
    counts = tuple(new - old for old, new in pairwise([0, *cumulative]))
    is_rising = all(low < high for low, high in pairwise(bounds_us))
    return Histogram(bounds_us, counts) if is_rising and bounds_us[-1:] == (math.inf,) and min(counts) >= 0 else None


def growth(before: Sequence[ServerTimes | None], after: Sequence[ServerTimes | None]) -> ServerTimes | None:
    """Total counts of the servers on all machines between two readings.

    None if any server reports nothing, has restarted from zero, or uses other buckets than the rest.
    """
    parts = [new.since(old) if old and new else None for old, new in zip(before, after, strict=True)]
    growths = [part for part in parts if part]
    same_buckets = len({(part.service.bounds_us, part.loop_lag.bounds_us) for part in growths}) == 1
    return reduce(add, growths) if same_buckets and len(growths) == len(parts) else None

"""Service or response times of one trial: percentiles and a mergeable histogram, in microseconds."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from hdrh.histogram import HdrHistogram
from numpy.typing import NDArray

from vmtoll.model.errors import ToolError
from vmtoll.model.percentiles import FEWEST, PER_MILLE
from vmtoll.model.trial import Times

HIGHEST_US = 3_600_000_000


def times(latencies_us: NDArray[np.int64]) -> Times:
    """Mean, percentiles and longest of the exact values, without percentiles that need more values; empty without
    values. Percentiles are by nearest rank, so each is an observed value.
    """
    if len(latencies_us) == 0:
        return Times()
    ordered = np.sort(latencies_us)
    percentiles = {f"{name}_us": _nearest_rank(ordered, name) for name in PER_MILLE if len(ordered) >= FEWEST[name]}
    return Times(mean_us=float(np.mean(ordered)), max_us=float(ordered[-1]), **percentiles)


@dataclass(frozen=True)
class SteadyPart:
    """A closed loop between the first and the last moment at which all users had a request in flight.

    Before and after, while users start and end, the load is lower, and a single request that takes seconds would
    dominate the rate.
    """

    rps: float
    in_flight: float  # the mean number of requests in flight


def steady_part(sent_us: NDArray[np.int64], latencies_us: NDArray[np.int64], users: int) -> SteadyPart | None:
    """The steady part of a closed loop's requests; None if it has fewer than half of the responses."""
    ends_us = sent_us + latencies_us
    times_us, changes = np.concatenate([ends_us, sent_us]), np.repeat([-1, 1], len(sent_us))
    order = np.lexsort((changes, times_us))  # at equal times an answer comes before its user's next request
    all_in_flight = np.flatnonzero(np.cumsum(changes[order]) >= users)
    if not len(all_in_flight):
        return None
    first_us, last_us = times_us[order][all_in_flight[[0, -1]]]
    answered = int(np.count_nonzero((ends_us > first_us) & (ends_us <= last_us)))
    if 2 * answered < len(ends_us) or last_us <= first_us:
        return None
    within_us = np.minimum(ends_us, last_us) - np.maximum(sent_us, first_us)
    span_us = float(last_us - first_us)
    return SteadyPart(answered / span_us * 1e6, float(within_us[within_us > 0].sum()) / span_us)


def _nearest_rank(ordered: NDArray[np.int64], percentile: str) -> float:
    return float(ordered[-(-len(ordered) * PER_MILLE[percentile] // 1000) - 1])


def histogram(latencies_us: NDArray[np.int64]) -> bytes:
    """HdrHistogram V2, base64, three significant digits. Raises ToolError for a value that it cannot hold."""
    hdr: Any = HdrHistogram(1, HIGHEST_US, 3)
    values, counts = np.unique(np.maximum(latencies_us, 1), return_counts=True)
    for value, count in zip(values.tolist(), counts.tolist(), strict=True):
        if not hdr.record_value(value, count):
            raise ToolError(f"a time of {value} µs is beyond what the histogram holds")
    return bytes(hdr.encode())


def by_second(sent_us: NDArray[np.int64], latencies_us: NDArray[np.int64]) -> bytes:
    """CSV `second,latency_us,count`: a coarse histogram for each second of sending, from 0.

    `latency_us` is the lower edge of a bin, ten bins to a decade.
    """
    seconds = (sent_us - sent_us.min(initial=np.iinfo(np.int64).max)) // 1_000_000
    edges = np.round(10 ** (np.floor(10 * np.log10(np.maximum(latencies_us, 1))) / 10)).astype(np.int64)
    bins, counts = np.unique(np.stack([seconds, edges]), axis=1, return_counts=True)
    lines = [f"{s},{e},{n}\n" for (s, e), n in zip(bins.T.tolist(), counts.tolist(), strict=True)]
    return ("second,latency_us,count\n" + "".join(lines)).encode()

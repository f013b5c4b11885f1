"""Growth of response times within a trial: the machine does not keep up, and p99 depends on how long the trial lasts. A
rate that exceeds the capacity by a share s meets an objective of d seconds in any trial shorter than d ÷ s: 2% too much
makes 40 ms of queue after two seconds, and 400 ms after twenty.

Works on single requests and on counts of requests by second.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vmtoll.statistics.ranks import nearest_rank

SPANS = 10  # equal parts of the send time, whose medians are compared
FEWEST_SPANS = 5  # with fewer not even a perfect order is significant
RATIO = 1.5
P = 0.01

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Growth:
    """`ratio`: p99 of the last third ÷ p99 of the first; `p`: probability that the medians rise this much by chance
    (Mann 1945, one-sided, exact).
    """

    ratio: float
    p: float

    @property
    def is_overload(self) -> bool:
        """Return whether the last third is slower and the medians rise: a slow last third alone may be one pause, and
        rising medians alone may be too small a change to matter.
        """
        return self.ratio > RATIO and self.p < P


def growth(send_times: ArrayLike, latencies_us: ArrayLike, counts: ArrayLike | None = None) -> Growth | None:
    """Return the growth of response times over the send time. `counts`: number of requests with each send time and
    latency, by default one each. `send_times`: in any unit; with `counts`, in whole seconds. None if fewer than five
    spans of time have requests.
    """
    instants, latencies = np.asarray(send_times, dtype=float), np.asarray(latencies_us, dtype=float)
    weights = np.ones(len(instants)) if counts is None else np.asarray(counts, dtype=float)
    if not len(instants):
        return None
    # With counts, `send_times` is the start of a second: the last second ends one unit later.
    units = np.unique(instants)
    step = 1.0 if counts is not None else 0.0
    length = float(units[-1] - units[0]) + step
    if length <= 0:
        return None
    position = (instants - units[0]) / length
    spans = min(SPANS, len(units))
    span = np.minimum((position * spans).astype(int), spans - 1)
    span_masks = [span == index for index in range(spans) if (span == index).any()]
    if len(span_masks) < FEWEST_SPANS:
        return None
    medians = [_percentile(latencies[mask], weights[mask], 0.5) for mask in span_masks]
    first, last = (_percentile(latencies[mask], weights[mask], 0.99) for mask in (position < 1 / 3, position >= 2 / 3))
    return Growth(last / max(first, 1.0), _p_of_order(medians))


def _percentile(values: Floats, weights: Floats, share: float) -> float:
    order = np.argsort(values)
    return nearest_rank(values[order], np.cumsum(weights[order]), share)


def _p_of_order(values: Sequence[float]) -> float:
    """The probability that a random order has at least this excess of rising over falling pairs; ties count as
    neither.
    """
    n = len(values)
    excess = sum((later > earlier) - (later < earlier) for earlier, later in combinations(values, 2))
    orders = np.ones(1)  # by the number of falling pairs (inversions) among n values
    for size in range(2, n + 1):
        orders = np.convolve(orders, np.full(size, 1 / size))
    falling = (n * (n - 1) // 2 - excess) // 2
    return float(orders[: falling + 1].sum())

"""Growth of response times within a trial: then the machine does not keep up, and p99 is a matter of how long the trial
lasts. A rate that exceeds the capacity by a share s passes an objective of d seconds in any trial shorter than d ÷ s:
2% too much are 40 ms of queue after two seconds, and 400 ms after twenty.

For the runner, which knows each request, and for readers of a run, who know counts by second.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vmtoll.statistics.ranks import nearest_rank

SPANS = 10  # of the time of sending, whose medians are put in order
FEWEST_SPANS = 5  # with fewer not even a perfect order is significant
RATIO = 1.5
P = 0.01

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Growth:
    """`ratio`: p99 of the last third ÷ p99 of the first; `p`: of so much order among the medians by chance (Mann 1945,
    one-sided, exact).
    """

    ratio: float
    p: float

    @property
    def is_overload(self) -> bool:
        """Both: a last third that is only slower may be one pause, and an order alone may be of no size."""
        return self.ratio > RATIO and self.p < P


def growth(sent: ArrayLike, latencies_us: ArrayLike, counts: ArrayLike | None = None) -> Growth | None:
    """Return the growth of response times over the send time, of requests or of counts of them with the same send time
    and latency. `sent` in any unit. None with fewer than five spans of time that hold requests.
    """
    when, times = np.asarray(sent, dtype=float), np.asarray(latencies_us, dtype=float)
    weights = np.ones(len(when)) if counts is None else np.asarray(counts, dtype=float)
    if not len(when):
        return None
    # Whole seconds are spans of their own; the end of the last one is not known, so it is one more unit.
    units = np.unique(when)
    step = 1.0 if counts is not None else 0.0
    length = float(units[-1] - units[0]) + step
    if length <= 0:
        return None
    position = (when - units[0]) / length
    spans = min(SPANS, len(units))
    span = np.minimum((position * spans).astype(int), spans - 1)
    held = [span == index for index in range(spans) if (span == index).any()]
    if len(held) < FEWEST_SPANS:
        return None
    medians = [_percentile(times[mask], weights[mask], 0.5) for mask in held]
    first, last = (_percentile(times[mask], weights[mask], 0.99) for mask in (position < 1 / 3, position >= 2 / 3))
    return Growth(last / max(first, 1.0), _p_of_order(medians))


def _percentile(values: Floats, weights: Floats, share: float) -> float:
    order = np.argsort(values)
    return nearest_rank(values[order], np.cumsum(weights[order]), share)


def _p_of_order(values: Sequence[float]) -> float:
    """The probability of as many rising pairs, less falling ones, in a random order; ties count as neither."""
    n = len(values)
    excess = sum((later > earlier) - (later < earlier) for earlier, later in combinations(values, 2))
    orders = np.ones(1)  # by the number of falling pairs (inversions) among n values
    for size in range(2, n + 1):
        orders = np.convolve(orders, np.full(size, 1 / size))
    falling = (n * (n - 1) // 2 - excess) // 2
    return float(orders[: falling + 1].sum())

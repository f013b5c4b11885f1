"""Pooled p99 over rising rates: p99 does not fall as the rate rises.

Without pooling, the highest rate up to which every step meets the objective is a series of tests: a finer sweep has
more of them, and one slow trial anywhere ends it. Steps whose means contradict the order are pooled until none does
(pool adjacent violators, Ayer et al. 1955; Barlow et al. 1972), which is the least-squares fit of a rising curve. The
interval of a pool is Student's over the means of its blocks, because the trials of a block share its drift.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import scipy  # loads its parts when they are used

from vmtoll.capacity.estimate import ByEnd, Estimate
from vmtoll.statistics.student import mean_of


@dataclass(frozen=True)
class Pool:
    """The pool that a step belongs to: an estimate with its interval, and its number of blocks."""

    estimate: Estimate
    blocks: int


def pool_rising(steps: Sequence[Mapping[int, float]]) -> list[Pool | None]:
    """The pool of each step, from lightest to heaviest; a step is block → value. None for a step without a value."""
    filled = [index for index, values in enumerate(steps) if values]
    pools: list[Pool | None] = [None] * len(steps)
    if not filled:
        return pools
    means = [float(np.mean(list(steps[index].values()))) for index in filled]
    weights = [float(len(steps[index])) for index in filled]
    for first, end in pairwise(scipy.optimize.isotonic_regression(means, weights=weights).blocks):
        members = filled[first:end]
        pool = _pool([steps[index] for index in members])
        for index in members:
            pools[index] = pool
    return pools


def _pool(steps: Sequence[Mapping[int, float]]) -> Pool:
    blocks = {block for values in steps for block in values}
    means = [float(np.mean([values[block] for values in steps if block in values])) for block in sorted(blocks)]
    mean = mean_of(means)
    low, high = (-np.inf, np.inf) if mean.t is None else (mean.t.low, mean.t.high)
    return Pool(ByEnd(float(low), mean.mean, float(high)), len(blocks))

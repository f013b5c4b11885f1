"""One definition of a percentile: nearest rank, so a percentile is always an observed value."""

import math

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def rank_of(share: float, total: int) -> int:
    """The rank, from 1, of the smallest value that at least a share (0 to 1) of `total` values do not exceed.

    Type 1 of Hyndman and Fan, "Sample quantiles in statistical packages", 1996.
    """
    return max(1, math.ceil(round(share * total, 9)))


def nearest_rank(values: Floats, cumulative_counts: Floats, share: float) -> float:
    """The percentile of counted values, which ascend. `cumulative_counts`: how many are at most each of them."""
    return value_at(values, cumulative_counts, rank_of(share, int(cumulative_counts[-1])))


def value_at(values: Floats, cumulative_counts: Floats, rank: int) -> float:
    """The value at a rank, from 1, among counted values."""
    return float(values[np.searchsorted(cumulative_counts, rank)])

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


def nearest_rank(values: Floats, upto: Floats, share: float) -> float:
    """The percentile of counted values. `values`: ascending; `upto`: for each value, how many are at most that."""
    return value_at(values, upto, rank_of(share, int(upto[-1])))


def value_at(values: Floats, upto: Floats, rank: int) -> float:
    """The value at a rank, from 1, among counted values."""
    return float(values[np.searchsorted(upto, rank)])

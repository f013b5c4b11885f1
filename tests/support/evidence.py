"""Comparisons of a page as tests write them: advantages by block, in logs. Nothing in them was ever measured."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from vmtoll.analysis.judge import Evidence
from vmtoll.analysis.pairs import Bounds
from vmtoll.model.metric import THROUGHPUT, Metric
from vmtoll.statistics.series import Series

Values = Sequence[float] | npt.NDArray[np.float64] | Mapping[int, float]


def series(values: Values) -> Series:
    """A series with blocks numbered from 1, or as `values` numbers them."""
    blocks = values if isinstance(values, Mapping) else dict(enumerate(map(float, values), start=1))
    return Series(tuple(blocks), tuple(blocks.values()))


def bounds(mid: Values, low: Values | float = 0.0, high: Values | float = 0.0) -> Bounds:
    """`low`, `high`: distance of the ends from the mids, or the ends themselves."""
    middle = series(mid)

    def end(values: Values | float, sign: int) -> Series:
        if isinstance(values, int | float):
            return Series(middle.blocks, tuple(value + sign * values for value in middle.values))
        return series(values)

    return Bounds(end(low, -1), middle, end(high, 1))


def evidence(
    mid: Values, low: Values | float = 0.0, high: Values | float = 0.0, metric: Metric = THROUGHPUT, **keys: Any
) -> Evidence:
    """A comparison with these advantages."""
    return Evidence(metric, bounds(mid, low, high), **keys)

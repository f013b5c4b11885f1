"""A value for the low end of an interval, for the estimate, and for the high end."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

import numpy as np
import pandas as pd

from vmtoll.statistics.student import mean_of

T = TypeVar("T")


class End(StrEnum):
    """End of the intervals that an objective is judged by. LOW: the unfavorable ends of the 95% intervals over blocks,
    so that meeting it is shown; MID: the estimates; HIGH: the favorable ends, so that missing it is shown.
    """

    LOW = "low"
    MID = "mid"
    HIGH = "high"


@dataclass(frozen=True)
class ByEnd(Generic[T]):
    """A value for each end."""

    low: T
    mid: T
    high: T

    @classmethod
    def of(cls, judge: Callable[[End], T]) -> "ByEnd[T]":
        return cls(*map(judge, End))

    def __getitem__(self, end: End) -> T:
        return {End.LOW: self.low, End.MID: self.mid, End.HIGH: self.high}[end]

    @property
    def all(self) -> tuple[T, T, T]:
        return self.low, self.mid, self.high


Estimate = ByEnd[float]  # with its 95% interval over blocks


def geometric(values: pd.Series) -> Estimate | None:
    """The geometric mean of one positive figure per block, with the t interval of its logarithm; None without one.

    A single block has an interval from 0 to infinity. With an infinite figure the mean is infinite, and only the low
    end, which is that of the finite figures, may be finite.
    """
    present = values.dropna()
    present = present[present > 0]
    if present.empty:
        return None
    if np.isinf(present).any():
        others = geometric(present[np.isfinite(present)])
        return ByEnd(others.low if others else math.inf, math.inf, math.inf)
    logs = mean_of(np.log(present.to_numpy(dtype=float)))
    low, high = (0.0, np.inf) if logs.t is None else (np.exp(logs.t.low), np.exp(logs.t.high))
    return ByEnd(float(low), float(np.exp(logs.mean)), float(high))

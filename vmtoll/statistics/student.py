"""Student's intervals for independent figures: levels, capacities, test beds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from scipy import special

from vmtoll.statistics.thresholds import ALPHA

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Interval:
    """A closed interval; in log-ratio units unless said otherwise."""

    low: float
    high: float


@dataclass(frozen=True)
class Mean:
    """The mean of n independent figures with its 95% interval; `sd` and `t` are None for a single figure."""

    n: int
    mean: float
    sd: float | None
    t: Interval | None


def mean_of(values: Sequence[float] | Floats) -> Mean:
    """Estimate the mean of `values`, shape (n,). Raises ValueError when they are empty or not finite."""
    figures = np.asarray(values, dtype=float)
    if figures.ndim != 1 or figures.size == 0 or not np.isfinite(figures).all():
        raise ValueError("expected a non-empty list of finite numbers")
    n, mean = int(figures.size), float(figures.mean())
    if n == 1:
        return Mean(n, mean, None, None)
    sd = float(figures.std(ddof=1))
    half = half_width(sd, n)
    return Mean(n, mean, sd, Interval(mean - half, mean + half))


def half_width(sd: float, n: int, alpha: float = ALPHA) -> float:
    """Half the width of Student's t interval of a mean: t(1−α/2, n−1) · sd / √n; n ≥ 2."""
    return t_quantile(1 - alpha / 2, n - 1) * sd / math.sqrt(n)


@lru_cache(maxsize=4096)
def t_quantile(probability: float, freedom: float) -> float:
    """The quantile of Student's distribution with these degrees of freedom."""
    return float(special.stdtrit(freedom, probability))

"""The Universal Scalability Law: throughput over users or CPUs, how it bends and where it peaks.

X(N) = γN / (1 + α(N − 1) + βN(N − 1)): γ what one gives, α contention (a queue for something shared), β coherency
(the cost of agreeing); readers are shown them as σ and κ. Gunther, Guerrilla Capacity Planning, 2007; three parameters
and bounds as R's package usl 3.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import least_squares

from analysis.stats import Interval, half_width

MIN_LEVELS = 6  # three parameters, and as many levels again to contradict them
MIN_BLOCKS = 3

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Usl:
    """A fitted law. `errors`: standard errors of gamma, alpha, beta (null for one that lies on its bound);
    `residual`: residual standard error, in the unit of the throughput; `largest`: the highest level measured.
    """

    gamma: float
    alpha: float
    beta: float
    errors: tuple[float | None, float | None, float | None]
    residual: float
    largest: float

    def throughput(self, n: float) -> float:
        """Predicted throughput at level n, in the unit of the data."""
        return float(_law(np.array([n]), self.gamma, self.alpha, self.beta)[0])

    @property
    def peak(self) -> float | None:
        """The level beyond which throughput falls, √((1 − α)/β); None when it never does (β = 0)."""
        return math.sqrt((1 - self.alpha) / self.beta) if self.beta > 0 else None

    @property
    def limit(self) -> float | None:
        """The throughput that contention alone allows, γ/α (Amdahl's asymptote); None without contention."""
        return self.gamma / self.alpha if self.alpha > 0 else None

    @property
    def peak_is_measured(self) -> bool:
        """True when the peak lies within the measured levels; any other is an extrapolation."""
        return self.peak is not None and self.peak <= self.largest


def fit(levels: Sequence[float] | Floats, throughput: Sequence[float] | Floats) -> Usl:
    """Least squares with 0 ≤ α, β ≤ 1 over (level, throughput) pairs; a level may stand more than once.

    Raises ValueError with fewer than six different levels, or with a level below one or a throughput of zero.
    """
    n, x = np.asarray(levels, dtype=float), np.asarray(throughput, dtype=float)
    different = len(np.unique(n))
    if different < MIN_LEVELS:
        raise ValueError(f"{different} levels; the Universal Scalability Law is fitted to at least {MIN_LEVELS}")
    if n.shape != x.shape or not (n >= 1).all() or not (x > 0).all():
        raise ValueError("expected as many levels from 1 up as throughputs above 0")
    first = float((x / n).max())
    with np.errstate(invalid="ignore"):  # a step that leads nowhere finite is taken back
        found = least_squares(
            lambda p: _law(n, *p) - x, [first, 0.01, 1e-4], bounds=([0, 0, 0], [np.inf, 1, 1]),
            x_scale=[first, 1e-2, 1e-4], xtol=1e-14, ftol=1e-14, gtol=1e-14,
        )  # fmt: skip
    gamma, alpha, beta = (float(p) if free else round(float(p)) for p, free in zip(found.x, _free(found), strict=True))
    variance = 2 * float(found.cost) / max(n.size - 3, 1)
    return Usl(gamma, alpha, beta, _errors(found, variance), math.sqrt(variance), float(n.max()))


def over_blocks(levels: Floats, throughput: Floats, blocks: Floats) -> tuple[Interval | None, Interval | None]:
    """95% intervals of α and β, of trials with their level, throughput and block: the jackknife (Tukey 1958) with
    Student's quantile. What is left out is a block at a time, since the trials of one share its drift.

    None below three blocks, where one left out leaves fewer than six levels, and for a parameter on its bound.
    """
    whole, names = fit(levels, throughput), np.unique(blocks)
    try:
        parts = [fit(levels[blocks != name], throughput[blocks != name]) for name in names]
    except ValueError:
        parts = []
    if len(parts) < MIN_BLOCKS:
        return None, None
    _, contention, coherency = whole.errors
    return (
        None if contention is None else _jackknife(whole.alpha, [part.alpha for part in parts]),
        None if coherency is None else _jackknife(whole.beta, [part.beta for part in parts]),
    )


def _jackknife(whole: float, parts: Sequence[float]) -> Interval:
    n = len(parts)
    spread = (n - 1) * float(np.std(parts, ddof=1))  # of the pseudo-values n·whole − (n − 1)·part
    half = half_width(spread, n)
    return Interval(max(whole - half, 0.0), min(whole + half, 1.0))


def _law(n: Floats, gamma: float, alpha: float, beta: float) -> Floats:
    values: Floats = gamma * n / (1 + alpha * (n - 1) + beta * n * (n - 1))
    return values


def _free(found: object) -> list[bool]:
    """Which parameters lie between their bounds; `γ` always does."""
    mask = found.active_mask  # type: ignore[attr-defined]
    return [True, bool(mask[1] == 0), bool(mask[2] == 0)]


def _errors(found: object, variance: float) -> tuple[float | None, float | None, float | None]:
    """From the Jacobian of the free parameters: one on its bound is no longer estimated."""
    free = _free(found)
    columns = found.jac[:, free]  # type: ignore[attr-defined]
    squares = iter(np.diag(np.linalg.pinv(columns.T @ columns)) * variance)
    gamma, alpha, beta = (float(np.sqrt(next(squares))) if one else None for one in free)
    return gamma, alpha, beta

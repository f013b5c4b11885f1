"""Means of autocorrelated blocks: exact Student's t at a known correlation, averaged over the possible correlations.

The model for blocks of one boot is a first-order process: x_b = θ + e_b with corr(e_a, e_b) = ρ^|a − b|. The
transformation of Prais and Winsten (1954) makes them independent, so at a known ρ the mean of n blocks has Student's t
with exactly n − 1 degrees of freedom. ρ is not known: each value of RHOS counts by its restricted likelihood (Patterson
and Thompson 1971) over all series of a page, because one machine in one stretch of time made them all.
"""

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy import special

from vmtoll.statistics.thresholds import SKEWED, SPREAD_FLOOR

Floats = npt.NDArray[np.float64]

SKEWNESS_LIMITS = Path(__file__).with_name("skewness-limits.csv")
RHOS: Floats = np.arange(10) / 10
PRIOR: Floats = np.array([1.0] * 9 + [2.0]) / 11  # 0.9 also represents all higher correlations
INDEPENDENT: Floats = np.array([1.0] + [0.0] * 9)
_NO_SPREAD = 1e-18  # a sum of squares below this is rounding: all blocks are alike
_FEWEST_COMMON = 4  # two series need this many common blocks for a meaningful correlation
_PRECISION = 2.0**-40  # of a limit, as a share of the interval that is searched


@dataclass(frozen=True)
class Series:
    """Figures by block, all in one unit, mostly log ratios. Blocks ascend."""

    blocks: tuple[int, ...]
    values: tuple[float, ...]

    @property
    def n(self) -> int:
        return len(self.blocks)


@dataclass(frozen=True)
class Fits:
    """Several series, fitted at each ρ of RHOS. `mean`, `error` (standard), `information` (Σw²) and `likelihood` (log,
    REML) have the shape (series, RHOS); `freedom` and `varies` (the blocks are not all alike) have the shape (series,).
    A series of fewer than two blocks has an infinite error.
    """

    mean: Floats
    error: Floats
    information: Floats
    likelihood: Floats
    freedom: Floats
    varies: npt.NDArray[np.bool_]

    @property
    def sd(self) -> Floats:
        """The standard deviation of a block at each ρ, shape (series, RHOS)."""
        return np.asarray(self.error * np.sqrt(self.information))


@dataclass(frozen=True)
class _Whitening:
    """What makes these blocks independent at each ρ of RHOS: φ and √(1 − φ²), shape (RHOS, n − 1); w, shape (RHOS, n);
    Σw² and Σ log(1 − φ²), shape (RHOS,).
    """

    phi: Floats
    root: Floats
    w: Floats
    weight: Floats
    log_root: Floats

    def z(self, values: Floats) -> Floats:
        """Independent values, shape (series, RHOS, n); `values`: shape (series, n)."""
        first = values[:, None, :1].repeat(len(RHOS), axis=1)
        steps = (values[:, None, 1:] - self.phi * values[:, None, :-1]) / self.root
        return np.concatenate([first, steps], axis=2)

    def z_at(self, rho_index: int, values: Floats) -> Floats:
        """The same of one series at one ρ; `values`: shape (n,)."""
        steps = (values[1:] - self.phi[rho_index] * values[:-1]) / self.root[rho_index]
        return np.concatenate([values[:1], steps])


@lru_cache(maxsize=64)
def _whitening(blocks: tuple[int, ...]) -> _Whitening:
    phi = RHOS[:, None] ** np.diff(blocks)
    root = np.sqrt(1 - phi**2)
    w = np.concatenate([np.ones((len(RHOS), 1)), (1 - phi) / root], axis=1)
    return _Whitening(phi, root, w, (w**2).sum(axis=1), 2 * np.log(root).sum(axis=1))


def fit(series: Sequence[Series], floor: float = SPREAD_FLOOR) -> Fits:
    """Fit each series at each ρ. `floor`: the least standard deviation of a block, in the unit of the series."""
    shape = (len(series), len(RHOS))
    mean, error, information, likelihood = (np.full(shape, fill) for fill in (0.0, np.inf, 1.0, 0.0))
    freedom, varies = np.ones(len(series)), np.zeros(len(series), dtype=bool)
    by_blocks: dict[tuple[int, ...], list[int]] = {}
    for index, each in enumerate(series):
        by_blocks.setdefault(each.blocks, []).append(index)
    for blocks, rows in by_blocks.items():
        n = len(blocks)
        if n == 0:
            continue
        values = np.array([series[row].values for row in rows], dtype=float)
        whitening = _whitening(blocks)
        z, w, weight = whitening.z(values), whitening.w, whitening.weight
        mean[rows] = (z * w).sum(axis=2) / weight
        information[rows] = weight
        if n == 1:
            continue
        squares = ((z - mean[rows][:, :, None] * w) ** 2).sum(axis=2)
        floored_squares = np.maximum(squares, (n - 1) * max(floor, 1e-12) ** 2)
        error[rows] = np.sqrt(floored_squares / (n - 1) / weight)
        freedom[rows], varies[rows] = n - 1, squares[:, 0] > _NO_SPREAD
        log_squares = np.log(np.maximum(squares, _NO_SPREAD))
        likelihood[rows] = -(whitening.log_root + np.log(weight) + (n - 1) * log_squares) / 2
    return Fits(mean, error, information, likelihood, freedom, varies)


def autocorrelation(series: Sequence[Series]) -> Floats:
    """The weights of RHOS for a page of these series, which sum to 1; PRIOR unless a series of three or more blocks
    varies.

    Series of one server move together, so they count as fewer independent ones (`_effective_series`). No test decides
    whether blocks are correlated at all: a page of one comparison leaves it open and gets wide intervals.
    """
    usable = [each for each in series if each.n > 2]
    fits = fit(usable)
    usable = [each for each, varies in zip(usable, fits.varies, strict=True) if varies]
    if not usable:
        return PRIOR
    total = fits.likelihood[fits.varies].sum(axis=0)
    log_weights = np.log(PRIOR) + _effective_series(usable, int(total.argmax())) / len(usable) * (total - total.max())
    weights = np.exp(log_weights - log_weights.max())
    return np.asarray(weights / weights.sum())


def _effective_series(series: Sequence[Series], rho_index: int) -> float:
    """The number of independent series that these are worth: K / (1 + (K − 1) · excess). The excess is the mean squared
    correlation of their whitened residuals at RHOS[`rho_index`] beyond that of independent series, 1 / (n − 1), scaled
    to 1 for identical series.
    """
    count = len(series)
    blocks = {block: column for column, block in enumerate(sorted({b for each in series for b in each.blocks}))}
    residuals, present = np.zeros((count, len(blocks))), np.zeros((count, len(blocks)))
    for row, each in enumerate(series):
        columns = [blocks[block] for block in each.blocks]
        whitening = _whitening(each.blocks)
        z_row, w_row = whitening.z_at(rho_index, np.array(each.values)), whitening.w[rho_index]
        residuals[row, columns] = z_row - (z_row @ w_row) / (w_row @ w_row) * w_row
        present[row, columns] = 1
    common = present @ present.T
    squares = residuals**2 @ present.T
    i, j = np.triu_indices(count, 1)
    usable = (common[i, j] >= _FEWEST_COMMON) & (squares[i, j] > _NO_SPREAD) & (squares[j, i] > _NO_SPREAD)
    i, j = i[usable], j[usable]
    if not i.size:
        return 1.0
    r_squared = (residuals @ residuals.T)[i, j] ** 2 / (squares[i, j] * squares[j, i])
    chance = 1 / (common[i, j] - 1)
    excess = max(0.0, float(((r_squared - chance) / (1 - chance)).mean()))
    return count / (1 + (count - 1) * excess)


def below(fits: Fits, weights: Floats, limit: Floats | float = 0.0) -> Floats:
    """p of the hypothesis that each mean is `limit` or more: small where the mean lies below. Shape (series,), or
    (…, series) with limits of that shape.
    """
    t = (fits.mean - np.asarray(limit)[..., None]) / fits.error
    return np.asarray((weights * special.stdtr(fits.freedom[:, None], t)).sum(axis=-1))


def above(fits: Fits, weights: Floats, limit: Floats | float = 0.0) -> Floats:
    """p of the hypothesis that each mean is `limit` or less: small where the mean lies above. Shape as in `below`."""
    t = (np.asarray(limit)[..., None] - fits.mean) / fits.error
    return np.asarray((weights * special.stdtr(fits.freedom[:, None], t)).sum(axis=-1))


def lower_limit(fits: Fits, weights: Floats, level: Floats) -> Floats:
    """The largest limit that each mean exceeds with p ≤ `level`, shape (series,); −∞ below two blocks or at level 0."""
    return _limit(fits, weights, level, -1)


def upper_limit(fits: Fits, weights: Floats, level: Floats) -> Floats:
    """The smallest limit above each mean with p ≤ `level`, shape (series,); ∞ below two blocks or at level 0."""
    return _limit(fits, weights, level, 1)


def _limit(fits: Fits, weights: Floats, level: Floats, side: int) -> Floats:
    """Search between the nearest and the farthest of the limits at single values of ρ, by secants of log p. An end that
    stays for two steps counts half, which bounds their number (the Illinois method, Dowell and Jarratt 1971).
    """
    counts = np.broadcast_to(weights > 0, fits.mean.shape)
    known = np.isfinite(fits.error).all(axis=1) & (level > 0)
    safe_level = np.where(known, level, 0.5)
    distance = -special.stdtrit(fits.freedom[:, None], safe_level[:, None]) * np.where(
        np.isfinite(fits.error), fits.error, 0.0
    )
    ends = side * fits.mean + distance
    near, far = np.where(counts, ends, np.inf).min(axis=1), np.where(counts, ends, -np.inf).max(axis=1)

    def excess(points: Floats) -> Floats:
        p = below(fits, weights, points) if side > 0 else above(fits, weights, -points)
        return np.asarray(np.log(p / safe_level))

    rounding = 4 * np.spacing(np.maximum(np.abs(near), np.abs(far)))
    tolerance, moved_far = np.maximum(_PRECISION * (far - near), rounding), np.zeros(len(near))
    at_near, at_far = np.maximum(excess(near), 0.0), np.minimum(excess(far), 0.0)
    while (far - near > tolerance).any():
        secant = near + at_near / np.maximum(at_near - at_far, _NO_SPREAD) * (far - near)
        point = np.clip(secant, near + tolerance / 2, far - tolerance / 2)
        value = excess(point)
        moves_far = np.where(value <= 0, 1.0, -1.0)
        halved = np.where(moves_far == moved_far, 0.5, 1.0)
        near, at_near, at_far = (
            np.where(value > 0, point, near), np.where(value > 0, value, at_near * halved),
            np.where(value <= 0, value, at_far * halved),
        )  # fmt: skip
        far, moved_far = np.where(value <= 0, point, far), moves_far
    return np.asarray(np.where(known, side * far, side * np.inf))


def critical_distance(sd: Floats, freedom: float, weights: Floats, blocks: int, level: float) -> float:
    """The distance from zero at which the mean of `blocks` successive blocks has p = `level`, one-sided. `sd`: standard
    deviation of a block at each ρ; `freedom`: of the t distribution.
    """
    fits = Fits(
        np.zeros((1, len(RHOS))), sd[None] / np.sqrt(1 + (blocks - 1) * (1 - RHOS) / (1 + RHOS))[None],
        np.ones((1, len(RHOS))), np.zeros((1, len(RHOS))), np.array([freedom]), np.array([True]),
    )  # fmt: skip
    return float(upper_limit(fits, weights, np.array([level]))[0])


def is_skewed(series: Series) -> bool:
    """Return whether the blocks are more skewed than 99% of normal samples; False below three blocks."""
    if series.n < 3 or np.ptp(series.values) == 0:
        return False
    return bool(abs(skewness(np.array(series.values))) > skewness_limit(series.n))


def skewness(values: Floats) -> Floats:
    """The third standardized moment over the last axis."""
    centred = values - values.mean(axis=-1, keepdims=True)
    return np.asarray((centred**3).mean(axis=-1) / (centred**2).mean(axis=-1) ** 1.5)


def skewness_limit(n: int) -> float:
    """The absolute skewness that 99% of normal samples of n do not exceed: from the table SKEWNESS_LIMITS, which
    `python -m benchmarks.skewness` makes; beyond its end, from the normal limit (Fisher 1930).
    """
    if n in (limits := skewness_limits()):
        return limits[n]
    return float(special.ndtri(1 - SKEWED / 2)) * math.sqrt(6 * (n - 2) / ((n + 1) * (n + 3)))


@cache
def skewness_limits() -> Mapping[int, float]:
    """Number of blocks → the limit, from the table."""
    with SKEWNESS_LIMITS.open(encoding="utf-8", newline="") as stream:
        return {int(row["blocks"]): float(row["limit"]) for row in csv.DictReader(stream)}

"""Estimators for paired blocks. Everything works on log ratios: one number per block, natural logarithm.

The trial in its block is the sample, so n is the number of blocks, never the number of requests.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from scipy import special, stats

CONFIDENCE = 0.95
ALPHA = 0.05
MIN_BLOCKS = 6  # below it no 95% signed-rank interval exists: 2/2^5 > 0.05
MAX_BLOCKS = 1000  # where the search for "how many more blocks" gives up

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Interval:
    """A closed interval; in log-ratio units unless said otherwise."""

    low: float
    high: float

    @property
    def excludes_zero(self) -> bool:
        """True when zero lies outside."""
        return self.low > 0 or self.high < 0


@dataclass(frozen=True)
class Paired:
    """What n blocks say about a log ratio: mean with paired-t, Hodges–Lehmann with exact signed-rank."""

    n: int
    mean: float
    sd: float | None
    t: Interval | None
    median: float
    signed_rank: Interval | None

    @property
    def disagree(self) -> bool:
        """True when one interval excludes zero and the other does not, or they lie on opposite sides."""
        if self.t is None or self.signed_rank is None:
            return False
        if self.t.excludes_zero != self.signed_rank.excludes_zero:
            return True
        return self.t.excludes_zero and (self.t.low > 0) != (self.signed_rank.low > 0)

    @property
    def p_difference(self) -> float | None:
        """Two-sided paired t test of no difference; below 0.05 exactly when the 95% interval excludes zero."""
        return None if self.sd is None else min(1.0, 2 * self._tail(abs(self.mean)))

    def p_equivalence(self, limit: float) -> float | None:
        """Two one-sided t tests (TOST, Schuirmann 1987) of a log ratio beyond ±limit: twice the larger p.

        Doubled, it is below 0.05 exactly when the 95% interval lies within ±limit: the interval that the
        report shows is the one that decides. (The usual TOST at 5% asks the same of the 90% interval.)
        """
        return None if self.sd is None else min(1.0, 2 * self._tail(limit - abs(self.mean)))

    def _tail(self, distance: float) -> float:
        """P(T > distance / standard error), T with n − 1 degrees of freedom."""
        error = (self.sd or 0.0) / math.sqrt(self.n)
        if error == 0:
            return 0.0 if distance > 0 else 1.0
        return float(special.stdtr(self.n - 1, -distance / error))


def paired(logs: Sequence[float] | Floats) -> Paired:
    """Estimate from log ratios, shape (blocks,); raises ValueError when empty or not finite."""
    values = np.asarray(logs, dtype=float)
    if values.ndim != 1 or values.size == 0 or not np.isfinite(values).all():
        raise ValueError("expected a non-empty list of finite log ratios, one per block")
    n = int(values.size)
    mean = float(values.mean())
    sd = float(values.std(ddof=1)) if n > 1 else None
    half = None if sd is None else half_width(sd, n)
    return Paired(
        n=n,
        mean=mean,
        sd=sd,
        t=None if half is None else Interval(mean - half, mean + half),
        median=hodges_lehmann(values),
        signed_rank=signed_rank_interval(values),
    )


def half_width(sd: float, n: int, alpha: float = ALPHA) -> float:
    """Half the width of Student's t interval of a mean: t(1−α/2, n−1) · sd / √n; n ≥ 2."""
    return t_quantile(1 - alpha / 2, n - 1) * sd / math.sqrt(n)


@lru_cache(maxsize=4096)
def t_quantile(probability: float, freedom: int) -> float:
    """The quantile of Student's distribution with so many degrees of freedom."""
    return float(stats.t.ppf(probability, freedom))


def walsh_averages(values: Floats) -> Floats:
    """All means (x_i + x_j)/2 with i ≤ j, sorted; shape (n(n+1)/2,)."""
    i, j = np.triu_indices(values.size)
    return np.sort((values[i] + values[j]) / 2)


def hodges_lehmann(values: Floats) -> float:
    """The median of the Walsh averages (Hodges & Lehmann 1963)."""
    return float(np.median(walsh_averages(values)))


@lru_cache(maxsize=64)
def signed_rank_cdf(n: int) -> tuple[float, ...]:
    """P(W+ ≤ w) under the null for w = 0 … n(n+1)/2, exact: each rank counts with probability 1/2."""
    weights = np.zeros(n * (n + 1) // 2 + 1)
    weights[0] = 1.0
    for rank in range(1, n + 1):
        weights[rank:] = weights[rank:] / 2 + weights[:-rank] / 2
        weights[:rank] /= 2
    return tuple(np.cumsum(weights))


@lru_cache(maxsize=64)
def _signed_rank_depth(n: int) -> int:
    """The largest k with P(W+ ≤ k−1) ≤ 2.5%; 0 when n is too small (n < 6)."""
    return sum(p <= ALPHA / 2 for p in signed_rank_cdf(n))


def signed_rank_level(n: int) -> float | None:
    """The exact coverage of the signed-rank interval of n blocks: W+ is discrete, so it lies above 95%
    (96.9% at n = 6, 95.1% at 10, 95.2% at 20). None when there is no interval.
    """
    k = _signed_rank_depth(n)
    return None if k == 0 else 1 - 2 * signed_rank_cdf(n)[k - 1]


def signed_rank_interval(values: Floats) -> Interval | None:
    """Exact interval of at least 95% for the centre of symmetry: the k-th Walsh average from either end,
    where P(W+ ≤ k−1) ≤ 2.5% (Hollander & Wolfe, Nonparametric Statistical Methods, section 3.3).

    None when n is too small for any interval of that confidence (n < 6).
    """
    k = _signed_rank_depth(values.size)
    if k == 0:
        return None
    walsh = walsh_averages(values)
    return Interval(float(walsh[k - 1]), float(walsh[-k]))


def noise_floor(same: Paired | None) -> float | None:
    """The largest log ratio the A/A arm cannot rule out between an environment and itself:
    the farther end of its 95% interval. None without an interval.
    """
    if same is None or same.t is None:
        return None
    return max(abs(same.t.low), abs(same.t.high))


def blocks_needed(
    effect: Paired, limit: float, same: Paired | None = None, alphas: tuple[float, float] = (ALPHA, ALPHA)
) -> int | None:
    """How many more blocks until a verdict, were mean and spread to stay as they are.

    A verdict falls when the interval excludes zero (and the effect exceeds the noise floor), or when it
    lies within ±limit (and so does the floor). `alphas`: the levels that the difference and the equivalence
    must reach. All but the counts in log ratios. None: not within 1,000 blocks.
    """
    sd, mean = effect.sd or 0.0, abs(effect.mean)
    for total in range(max(effect.n + 1, MIN_BLOCKS), MAX_BLOCKS + 1):
        difference, equivalence = (half_width(sd, total, alpha) for alpha in alphas)
        floor = 0.0
        if same is not None and same.sd is not None:
            floor = abs(same.mean) + half_width(same.sd, total)
        if max(difference, floor) < mean or max(mean + equivalence, floor) < limit:
            return total - effect.n
    return None


def wilson(successes: int, trials: int) -> Interval:
    """Wilson's 95% interval of a share (Wilson 1927, without continuity correction); fractions, not logs."""
    found = stats.binomtest(successes, trials).proportion_ci(CONFIDENCE, method="wilson")
    return Interval(float(found.low), float(found.high))


def trimmed_2009(values: Sequence[float] | Floats) -> float | None:
    """The estimator of the 2009 experiment: of the first six runs drop the best and the worst, average the
    other four. It has no interval. In the unit of the values; None when there are fewer than six.
    """
    return float(np.sort(np.asarray(values, dtype=float)[:6])[1:5].mean()) if len(values) >= 6 else None

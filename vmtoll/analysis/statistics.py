"""Estimators for paired blocks. Everything works on log ratios: one number per block, natural logarithm.

The trial in its block is the sample, so n is the number of blocks, never the number of requests.
"""

from __future__ import annotations

import math
from bisect import bisect_left
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
POWER = 0.8  # of a plan, and of a detectable difference
MIN_AUTOCORRELATED = 10  # fewer blocks do not distinguish autocorrelation from chance
MIN_FIGURES = 40  # of all series together, below ten blocks
PERMUTATIONS = 499
AUTOCORRELATION_LEVEL = 0.1  # not 0.05: an autocorrelation that is missed makes more pages wrong
GAP_LEVEL = 0.01  # how often normal noise may look like two modes

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
    """Mean log ratio of n blocks, with paired-t, and Hodges–Lehmann with exact signed-rank.

    `inflation`: how many times larger the variance of the mean is than that of independent blocks; `sd` contains it,
    and the degrees of freedom are those of as many fewer blocks, at least one.
    """

    n: int
    mean: float
    sd: float | None
    t: Interval | None
    median: float
    signed_rank: Interval | None
    inflation: float = 1.0

    @property
    def freedom(self) -> float:
        """Degrees of freedom of the t distribution."""
        return freedom(self.n, self.inflation)

    def half_width(self, alpha: float = ALPHA) -> float:
        """Half the width of the t interval; infinite for a single block."""
        return math.inf if self.sd is None else t_quantile(1 - alpha / 2, self.freedom) * self.sd / math.sqrt(self.n)

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
        """P(T > distance / standard error)."""
        error = (self.sd or 0.0) / math.sqrt(self.n)
        if error == 0:
            return 0.0 if distance > 0 else 1.0
        return float(special.stdtr(self.freedom, -distance / error))


def paired(logs: Sequence[float] | Floats, inflation: float = 1.0) -> Paired:
    """Estimate from log ratios, shape (blocks,); raises ValueError when empty or not finite.

    `inflation`: how many times larger the variance of the mean is than that of independent blocks.
    """
    values = np.asarray(logs, dtype=float)
    if values.ndim != 1 or values.size == 0 or not np.isfinite(values).all():
        raise ValueError("expected a non-empty list of finite log ratios, one per block")
    n = int(values.size)
    mean = float(values.mean())
    sd = float(values.std(ddof=1)) * math.sqrt(inflation) if n > 1 else None
    half = None if sd is None else t_quantile(1 - ALPHA / 2, freedom(n, inflation)) * sd / math.sqrt(n)
    return Paired(
        n=n,
        mean=mean,
        sd=sd,
        t=None if half is None else Interval(mean - half, mean + half),
        median=hodges_lehmann(values),
        signed_rank=signed_rank_interval(values),
        inflation=inflation,
    )


def freedom(n: int, inflation: float = 1.0) -> float:
    """Degrees of freedom of n blocks that are worth n / inflation independent ones; at least one."""
    return n - 1 if inflation == 1 else max(1.0, n / inflation - 1)


def half_width(sd: float, n: int, alpha: float = ALPHA) -> float:
    """Half the width of Student's t interval of a mean: t(1−α/2, n−1) · sd / √n; n ≥ 2."""
    return t_quantile(1 - alpha / 2, n - 1) * sd / math.sqrt(n)


@lru_cache(maxsize=4096)
def t_quantile(probability: float, freedom: float) -> float:
    """The quantile of Student's distribution with these degrees of freedom."""
    return float(special.stdtrit(freedom, probability))


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
    the farther end of its 95% interval. None without an interval. It is shown, and decides nothing.
    """
    if same is None or same.t is None:
        return None
    return max(abs(same.t.low), abs(same.t.high))


def detectable(effect: Paired, alpha: float = ALPHA) -> float | None:
    """The smallest difference that this many blocks of this spread show with 80% power at level `alpha`, in log ratios:
    (t(1 − α/2) + t(0.8)) · sd / √n. None for a single block.
    """
    if effect.sd is None:
        return None
    return _quantiles(effect.freedom, alpha) * effect.sd / math.sqrt(effect.n)


def _quantiles(freedom: float, alpha: float) -> float:
    return t_quantile(1 - alpha / 2, freedom) + t_quantile(POWER, freedom)


def blocks_needed(effect: Paired, smallest: float, alpha: float = ALPHA) -> int | None:
    """Number of further blocks that show a difference of `smallest` (a log ratio) with 80% power at level `alpha`.

    It does not look at the mean, which would plan for the luck of these blocks. The spread is taken at its upper 80%
    limit, sd · √((n − 1) / χ²(0.2, n − 1)), because that of a few blocks is as often too small as too large (Browne
    1995, "On the use of a pilot sample for sample size determination"). None: not within 1,000 blocks. At least 1.
    """
    if effect.sd is None:
        return max(1, MIN_BLOCKS - effect.n)
    upper = effect.sd * math.sqrt((effect.n - 1) / float(stats.chi2.ppf(1 - POWER, effect.n - 1)))

    def suffices(total: int) -> bool:
        return _quantiles(freedom(total, effect.inflation), alpha) * upper / math.sqrt(total) <= smallest

    totals = range(max(effect.n + 1, MIN_BLOCKS), MAX_BLOCKS + 1)
    first = bisect_left(totals, True, key=suffices)  # more blocks never show less
    return totals[first] - effect.n if first < len(totals) else None


@dataclass(frozen=True)
class Autocorrelation:
    """Autocorrelation of successive blocks.

    `r`: at lag 1; `p`: how often a random order of the same figures has as much; `inflation`: how many times larger the
    variance of the mean is than that of independent blocks, 1 where chance explains r.
    """

    r: float
    p: float
    inflation: float


@lru_cache(maxsize=64)
def _orders(n: int) -> npt.NDArray[np.intp]:
    """The same random orders of n blocks each time, shape (PERMUTATIONS, n)."""
    rng = np.random.default_rng(n)
    return np.stack([rng.permutation(n) for _ in range(PERMUTATIONS)])


def autocorrelation(rows: Sequence[Sequence[float]] | Floats) -> Autocorrelation | None:
    """The lag-1 autocorrelation of figures in the order of their blocks, pooled over several series of the same blocks,
    shape (series, n): one machine in one stretch of time. A one-sided permutation test orders all of them alike, so
    that series may depend on each other. None below ten blocks of few series, or forty figures of many.

    The inflation is (1 + ρ) / (1 − ρ) of a first-order process, with the bias of r in short series taken off (Marriott
    and Pope 1954), at most that of ρ = 0.9.
    """
    values = np.asarray(rows, dtype=float)
    centred = values - values.mean(axis=1, keepdims=True)
    centred = centred[np.ptp(values, axis=1) > 0]
    series, n = centred.shape
    if n < MIN_BLOCKS or series == 0 or (n < MIN_AUTOCORRELATED and series * n < MIN_FIGURES):
        return None
    products = centred / np.sqrt((centred**2).sum(axis=1, keepdims=True))
    products = products.T @ products / series  # of any two blocks, so that an order's r is a sum over its neighbours
    r, orders = float(np.trace(products, 1)), _orders(n)
    chance = products[orders[:, :-1], orders[:, 1:]].sum(axis=1)
    p = float((1 + (chance >= r - 1e-12).sum()) / (1 + PERMUTATIONS))
    rho = min(max((r + 1 / n) / (1 - 3 / n), 0.0), 0.9)
    return Autocorrelation(r, p, (1 + rho) / (1 - rho) if p < AUTOCORRELATION_LEVEL else 1.0)


@dataclass(frozen=True)
class Modes:
    """Figures that fall into two groups: the mean of each, and how many it has."""

    low: float
    high: float
    n_low: int
    n_high: int


def two_modes(values: Sequence[float] | Floats) -> Modes | None:
    """Two groups of two or more figures, when the gap between them is wider, in standard deviations within the groups,
    than normal noise has it once in a hundred times; None otherwise, and below six figures.
    """
    ordered = np.sort(np.asarray(values, dtype=float))
    if ordered.size < MIN_BLOCKS:
        return None
    gap, split = _widest_gap(ordered[None])
    if not gap[0] > _gap_limit(ordered.size):
        return None
    low, high = ordered[: split[0]], ordered[split[0] :]
    return Modes(float(low.mean()), float(high.mean()), low.size, high.size)


def _widest_gap(ordered: Floats) -> tuple[Floats, npt.NDArray[np.intp]]:
    """Widest gap in each row of sorted figures, shape (rows, n), and the number of figures below it.

    The gap leaves two figures or more on each side. It is in pooled standard deviations within the sides.
    """
    n = ordered.shape[1]
    below, above = np.cumsum(ordered, axis=1), np.cumsum(ordered[:, ::-1], axis=1)[:, ::-1]
    squares, squares_above = np.cumsum(ordered**2, axis=1), np.cumsum(ordered[:, ::-1] ** 2, axis=1)[:, ::-1]
    splits = np.arange(2, n - 1)
    squares_left = squares[:, splits - 1] - below[:, splits - 1] ** 2 / splits
    right = squares_above[:, splits] - above[:, splits] ** 2 / (n - splits)
    sd = np.sqrt(np.maximum(squares_left + right, 0) / (n - 2))
    gaps = ordered[:, splits] - ordered[:, splits - 1]
    with np.errstate(divide="ignore", invalid="ignore"):
        sizes = np.where(gaps > 0, gaps / sd, 0.0)
    widest = sizes.argmax(axis=1)
    return sizes[np.arange(len(sizes)), widest], splits[widest]


@lru_cache(maxsize=256)
def _gap_limit(n: int) -> float:
    """The widest gap that 99% of normal samples of n do not exceed, by 20,000 of them, the same each time."""
    samples = np.sort(np.random.default_rng(n).normal(size=(20_000, n)), axis=1)
    return float(np.quantile(_widest_gap(samples)[0], 1 - GAP_LEVEL))


def worst_case(effects: Sequence[float], lost_low: int, lost_high: int) -> Interval | None:
    """The exact signed-rank interval of these log ratios if pairs that lack a trial were the worst that there are:
    `lost_low` at minus infinity, `lost_high` at plus infinity. Ends may be infinite; None below six pairs.

    A bound in the manner of Horowitz and Manski (2000): whatever the lost trials would have been, a claim that this
    interval supports stands.
    """
    n = len(effects) + lost_low + lost_high
    k = _signed_rank_depth(n)
    if k == 0:
        return None
    finite = walsh_averages(np.asarray(effects, dtype=float)) if len(effects) else np.array([])
    # Averages with a lost pair; that of one lost low and one lost high is unknown, and counts against either end.
    below, above = (lost * (n - lost) + lost * (lost + 1) // 2 for lost in (lost_low, lost_high))
    low = finite[k - 1 - below] if below < k <= below + finite.size else -math.inf
    high = finite[finite.size + above - k] if above < k <= above + finite.size else math.inf
    return Interval(float(low), float(high))


def fisher(hits: tuple[int, int], trials: tuple[int, int]) -> float:
    """Fisher's exact p, two-sided, that two sides have a finding equally often; 1 where a side has no trial."""
    if min(trials) == 0:
        return 1.0
    table = [[hit, total - hit] for hit, total in zip(hits, trials, strict=True)]
    return float(stats.fisher_exact(table).pvalue)


def mcnemar(only_first: int, only_second: int) -> float:
    """The exact two-sided p of McNemar's test: pairs in which only the one side, or only the other, succeeded."""
    n = only_first + only_second
    return float(stats.binomtest(only_first, n).pvalue) if n else 1.0


def clopper_pearson(successes: int, trials: int) -> Interval:
    """The exact 95% interval of a share (Clopper and Pearson 1934); fractions, not logs."""
    interval = stats.binomtest(successes, trials).proportion_ci(CONFIDENCE, method="exact")
    return Interval(float(interval.low), float(interval.high))


def fewest_requests(percentile: float) -> int:
    """The fewest requests of which a percentile (a fraction) has a distribution-free 95% interval: ln 0.025 ÷ ln q;
    368 for p99, 3,688 for p99.9. Of fewer, even the slowest may well lie below the percentile.
    """
    return math.ceil(math.log(ALPHA / 2) / math.log(percentile))


def wilson(successes: int, trials: int) -> Interval:
    """Wilson's 95% interval of a share (Wilson 1927, without continuity correction); fractions, not logs."""
    interval = stats.binomtest(successes, trials).proportion_ci(CONFIDENCE, method="wilson")
    return Interval(float(interval.low), float(interval.high))


def trimmed_2009(values: Sequence[float] | Floats) -> float | None:
    """The estimator of the 2009 experiment: of the first six runs drop the best and the worst, average the
    other four. It has no interval. In the unit of the values; None when there are fewer than six.
    """
    return float(np.sort(np.asarray(values, dtype=float)[:6])[1:5].mean()) if len(values) >= 6 else None


@dataclass(frozen=True)
class Adjusted:
    """A p-value, as it is and after Holm; `step` is what Holm and the share of its look multiplied it by."""

    p: float
    holm: float
    step: float

    @property
    def holds(self) -> bool:
        """True when it survives the correction."""
        return self.holm < ALPHA


@dataclass(frozen=True)
class Tested:
    """One comparison within its family of `size`: how sure a difference is, and how sure equivalence."""

    size: int
    difference: Adjusted
    equivalence: Adjusted


def holm(
    p_values: Sequence[float | None],
    weights: Sequence[float] | None = None,
    shares: Sequence[float] | None = None,
) -> list[Adjusted | None]:
    """Holm's step-down adjustment (Holm 1979), weighted: each p times the weights that are left ÷ its own, in ascending
    order of p ÷ weight, never falling, at most 1. Without weights these are m, m − 1, …

    A missing p counts in the family, and is the last. `shares`: of the level that the look of each p may spend. A p ÷
    its share is the p of a comparison that is looked at several times, whenever it is stopped: over all looks it lies
    below α at most as often, because their shares add up to 1 or less.
    """
    weight_of = weights or [1.0] * len(p_values)
    spent = shares or [1.0] * len(p_values)
    adjusted: list[Adjusted | None] = [None] * len(p_values)
    weight_left, highest = math.fsum(weight_of), 0.0
    for _, p, index in sorted((p / weight_of[i] / spent[i], p, i) for i, p in enumerate(p_values) if p is not None):
        step = weight_left / weight_of[index] / spent[index]
        highest = max(highest, min(1.0, step * p))
        adjusted[index] = Adjusted(p, highest, step)
        weight_left -= weight_of[index]
    return adjusted


def judge_family(
    effects: Sequence[Paired | None],
    limit: float,
    weights: Sequence[float] | None = None,
    shares: Sequence[float] | None = None,
) -> list[Tested | None]:
    """Test the effects of one family against zero and against ±limit (log ratios); None stays None."""
    differences = holm([effect.p_difference if effect else None for effect in effects], weights, shares)
    equivalences = holm([effect.p_equivalence(limit) if effect else None for effect in effects], weights, shares)
    return [
        Tested(len(effects), difference, equivalence) if difference and equivalence else None
        for difference, equivalence in zip(differences, equivalences, strict=True)
    ]

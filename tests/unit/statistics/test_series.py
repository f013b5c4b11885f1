"""Autocorrelated blocks: estimates against the explicit covariance matrix, and p-values against simulation."""

import math

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from benchmarks import skewness as bench
from vmtoll.paths import PROJECT
from vmtoll.statistics.series import (
    INDEPENDENT,
    PRIOR,
    RHOS,
    Series,
    above,
    autocorrelation,
    below,
    critical_distance,
    fit,
    is_skewed,
    lower_limit,
    skewness_limit,
    skewness_limits,
    upper_limit,
)
from vmtoll.statistics.thresholds import SPREAD_FLOOR

Floats = npt.NDArray[np.float64]
# Hours of sleep gained by ten patients, the difference of two drugs (Cushny & Peebles 1905, R's `sleep`).
SLEEP = (-1.2, -2.4, -1.3, -1.3, 0.0, -1.0, -1.8, -0.8, -4.6, -1.4)


def in_a_row(values: Floats | tuple[float, ...]) -> Series:
    """A series of blocks without a gap."""
    return Series(tuple(range(1, len(values) + 1)), tuple(map(float, values)))


def only(rho: int) -> Floats:
    """All weight on one of RHOS."""
    return np.asarray(np.eye(len(RHOS))[rho])


def process(rng: np.random.Generator, shape: tuple[int, ...], phi: float) -> Floats:
    """First-order processes of variance 1 along the last axis."""
    values = rng.normal(size=shape)
    for block in range(1, shape[-1]):
        values[..., block] = phi * values[..., block - 1] + math.sqrt(1 - phi**2) * values[..., block]
    return np.asarray(values)


def test_fits_are_those_of_the_covariance_matrix() -> None:
    """Generalised least squares and REML, written out with V_ab = ρ^|a − b|, for blocks with gaps."""
    rng = np.random.default_rng(1)
    blocks = (1, 2, 5, 6, 9, 10, 11)
    values = rng.normal(0.3, 0.1, len(blocks))
    fits = fit([Series(blocks, tuple(values))])
    for index, rho in enumerate(RHOS):
        matrix = rho ** np.abs(np.subtract.outer(blocks, blocks)) if rho else np.eye(len(blocks))
        inverse, one = np.linalg.inv(matrix), np.ones(len(blocks))
        information = one @ inverse @ one
        mean = one @ inverse @ values / information
        squares = (values - mean) @ inverse @ (values - mean)
        likelihood = -(np.linalg.slogdet(matrix)[1] + math.log(information) + (len(blocks) - 1) * math.log(squares)) / 2
        expected = (mean, math.sqrt(squares / (len(blocks) - 1) / information), information, likelihood)
        ours = (fits.mean, fits.error, fits.information, fits.likelihood)
        assert [float(each[0, index]) for each in ours] == pytest.approx(expected, rel=1e-9)


def test_independent_blocks_give_the_published_t_test() -> None:
    """R: t.test(Pair(extra.1, extra.2) ~ 1) prints p-value = 0.002833 and −2.4598858 to −0.7001142."""
    fits = fit([in_a_row(SLEEP)])
    weights = INDEPENDENT[None]
    assert 2 * below(fits, weights)[0] == pytest.approx(0.002833, abs=5e-7)
    level = np.array([0.025])
    limits = lower_limit(fits, weights, level)[0], upper_limit(fits, weights, level)[0]
    assert limits == pytest.approx((-2.4598858, -0.7001142), abs=5e-8)


@pytest.mark.parametrize("rho", [0, 5, 8])
def test_at_a_known_correlation_p_is_exact_with_all_degrees_of_freedom(rho: int) -> None:
    """5% and 0.5% of 20,000 equal series of six blocks."""
    values = process(np.random.default_rng(rho), (20_000, 6), float(RHOS[rho]))
    p = below(fit([in_a_row(row) for row in values]), np.tile(only(rho), (len(values), 1)))
    for level in (0.05, 0.005):
        assert (p < level).mean() == pytest.approx(level, abs=3.5 * math.sqrt(level / len(values)))


def test_limits_invert_the_p_values() -> None:
    """Any weights, any level: p at the limit is the level, and the two directions mirror each other."""
    rng = np.random.default_rng(2)
    rows = [in_a_row(rng.normal(0.2, 0.3, n)) for n in (3, 6, 6, 20)]
    fits, weights = fit(rows), rng.dirichlet(np.ones(len(RHOS)), len(rows))
    level = np.array([0.025, 0.1, 1e-4, 0.01])
    low, high = lower_limit(fits, weights, level), upper_limit(fits, weights, level)
    assert above(fits, weights, low) == pytest.approx(level, rel=1e-6)
    assert below(fits, weights, high) == pytest.approx(level, rel=1e-6)
    mirrored = fit([Series(row.blocks, tuple(-value for value in row.values)) for row in rows])
    assert -lower_limit(mirrored, weights, level) == pytest.approx(high)
    assert above(mirrored, weights) == pytest.approx(below(fits, weights))


def test_a_limit_far_from_zero_is_found_where_rounding_is_coarser_than_its_precision() -> None:
    """Blocks of 1,000 that vary by 1e-12, a few units of their last place."""
    values = tuple(1000 + 1e-12 * block for block in range(6))
    fits, level = fit([in_a_row(values)], floor=0.0), np.array([0.025])
    low, high = lower_limit(fits, PRIOR, level)[0], upper_limit(fits, PRIOR, level)[0]
    assert low < 1000 < high and high - low < 1e-10


def test_blocks_without_spread_are_no_surer_than_the_floor() -> None:
    """Six blocks of 12.5% are a difference beyond doubt, six of 0.1% none."""
    fits = fit([in_a_row((0.125,) * 6), in_a_row((0.001,) * 6)])
    assert fits.error[:, 0] == pytest.approx(SPREAD_FLOOR / math.sqrt(6))
    p = above(fits, np.tile(INDEPENDENT, (2, 1)))
    assert p[0] < 1e-9 and p[1] > 0.1
    assert not fits.varies.any()


def test_few_blocks_say_nothing() -> None:
    fits = fit([in_a_row((0.1,)), Series((), ())])
    weights = np.tile(PRIOR, (2, 1))
    assert np.isinf(fits.error).all()
    assert above(fits, weights).tolist() == below(fits, weights).tolist() == [0.5, 0.5]
    level = np.array([0.025, 0.025])
    assert np.isneginf(lower_limit(fits, weights, level)).all() and np.isposinf(upper_limit(fits, weights, level)).all()


# ---- the autocorrelation of a page


def test_weights_are_prior_times_likelihood() -> None:
    """One series: its worth is 1, so that its likelihood counts whole."""
    row = in_a_row(np.random.default_rng(3).normal(0, 0.02, 12))
    likelihood = np.exp(fit([row]).likelihood[0])
    expected = PRIOR * likelihood / (PRIOR @ likelihood)
    assert autocorrelation([row]) == pytest.approx(expected, rel=1e-9)


def test_many_series_know_what_one_does_not() -> None:
    """Twenty series of eight blocks: on average within 0.15 of the truth; one alone hardly leaves its prior."""
    rng = np.random.default_rng(4)
    for phi in (0.0, 0.5, 0.8):
        pages = process(rng, (100, 20, 8), phi)
        seen = [float(autocorrelation([in_a_row(row) for row in page]) @ RHOS) for page in pages]
        assert np.mean(seen) == pytest.approx(phi, abs=0.15), phi
        alone = [float(autocorrelation([in_a_row(page[0])]) @ RHOS) for page in pages]
        assert np.std(alone) < 0.2 and 0.3 < np.mean(alone) < 0.7


def test_series_that_move_together_count_as_one() -> None:
    """Twenty copies say no more than the one, whatever small noise each has on top."""
    rng = np.random.default_rng(5)
    page = process(rng, (20, 8), 0.0)
    alike = [in_a_row(page[0] + 1e-6 * row) for row in page]
    assert autocorrelation(alike) == pytest.approx(autocorrelation([in_a_row(page[0])]), abs=2e-3)
    assert autocorrelation([in_a_row(row) for row in page])[0] > 2 * autocorrelation(alike)[0]


def test_quiet_series_count_as_much_as_noisy_ones() -> None:
    """Four series of 0.04% and four of 2%, independent: the likelihood takes their spread without the floor."""
    rng, seen = np.random.default_rng(6), []
    for _ in range(100):
        page = np.concatenate([0.0004 * rng.normal(size=(4, 8)), 0.02 * rng.normal(size=(4, 8))])
        seen.append(float(autocorrelation([in_a_row(row) for row in page]) @ RHOS))
    assert np.mean(seen) < 0.25


def test_series_that_say_nothing_leave_the_prior() -> None:
    constant, short = in_a_row((0.1,) * 6), in_a_row((0.1, 0.2))
    for page in ([], [constant], [short], [constant, short]):
        assert autocorrelation(page) == pytest.approx(PRIOR)
    row = in_a_row(np.random.default_rng(7).normal(size=10))
    assert autocorrelation([row, constant]) == pytest.approx(autocorrelation([row]))


def test_the_scale_of_a_series_is_no_evidence() -> None:
    rows = [in_a_row(row) for row in process(np.random.default_rng(8), (5, 9), 0.5)]
    scaled = [Series(r.blocks, tuple((i + 1) * v + i for v in r.values)) for i, r in enumerate(rows)]
    assert autocorrelation(scaled) == pytest.approx(autocorrelation(rows), rel=1e-6)


# ---- plans, shape


def test_a_difference_of_twice_the_critical_distance_is_found_as_often_as_planned() -> None:
    """critical_distance(level/2) + critical_distance(20%) is found in four of five experiments (Δ = 2 points)."""
    rng = np.random.default_rng(9)
    for n in (6, 10, 20):
        sd = np.full(len(RHOS), 0.05)
        weights = INDEPENDENT[None]
        true = critical_distance(sd, n - 1, weights, n, 0.025) + critical_distance(sd, n - 1, weights, n, 0.2)
        p = stats.ttest_1samp(rng.normal(true, 0.05, (20_000, n)), 0, axis=1).pvalue
        assert (p < 0.05).mean() == pytest.approx(0.8, abs=0.025)


def test_more_blocks_reach_less_far_and_correlated_ones_farther() -> None:
    sd, reaches = np.full(len(RHOS), 0.05), []
    for n in (3, 6, 12, 40):
        reaches.append([critical_distance(sd, n - 1, only(rho)[None], n, 0.025) for rho in (0, 3, 8)])
    assert (np.diff(reaches, axis=0) < 0).all() and (np.diff(reaches, axis=1) > 0).all()


def test_one_in_a_hundred_normal_samples_looks_skewed() -> None:
    rng = np.random.default_rng(10)
    for n in (6, 10, 40):
        share = np.mean([is_skewed(in_a_row(row)) for row in rng.normal(0, 0.02, (2000, n))])
        assert share == pytest.approx(0.01, abs=3.5 * math.sqrt(0.01 / 2000))
    assert is_skewed(in_a_row((0.0,) * 9 + (-0.35,)))
    for few in ((0.0, 1.0), (0.1,) * 6):
        assert not is_skewed(in_a_row(few))


def test_the_limit_of_skewness_is_the_quantile_of_other_samples() -> None:
    for n in (6, 25, 100):
        samples = np.random.default_rng(n + 1).normal(size=(100_000, n))
        simulated = np.quantile(np.abs(stats.skew(samples, axis=1)), 0.99)
        assert skewness_limit(n) == pytest.approx(simulated, rel=0.02)


def test_the_page_has_the_table_of_limits() -> None:
    assert bench.table(skewness_limits()) in (PROJECT / "docs" / "statistics.md").read_text(encoding="utf-8")
    assert list(skewness_limits()) == list(bench.BLOCKS)
    assert bench.limit(6, bench.AT_ONCE) == pytest.approx(skewness_limit(6), rel=0.03)

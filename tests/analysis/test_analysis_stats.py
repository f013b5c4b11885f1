"""Every estimator against an independent computation or a published value, and by its coverage."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from analysis.stats import (
    Interval,
    blocks_needed,
    half_width,
    hodges_lehmann,
    noise_floor,
    paired,
    signed_rank_cdf,
    signed_rank_interval,
)

# Hollander & Wolfe, Nonparametric Statistical Methods, table 3.1: Hamilton depression scale factor IV
# before (x) and after (y) tranquilizer; published: estimate −0.46, 96.1% interval (−0.786, −0.010).
BEFORE = np.array([1.83, 0.50, 1.62, 2.48, 1.68, 1.88, 1.55, 3.06, 1.30])
AFTER = np.array([0.878, 0.647, 0.598, 2.05, 1.06, 1.29, 1.06, 3.14, 1.29])


def test_paired_t_is_scipys() -> None:
    rng = np.random.default_rng(3)
    metal, kvm = rng.lognormal(9, 0.1, 10), rng.lognormal(8.9, 0.1, 10)
    ours = paired(np.log(kvm / metal))
    theirs = stats.ttest_rel(np.log(kvm), np.log(metal)).confidence_interval(0.95)
    assert ours.t is not None
    assert (ours.t.low, ours.t.high) == pytest.approx((theirs.low, theirs.high), rel=1e-12)


def test_signed_rank_is_the_published_one() -> None:
    interval = signed_rank_interval(AFTER - BEFORE)
    assert interval is not None
    assert hodges_lehmann(AFTER - BEFORE) == pytest.approx(-0.46, abs=5e-4)
    assert (interval.low, interval.high) == pytest.approx((-0.786, -0.010), abs=5e-4)


@pytest.mark.parametrize("n", [3, 6, 11])
def test_null_distribution_is_scipys(n: int) -> None:
    """scipy's exact p-value at every attainable statistic."""
    cdf = signed_rank_cdf(n)
    assert cdf[-1] == pytest.approx(1)
    for top in range(n + 1):  # the ranks 1 … top are negative: W+ misses their sum
        x = np.arange(1, n + 1) * np.where(np.arange(1, n + 1) <= top, -1.0, 1.0)
        w_plus = int(x[x > 0].sum())
        assert cdf[w_plus] == pytest.approx(stats.wilcoxon(x, alternative="less", method="exact").pvalue)


@pytest.mark.parametrize("n", [6, 9, 14])
def test_signed_rank_interval_inverts_scipys_test(n: int) -> None:
    """Just inside either end the exact test does not reject at 5%, just outside it does."""
    values = np.random.default_rng(n).normal(0.1, 1, n)
    interval = signed_rank_interval(values)
    assert interval is not None
    for end, outward in ((interval.low, -1e-9), (interval.high, 1e-9)):
        assert stats.wilcoxon(values - (end + outward), method="exact").pvalue <= 0.05
        assert stats.wilcoxon(values - (end - outward), method="exact").pvalue > 0.05


def test_no_signed_rank_interval_below_six_blocks() -> None:
    assert signed_rank_interval(np.arange(5.0)) is None
    assert signed_rank_interval(np.arange(6.0)) == Interval(0.0, 5.0)


def test_one_block_has_no_interval_and_none_is_an_error() -> None:
    assert paired([0.1]).t is None
    for bad in ([], [math.nan], [math.inf]):
        with pytest.raises(ValueError, match="finite log ratios"):
            paired(bad)


def test_disagreement_is_seen() -> None:
    """One wild block widens the t interval over zero, not the signed-rank interval."""
    wild = paired([0.010, 0.011, 0.012, 0.013, 0.014, 0.015, 0.016, 0.300])
    assert wild.t is not None and not wild.t.excludes_zero
    assert wild.signed_rank is not None and wild.signed_rank.excludes_zero
    assert wild.disagree
    assert not paired([0.010, 0.011, 0.012, 0.013, 0.014, 0.015]).disagree


def test_noise_floor_is_the_farther_end() -> None:
    same = paired([-0.01, 0.02, 0.00, 0.01, -0.02, 0.03])
    assert same.t is not None
    assert noise_floor(same) == max(-same.t.low, same.t.high)
    assert noise_floor(None) is None
    assert noise_floor(paired([0.1])) is None


def test_blocks_needed_is_the_first_count_that_decides() -> None:
    more = blocks_needed(mean=0.03, sd=0.05, n=6, margin=0.0198)
    assert more is not None
    assert half_width(0.05, 6 + more) < 0.03 <= half_width(0.05, 6 + more - 1)
    assert blocks_needed(mean=0.0, sd=0.01, n=2, margin=0.0198) == 4  # six at least
    off = paired([0.05, 0.06, 0.05, 0.06, 0.05, 0.06])  # an A/A arm that never meets itself
    assert blocks_needed(mean=0.01, sd=0.01, n=6, margin=0.0198, same=off) is None


@pytest.mark.parametrize("n", [6, 10, 20])
def test_coverage(n: int) -> None:
    """Nominal 95% under block drift: t within 1.5 points; signed-rank at its exact level, never below 95%."""
    rng = np.random.default_rng(n)
    runs, truth = 4000, -0.1
    drift = rng.normal(0, 0.2, (runs, n))
    logs = (drift + truth + rng.normal(0, 0.02, (runs, n))) - (drift + rng.normal(0, 0.02, (runs, n)))
    results = [paired(row) for row in logs]
    t = np.mean([r.t is not None and r.t.low <= truth <= r.t.high for r in results])
    rank = np.mean([r.signed_rank is not None and r.signed_rank.low <= truth <= r.signed_rank.high for r in results])
    exact = 1 - 2 * max(p for p in signed_rank_cdf(n) if p <= 0.025)
    assert abs(t - 0.95) <= 0.015
    assert abs(rank - exact) <= 0.015

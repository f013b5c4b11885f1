"""Every estimator against an independent computation or a published value. Coverage: test_coverage.py."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.power import TTestPower
from statsmodels.stats.proportion import proportion_confint
from statsmodels.stats.weightstats import ttost_paired

from vmtoll.analysis.statistics import (
    Interval,
    Paired,
    autocorrelation,
    blocks_needed,
    clopper_pearson,
    detectable,
    fewest_requests,
    fisher,
    hodges_lehmann,
    holm,
    mcnemar,
    noise_floor,
    paired,
    signed_rank_cdf,
    signed_rank_interval,
    signed_rank_level,
    trimmed_2009,
    two_modes,
    wilson,
    worst_case,
)

# Hollander & Wolfe, Nonparametric Statistical Methods, table 3.1: Hamilton depression scale factor IV
# before (x) and after (y) tranquilizer; published: estimate −0.46, 96.1% interval (−0.786, −0.010).
BEFORE = np.array([1.83, 0.50, 1.62, 2.48, 1.68, 1.88, 1.55, 3.06, 1.30])
AFTER = np.array([0.878, 0.647, 0.598, 2.05, 1.06, 1.29, 1.06, 3.14, 1.29])

# Student's sleep data (Cushny & Peebles 1905), as in R's `sleep`: hours gained by ten patients under two drugs.
DRUG_1 = np.array([0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0])
DRUG_2 = np.array([1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4])


def test_paired_t_is_scipys() -> None:
    rng = np.random.default_rng(3)
    metal, kvm = rng.lognormal(9, 0.1, 10), rng.lognormal(8.9, 0.1, 10)
    ours = paired(np.log(kvm / metal))
    theirs = stats.ttest_rel(np.log(kvm), np.log(metal)).confidence_interval(0.95)
    assert ours.t is not None
    assert (ours.t.low, ours.t.high) == pytest.approx((theirs.low, theirs.high), rel=1e-12)
    assert ours.p_difference == pytest.approx(stats.ttest_rel(np.log(kvm), np.log(metal)).pvalue, rel=1e-12)


def test_paired_t_is_the_published_one() -> None:
    """R: t.test(Pair(extra.1, extra.2) ~ 1) prints 95% interval −2.4598858 to −0.7001142, p-value = 0.002833."""
    ours = paired(DRUG_1 - DRUG_2)
    assert ours.t is not None
    assert (ours.mean, ours.t.low, ours.t.high) == pytest.approx((-1.58, -2.4598858, -0.7001142), abs=5e-8)
    assert ours.p_difference == pytest.approx(0.002833, abs=5e-7)


@pytest.mark.parametrize("shift", [0.0, 0.005, 0.017, 0.0198, 0.05])
def test_equivalence_is_statsmodels_tost(shift: float) -> None:
    """Twice the p-value of the two one-sided tests; below 5% exactly when the 95% interval lies in the band."""
    limit = math.log1p(0.02)
    logs = shift + np.random.default_rng(5).normal(0, 0.004, 10)
    ours = paired(logs)
    theirs, *_ = ttost_paired(logs, np.zeros(10), -limit, limit)
    assert ours.p_equivalence(limit) == pytest.approx(min(1.0, 2 * theirs), rel=1e-9)
    assert ours.t is not None
    within = -limit < ours.t.low and ours.t.high < limit
    assert within == (shift < 0.017)
    assert (ours.p_equivalence(limit) or 0.0) < 0.05 if within else (ours.p_equivalence(limit) or 0.0) >= 0.05


def test_blocks_without_spread_are_certain() -> None:
    """Six equal blocks: a difference, or equivalence, beyond doubt; and of zero no difference."""
    apart, same = paired([0.125] * 6), paired([0.0] * 6)
    assert (apart.p_difference, apart.p_equivalence(0.02)) == (0.0, 1.0)
    assert (same.p_difference, same.p_equivalence(0.02)) == (1.0, 0.0)
    assert paired([0.1]).p_difference is None
    assert paired([0.1]).p_equivalence(0.02) is None


def test_signed_rank_is_the_published_one() -> None:
    interval = signed_rank_interval(AFTER - BEFORE)
    assert interval is not None
    assert hodges_lehmann(AFTER - BEFORE) == pytest.approx(-0.46, abs=5e-4)
    assert (interval.low, interval.high) == pytest.approx((-0.786, -0.010), abs=5e-4)


def test_signed_rank_test_is_rs() -> None:
    """R: wilcox.test(x, y, paired = TRUE, alternative = "greater") on these data prints V = 40, p-value = 0.01953."""
    assert signed_rank_cdf(9)[45 - 40] == pytest.approx(0.01953, abs=5e-6)


# Critical values of W for a two-sided 5%, from the printed tables (Hollander & Wolfe, table A.4).
@pytest.mark.parametrize(
    ("n", "critical"), [(6, 0), (7, 2), (8, 3), (9, 5), (10, 8), (12, 13), (15, 25), (20, 52), (25, 89), (30, 137)]
)
def test_depth_is_the_printed_tables(n: int, critical: int) -> None:
    cdf = signed_rank_cdf(n)
    assert cdf[critical] <= 0.025 < cdf[critical + 1]
    assert signed_rank_level(n) == 1 - 2 * cdf[critical]


def test_attained_levels() -> None:
    """Exact fractions: 2 of 64 arrangements lie outside at n = 6, 50 of 1,024 at n = 10."""
    assert signed_rank_level(5) is None
    assert signed_rank_level(6) == pytest.approx(1 - 2 / 64)
    assert signed_rank_level(10) == pytest.approx(1 - 50 / 1024)
    assert signed_rank_level(20) == pytest.approx(0.952, abs=5e-4)


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


def _effect(mean: float, sd: float, n: int) -> Paired:
    return Paired(n=n, mean=mean, sd=sd, t=None, median=mean, signed_rank=None)


def test_blocks_needed_are_those_of_the_power_of_the_t_test() -> None:
    """statsmodels' power of a paired t test at the planned count, and one below, for the spread's upper 80% limit.

    Their power is by the noncentral t; the sum of two quantiles comes within a point of it.
    """
    for sd, smallest in ((0.03, 0.0198), (0.05, 0.0198), (0.05, 0.05), (0.1, 0.0198)):
        more = blocks_needed(_effect(0.5, sd, 10), smallest)
        assert more is not None
        upper = sd * math.sqrt(9 / stats.chi2.ppf(0.2, 9))
        power = [TTestPower().power(smallest / upper, 10 + n, 0.05) for n in (more, more - 1)]
        assert power[0] > 0.79
        assert power[1] < 0.81 or more == 1


def test_detectable_differences_are_detected_in_four_of_five_experiments() -> None:
    rng = np.random.default_rng(4)
    for n in (6, 10, 20):
        true = detectable(_effect(0.0, 0.05, n))
        assert true is not None
        p = stats.ttest_1samp(rng.normal(true, 0.05, (20_000, n)), 0, axis=1).pvalue
        assert (p < 0.05).mean() == pytest.approx(0.8, abs=0.02)
    assert detectable(paired([0.1])) is None


def test_the_mean_of_the_blocks_does_not_change_how_many_more_are_needed() -> None:
    counts = {blocks_needed(_effect(mean, 0.05, 6), 0.0198) for mean in (0.0, 0.01, 0.03, 0.3)}
    assert len(counts) == 1 and None not in counts
    assert blocks_needed(_effect(0.0, 0.01, 2), 0.5) == 4  # six at least
    assert blocks_needed(_effect(0.0, 5.0, 6), 0.0198) is None
    assert blocks_needed(paired([0.1]), 0.0198) == 5


def test_blocks_needed_within_a_family_asks_for_more() -> None:
    alone, among_four = (blocks_needed(_effect(0.0, 0.05, 6), 0.0198, a) for a in (0.05, 0.05 / 4))
    assert alone is not None and among_four is not None and among_four > alone


def test_weighted_holm_by_hand() -> None:
    """Weights 1/2, 1/4, 1/4, and p ÷ weight 0.02, 0.032, 0.16: times 1 ÷ 1/2, then 1/2 ÷ 1/4, then 1."""
    adjusted = [one for one in holm([0.01, 0.008, 0.04], [0.5, 0.25, 0.25]) if one]
    assert [one.step for one in adjusted] == [2, 2, 1]
    assert [one.holm for one in adjusted] == pytest.approx([0.02, 0.02, 0.04])
    assert holm([0.01, 0.04, 0.03, 0.005], [0.25] * 4) == holm([0.01, 0.04, 0.03, 0.005])


def test_holm_is_statsmodels() -> None:
    p_values = [0.004, 0.011, 0.2, 0.039, 0.0001, 1.0, 0.011]
    _, theirs, *_ = multipletests(p_values, method="holm")
    assert [one.holm for one in holm(p_values) if one] == pytest.approx(theirs.tolist(), rel=1e-12)


def test_holm_by_hand() -> None:
    """Ascending 0.005, 0.01, 0.03, 0.04 times 4, 3, 2, 1; the last may not fall below the third."""
    adjusted = [one for one in holm([0.01, 0.04, 0.03, 0.005]) if one]
    assert [one.holm for one in adjusted] == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert [one.step for one in adjusted] == [3, 1, 2, 4]
    assert [one.holds for one in adjusted] == [True, False, False, True]


def test_a_missing_comparison_makes_the_others_no_easier() -> None:
    adjusted = holm([0.02, None, 0.03])
    assert adjusted[1] is None
    assert [one.holm for one in adjusted if one] == pytest.approx([0.06, 0.06])
    assert holm([]) == []


# Newcombe, Statistics in Medicine 17 (1998), 857–872, table I, method 3.
@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_wilson_is_the_published_one_and_statsmodels(successes: int, trials: int, low: float, high: float) -> None:
    ours = wilson(successes, trials)
    assert (ours.low, ours.high) == pytest.approx((low, high), abs=5e-5)
    assert (ours.low, ours.high) == pytest.approx(proportion_confint(successes, trials, method="wilson"), abs=1e-12)


def test_wilson_at_a_million_requests_without_failure() -> None:
    """The upper bound of the failure rate is z²/(n + z²), about 3.84 in a million."""
    ours = wilson(1_000_000, 1_000_000)
    assert ours.high == 1.0
    assert 1 - ours.low == pytest.approx(3.8415e-6, rel=1e-4)


def test_the_estimator_of_2009() -> None:
    runs = [812.0, 790.0, 805.0, 640.0, 808.0, 801.0]
    assert trimmed_2009(runs) == pytest.approx((790 + 805 + 808 + 801) / 4)
    assert trimmed_2009(runs) == pytest.approx(stats.trim_mean(runs, 1 / 6))
    assert trimmed_2009([*runs, 1e9]) == trimmed_2009(runs)  # six runs, no more
    assert trimmed_2009(runs[:5]) is None


def test_exact_shares_are_statsmodels_and_the_published_one() -> None:
    """Newcombe 1998, table I, method 5: 15 of 148."""
    ours = clopper_pearson(15, 148)
    assert (ours.low, ours.high) == pytest.approx((0.0578, 0.1617), abs=5e-5)
    assert (ours.low, ours.high) == pytest.approx(proportion_confint(15, 148, method="beta"), abs=1e-12)


def test_fisher_and_mcnemar_by_hand() -> None:
    """Fisher's tea: 8 cups, all guessed, p = 1/70 one-sided. McNemar: five of five, 2 × 1/32."""
    assert fisher((4, 0), (4, 4)) == pytest.approx(2 / 70)
    assert fisher((0, 0), (0, 4)) == 1.0
    assert mcnemar(5, 0) == pytest.approx(2 / 32)
    assert mcnemar(0, 0) == 1.0


def test_the_fewest_requests_of_a_percentile() -> None:
    """0.99^368 < 2.5% ≤ 0.99^367, and the same of p99.9."""
    for percentile, fewest in ((0.99, 368), (0.999, 3688)):
        assert fewest_requests(percentile) == fewest
        assert percentile**fewest < 0.025 <= percentile ** (fewest - 1)


def test_lost_pairs_count_as_the_worst() -> None:
    """As the signed-rank interval of the same figures with enormous ones in their place; infinite where these reach."""
    logs = np.random.default_rng(2).normal(0, 0.01, 24)
    for low, high in ((0, 0), (1, 0), (0, 2), (1, 1), (3, 0)):
        ours = worst_case(logs.tolist(), low, high)
        stand_in = np.concatenate([logs, [-1e9] * low, [1e12] * high])
        reference = signed_rank_interval(stand_in)
        assert ours is not None and reference is not None
        if low and high:  # the average of the two counts against either end
            assert ours.low <= reference.low and ours.high >= reference.high
        else:
            assert ours.low == (reference.low if reference.low > -1e8 else -math.inf)
            assert ours.high == (reference.high if reference.high < 1e8 else math.inf)
    assert worst_case([0.001] * 6, 4, 0) == Interval(-math.inf, 0.001)
    assert worst_case([0.001] * 3, 0, 0) is None


def test_autocorrelation_is_seen_and_its_test_keeps_its_level() -> None:
    """Independent blocks look autocorrelated in a tenth of experiments, whatever their distribution."""
    rng = np.random.default_rng(6)
    for sample in (rng.normal(size=(1000, 12)), rng.standard_t(3, (1000, 12)), rng.lognormal(0, 1, (1000, 12))):
        alarms = np.mean([(found := autocorrelation([row])) is not None and found.p < 0.1 for row in sample])
        assert alarms == pytest.approx(0.1, abs=3 * math.sqrt(0.09 / 1000))
    series = rng.normal(size=(300, 40))
    for column in range(1, 40):
        series[:, column] += 0.8 * series[:, column - 1]
    seen = [found for row in series if (found := autocorrelation([row]))]
    assert np.mean([found.p < 0.1 for found in seen]) > 0.9
    assert np.median([found.inflation for found in seen]) == pytest.approx(1.8 / 0.2, rel=0.35)
    assert autocorrelation([np.arange(9.0)]) is None and autocorrelation([np.ones(12)]) is None


def test_many_series_show_an_autocorrelation_that_one_does_not() -> None:
    """Eight blocks of twenty comparisons, φ = 0.5; and dependent series raise no more alarms than independent ones."""
    rng = np.random.default_rng(8)
    pages = rng.normal(size=(200, 20, 8))
    alike = [np.repeat(page[:1], 20, axis=0) + 0.01 * page for page in pages]
    assert np.mean([found.p < 0.1 for page in alike if (found := autocorrelation(page))]) < 0.17
    for column in range(1, 8):
        pages[:, :, column] += 0.5 * pages[:, :, column - 1]
    assert np.mean([found.p < 0.1 for page in pages if (found := autocorrelation(page))]) > 0.95
    assert autocorrelation(pages[0, :4]) is None, "32 figures"


def test_two_modes_are_found_and_normal_noise_has_none() -> None:
    rng = np.random.default_rng(7)
    for n in (6, 10, 20):
        rows = rng.normal(0, 0.01, (2000, n))
        assert np.mean([two_modes(row) is not None for row in rows]) <= 0.01 + 3 * math.sqrt(0.01 / 2000)
    modes = two_modes([0.01, 0.0, -0.35, 0.005, -0.36, 0.01, 0.0, 0.01, -0.01, 0.0])
    assert modes is not None and (modes.n_low, modes.n_high) == (2, 8)
    assert (modes.low, modes.high) == pytest.approx((-0.355, 0.003125))
    assert two_modes([0.0, 0.0, 0.0, 0.0, 0.0, 1.0]) is None, "one outlier is no mode"
    assert two_modes([0.1] * 6) is None
    assert two_modes([0.0, 0.0, 0.0, 0.3, 0.3, 0.3]) is not None, "two values, exactly"

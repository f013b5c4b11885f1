"""Pages of comparisons whose advantages are given: what is decided, by which rule, and what the page then prints."""

import math
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats
from statsmodels.stats.power import TTestPower

from tests.support.evidence import bounds, evidence
from vmtoll.analysis.judge import Evidence, Family, control_differences, in_ratio, region, weights_of
from vmtoll.analysis.pairs import Bounds
from vmtoll.model.metric import CPU, HOST_CPU, LATENCY_P99, METRICS, TAIL, THROUGHPUT
from vmtoll.model.verdict import DIFFERENT, Estimate, Judged, Kind, Region, VerdictReason
from vmtoll.statistics.series import INDEPENDENT, PRIOR, RHOS
from vmtoll.statistics.student import Interval

pytestmark = pytest.mark.slow

Floats = npt.NDArray[np.float64]
MARGIN = 0.02


def judged(*page: Evidence, margin: float | None = MARGIN, correlation: Floats | None = INDEPENDENT) -> list[Judged]:
    return Family(page, margin, correlation=correlation).judge()


def alone(one: Evidence, margin: float | None = MARGIN, correlation: Floats | None = INDEPENDENT) -> Judged:
    return judged(one, margin=margin, correlation=correlation)[0]


def noise(seed: int, n: int, sd: float = 0.004) -> Floats:
    """Blocks of exactly this mean, zero, and standard deviation."""
    values = np.random.default_rng(seed).normal(size=n)
    return np.asarray(sd * (values - values.mean()) / values.std(ddof=1))


def logs_of(estimate: Estimate | None, sign: int = 1) -> Interval | None:
    """The interval as advantages in logs; `sign`: −1 where less is better."""
    if estimate is None or estimate.low is None or estimate.high is None:
        return None
    return Interval(*sorted(sign * math.log(end) for end in (estimate.low, estimate.high)))


def contradicts(judgement: Judged, margin: float | None = MARGIN, sign: int = 1) -> bool:
    """Whether the interval says something else than the kind."""
    interval, limit = logs_of(judgement.estimate, sign), math.log1p(margin or 0.0)
    if interval is None:
        return judgement.kind in DIFFERENT and not judgement.by_every_block
    contains = interval.low <= 0 <= interval.high
    within = -limit < interval.low and interval.high < limit
    return {
        Kind.FASTER: interval.low <= 0, Kind.SLOWER: interval.high >= 0, Kind.EQUIVALENT: not within,
        Kind.UNDECIDED: not contains, Kind.NOT_JUDGED: True,
    }[judgement.kind]  # fmt: skip


# ---- the three kinds of decision


def test_independent_blocks_are_judged_by_students_t() -> None:
    logs = noise(1, 8) + 0.05
    found = alone(evidence(logs))
    interval = logs_of(found.estimate)
    assert found.estimate is not None and interval is not None
    assert found.tests.difference == pytest.approx(stats.ttest_1samp(logs, 0).pvalue)
    low, high = stats.t.interval(0.95, 7, logs.mean(), stats.sem(logs))
    assert (interval.low, interval.high) == pytest.approx((low, high))
    assert found.kind is Kind.FASTER
    assert (math.log(found.estimate.value), found.confidence) == pytest.approx((0.05, 0.95))
    assert alone(evidence(-logs)).kind is Kind.SLOWER


def test_equivalence_is_both_limits_within_the_margin() -> None:
    inside, outside = (alone(evidence(noise(2, 8) + shift)) for shift in (0.01, 0.019))
    assert (inside.kind, outside.kind) == (Kind.EQUIVALENT, Kind.FASTER)
    assert inside.also_different, "1% faster for sure, and within the margin of 2%"
    assert not alone(evidence(noise(2, 8))).also_different
    assert alone(evidence(noise(2, 8) + 0.01), margin=None).kind is Kind.FASTER
    assert alone(evidence(noise(2, 8)), margin=None).tests.equivalence is None


def test_findings_are_judged_at_their_worst() -> None:
    """10% faster; the sets reach down to 5%, then across zero."""
    logs = noise(3, 6) + 0.1
    some, many = alone(evidence(logs, low=0.05)), alone(evidence(logs, low=0.11, high=0.3))
    sure, wide = logs_of(some.estimate), logs_of(many.estimate)
    assert some.kind is Kind.FASTER and sure is not None
    low, _ = stats.t.interval(0.95, 5, logs.mean() - 0.05, stats.sem(logs))
    _, high = stats.t.interval(0.95, 5, logs.mean(), stats.sem(logs))
    assert (sure.low, sure.high) == pytest.approx((low, high))
    assert (many.kind, many.because) == (Kind.UNDECIDED, VerdictReason.FINDINGS)
    assert wide is not None and wide.low < 0 and wide.high > 0.4
    equal = alone(evidence(noise(3, 8), low=0.03, high=0.03))
    assert (equal.kind, equal.because) == (Kind.UNDECIDED, VerdictReason.FINDINGS), "equal as measured"


def test_few_blocks() -> None:
    """Three for a difference, six for equality, in the series that decides."""
    assert [alone(evidence(noise(4, n) + 0.2)).kind for n in (2, 3)] == [Kind.UNDECIDED, Kind.FASTER]
    assert [alone(evidence(noise(4, n, 0.001))).kind for n in (5, 6)] == [Kind.UNDECIDED, Kind.EQUIVALENT]
    two = alone(evidence(noise(4, 2) + 0.2))
    assert (two.because, logs_of(two.estimate)) == (VerdictReason.FEW_BLOCKS, None)
    least, most = np.exp(sorted(noise(4, 2) + 0.2))
    assert two.blocks_range and (two.blocks_range.low, two.blocks_range.high) == pytest.approx((least, most))
    assert two.blocks_needed is not None and two.blocks_needed >= 4, "six in all show equality as well"
    assert alone(evidence([0.2])).because is VerdictReason.FEW_BLOCKS


def test_a_lost_trial_counts_in_the_series_that_it_counts_against() -> None:
    """The guest is ten times as fast and lost four of six trials, each twice as bad as its worst; metal lost none.

    The lows have six blocks and decide; of the highs two are left, which bound nothing.
    """
    lows = dict(enumerate(noise(5, 6) + 2.3, start=1)) | dict.fromkeys((1, 2, 3, 4), 1.6)
    mids = {block: lows[block] for block in (5, 6)}
    found = alone(evidence(mids, lows, mids))
    interval = logs_of(found.estimate)
    assert found.kind is Kind.FASTER and interval is not None
    assert interval.low > 0 and math.isfinite(interval.high)
    assert (found.open_low, found.open_high) == (False, True)
    lost = alone(evidence({6: 2.3}, lows, {6: 2.3}))
    interval = logs_of(lost.estimate)
    assert lost.kind is Kind.FASTER and interval is not None and math.isfinite(interval.high)


# ---- Holm, and one interval


def test_half_of_the_errors_are_kept_for_what_a_loop_is_measured_for() -> None:
    assert weights_of([THROUGHPUT, CPU, HOST_CPU, LATENCY_P99, TAIL]) == pytest.approx(
        [1 / 4, 1 / 6, 1 / 6, 1 / 6, 1 / 4]
    )
    assert weights_of([CPU, HOST_CPU]) == weights_of([THROUGHPUT, THROUGHPUT]) == [0.5, 0.5]
    assert weights_of([]) == []


def test_what_cannot_be_tested_has_no_part_in_the_family() -> None:
    """Of four comparisons two have no such figure: the two others share the 5%."""
    logs = noise(6, 6) + 0.011
    page = [evidence(logs), evidence(logs[::-1]), *(
        evidence({}, metric=LATENCY_P99, excluded=because)
        for because in (VerdictReason.NOT_MEASURED, VerdictReason.NO_FIGURE)
    )]  # fmt: skip
    found = judged(*page, margin=None)
    assert [each.kind for each in found[2:]] == [Kind.NOT_JUDGED] * 2
    assert [each.because for each in found[2:]] == [VerdictReason.NOT_MEASURED, VerdictReason.NO_FIGURE]
    assert found[:2] == judged(*page[:2], margin=None)
    tests = found[0].tests
    assert tests.difference is not None and tests.difference_holm == pytest.approx(2 * tests.difference)


def test_an_interval_that_is_not_rejected_has_the_level_at_which_holm_stopped() -> None:
    """p of 0.03 and 0.04: both undecided, and the interval of neither excludes zero."""
    page = []
    for seed, p in ((1, 0.03), (2, 0.04)):
        scale = stats.t.ppf(1 - p / 2, 5) / math.sqrt(6)
        page.append(evidence(noise(seed, 6, 0.01) + 0.01 * scale))
    found = judged(*page, margin=None)
    assert [each.tests.difference for each in found] == pytest.approx([0.03, 0.04])
    for each in found:
        assert each.kind is Kind.UNDECIDED and each.confidence == pytest.approx(0.975)
        assert not contradicts(each, None)


def _random_page(rng: np.random.Generator) -> list[Evidence]:
    page = []
    for _ in range(int(rng.integers(1, 7))):
        n, sd = int(rng.choice([1, 2, 3, 4, 5, 6, 7, 10, 16])), float(10 ** rng.uniform(-4, 0))
        blocks = np.sort(rng.choice(np.arange(1, n + 4), n, replace=False)).tolist()
        shift = float(rng.choice([0.0, 0.01, 0.05, 0.5, 3.0]) * rng.choice([-1, 1]))
        mids = dict(zip(blocks, (shift + rng.normal(0, sd, n)).tolist(), strict=True))
        lows = {b: v - float(rng.exponential(rng.choice([0.0, 0.01, 0.5]))) for b, v in mids.items()}
        highs = {b: v + float(rng.exponential(rng.choice([0.0, 0.01, 0.5]))) for b, v in mids.items()}
        for block in rng.choice(blocks, rng.integers(0, min(n, 3)), replace=False).tolist():
            for series in rng.permutation(3)[:2]:
                (lows, mids, highs)[series].pop(block, None)
        if not mids:
            continue
        skewed = rng.random() < 0.3
        first = {b: v + float(rng.normal(0, 2 * sd)) for b, v in mids.items()}
        page.append(evidence(
            mids, lows, highs, metric=list(METRICS.values())[int(rng.integers(5))],
            boots={b: 1 + b // 5 for b in range(30)} if rng.random() < 0.2 else {},
            first_replicates=bounds(first) if skewed else None,
            noise=float(rng.choice([0.0, 0.1, 2.0])) if rng.random() < 0.7 else None,
            share=float(rng.choice([1.0, 0.2, 0.0])),
        ))  # fmt: skip
    return page


@pytest.mark.parametrize("margin", [None, 0.02, 0.5])
def test_no_interval_contradicts_its_verdict(margin: float | None) -> None:
    """Any page: few blocks, boots, lost trials, sets, replicates, looks."""
    rng, kinds = np.random.default_rng(7), set()
    for _ in range(100):
        page = _random_page(rng)
        for each, found in zip(page, Family(page, margin).judge(), strict=True):
            assert not contradicts(found, margin, 1 if each.metric.higher_is_better else -1), found
            ends = [logs_of(found.estimate), logs_of(found.blocks_range)]
            assert all(math.isfinite(end) for each in ends if each for end in (each.low, each.high)), found
            kinds.add(found.kind)
    assert kinds >= {Kind.FASTER, Kind.SLOWER, Kind.UNDECIDED}


# ---- skewed blocks, boots


def test_skewed_means_of_two_replicates_need_the_first_as_well() -> None:
    """One slow trial in ten blocks, on metal's second replicate: its mean makes the guest look faster."""
    logs = noise(8, 10, 0.002) + 0.004
    skewed = logs + np.where(np.arange(10) == 3, 0.15, 0.0)
    plain = evidence(skewed - skewed.mean() + 0.06)
    replicates = replace(plain, first_replicates=bounds(logs - 0.004))
    assert not contradicts(alone(replicates))
    one, both = alone(plain, None), alone(replicates, None)
    assert one.kind is Kind.FASTER and both.kind is Kind.UNDECIDED
    inner, outer = logs_of(one.estimate), logs_of(both.estimate)
    assert inner is not None and outer is not None and one.tests.difference and both.tests.difference
    assert both.tests.difference > one.tests.difference
    assert outer.low < 0 < inner.low <= inner.high <= outer.high
    even = evidence(noise(8, 10) + 0.06, first_replicates=bounds(noise(9, 10)))
    assert alone(even, None) == alone(replace(even, first_replicates=None), None), "blocks that are not skewed"


def test_an_equivalence_of_skewed_blocks_prints_the_interval_that_decided() -> None:
    logs = np.array([0.0, 0.001, 0.0, -0.001, 0.0, 0.001, -0.001, 0.0, 0.0, 0.02])
    found = alone(evidence(logs, first_replicates=bounds(noise(10, 10, 0.05))))
    assert (found.kind, contradicts(found)) == (Kind.EQUIVALENT, False)


def test_boots_are_the_units_if_there_are_several() -> None:
    """Three boots for a difference, four for equality; blocks of a boot are no further evidence."""

    def booted(*means: float) -> Evidence:
        values = np.concatenate([mean + noise(n, 4, 0.002) for n, mean in enumerate(means)])
        return evidence(values, boots={block: 1 + (block - 1) // 4 for block in range(1, 4 * len(means) + 1)})

    assert alone(booted(0.2, 0.21)).because is VerdictReason.FEW_BLOCKS
    assert [alone(booted(*[0.2] * n)).kind for n in (3, 4)] == [Kind.FASTER] * 2
    assert [alone(booted(*[0.0] * n)).kind for n in (3, 4)] == [Kind.UNDECIDED, Kind.EQUIVALENT]
    apart = booted(0.06, 0.0, 0.0)
    found = alone(apart)
    assert (found.kind, found.boots) == (Kind.UNDECIDED, 3)
    assert alone(replace(apart, boots={})).kind is Kind.FASTER
    p = stats.ttest_1samp([0.06, 0.0, 0.0], 0).pvalue
    assert found.tests.difference == pytest.approx(p)
    assert alone(apart, correlation=PRIOR).tests == found.tests, "boots are independent"
    assert found.blocks_needed is not None and found.blocks_needed % 4 == 0
    stretches = [list(each.blocks) for each in apart.mids_by_boot()]
    assert stretches == [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12]]


# ---- every block


def in_each(log: float, n: int) -> Floats:
    """Blocks that all lie beyond `log`, and one of which is wild, so that no t test decides."""
    return np.append(np.full(n - 1, log), log + 60)


BY_CHANCE = 1e-6


@pytest.mark.parametrize(
    ("n", "a_a", "correlation", "factor"),
    [
        (6, 1.0, 0.0, 2.0), (6, 1.2, 0.0, 2.0), (6, 2.0, 0.0, 4.0), (6, None, 0.0, 16.0), (10, 3.0, 0.0, 9.0),
        (6, 1.0, 0.5, 4.0), (6, 2.0, 0.8, 8.0), (6, None, 0.5, 32.0), (6, 1.0, 0.4, 2.0),
        (5, 1.0, 0.0, 4.0), (4, 2.0, 0.0, 16.0), (4, None, 0.0, 64.0), (5, 1.0, 0.8, 4.0),
        (3, 1.0, 0.0, math.inf),
    ],
)  # fmt: skip
def test_every_block_beyond_what_chance_does(n: int, a_a: float | None, correlation: float, factor: float) -> None:
    """F = max(2, A²) from six blocks on, doubled from a mean ρ of 0.5; 4 A² of four and five; A = 4 without control."""
    weights = np.eye(len(RHOS))[round(10 * correlation)]
    control = None if a_a is None else math.log(a_a)

    def found(log: float, sign: int) -> Judged:
        return alone(evidence(sign * in_each(log, n), noise=control), correlation=weights)

    for sign, kind in ((1, Kind.FASTER), (-1, Kind.SLOWER)):
        beyond = min(math.log(factor), 9.0)
        below, above_it = found(beyond - BY_CHANCE, sign), found(beyond + BY_CHANCE, sign)
        assert below.kind is Kind.UNDECIDED
        assert (above_it.kind, above_it.by_every_block) == (
            (Kind.UNDECIDED, False) if math.isinf(factor) else (kind, True)
        )  # fmt: skip
        if above_it.by_every_block:
            assert (logs_of(above_it.estimate), above_it.confidence) == (None, None)
            ends = sorted(sign * value for value in (beyond + BY_CHANCE, beyond + BY_CHANCE + 60))
            blocks_range = logs_of(above_it.blocks_range)
            assert blocks_range is not None and [blocks_range.low, blocks_range.high] == pytest.approx(ends)


def test_every_block_means_whatever_the_findings_allow() -> None:
    logs = in_each(2.0, 6)
    assert alone(evidence(logs, low=1.2, noise=0.0)).by_every_block
    reached = alone(evidence(logs, low=1.4, noise=0.0))
    assert (reached.kind, reached.because) == (Kind.UNDECIDED, VerdictReason.FINDINGS), (
        "as measured, every block decides"
    )
    range_ = logs_of(alone(evidence(logs, low=1.2, noise=0.0)).blocks_range)
    assert range_ is not None and (range_.low, range_.high) == pytest.approx((0.8, 62.0))


def test_a_lost_trial_among_every_block() -> None:
    """Five blocks as measured and a sixth that the compared side lost: it has to lie beyond the factor as well."""
    mids = dict(enumerate(in_each(2.0, 5), start=1))
    assert alone(evidence(mids, mids | {6: 0.8}, mids, noise=0.0)).by_every_block
    assert alone(evidence(mids, mids | {6: 0.6}, mids, noise=0.0)).kind is Kind.UNDECIDED


def test_every_block_is_looked_for_at_looks_alone() -> None:
    assert alone(evidence(in_each(2.0, 6), noise=0.0, share=0.01)).by_every_block
    unseen = alone(evidence(in_each(2.0, 6), noise=0.0, share=0.0))
    assert (unseen.kind, unseen.because) == (Kind.UNDECIDED, VerdictReason.NO_LOOK_YET)


def test_a_block_that_is_ever_worse_never_undoes_a_difference() -> None:
    """Ten times slower in each of six blocks, then one of them a thousand times; and growing from 11 to 18 times."""
    ten = noise(11, 6, 0.02) - math.log(10)
    for worse in (math.log(100), 10.0, 100.0):
        page = [evidence(ten - worse * (np.arange(6) == 3), noise=0.05) for _ in range(12)]
        assert {each.kind for each in judged(*page, correlation=None)} == {Kind.SLOWER}
    growing = [evidence(-math.log(11) - 0.1 * np.arange(6) + noise(s, 6, 0.02), noise=0.05) for s in range(12)]
    assert {each.kind for each in judged(*growing, correlation=None)} == {Kind.SLOWER}


# ---- reasons and plans


def test_reasons_why_nothing_is_decided() -> None:
    wide = noise(12, 6, 0.1) + 0.02
    assert alone(evidence(wide)).because is VerdictReason.NOISE
    assert alone(evidence(wide, limited=True)).because is VerdictReason.LIMIT
    assert alone(evidence(wide[:2], limited=True)).because is VerdictReason.FEW_BLOCKS
    assert alone(evidence(wide, share=0.0)).because is VerdictReason.NO_LOOK_YET
    assert alone(evidence(noise(12, 6) + 1.0, limited=True)).kind is Kind.FASTER, "the far side alone was limited"


def test_detectable_is_what_four_of_five_experiments_find() -> None:
    """Independent blocks of 5%, 20 comparisons' level or all of it: by simulation of the judgement itself."""
    rng = np.random.default_rng(13)
    for n in (4, 6, 12):
        seen = alone(evidence(noise(13, n, 0.05), noise=0.02), None).detectable
        assert seen is not None
        rows = rng.normal(math.log1p(seen), 0.05, (600, n))
        kinds = [
            kind for row in rows for kind in Family([evidence(row, noise=0.02)], None, correlation=INDEPENDENT).decide()
        ]
        assert np.mean([kind is Kind.FASTER for kind in kinds]) == pytest.approx(0.8, abs=0.06)


def test_detectable_knows_the_rule_of_every_block() -> None:
    """Noise of a log sd of 1 in six blocks: no t test at a small level shows a factor that every block shows."""
    loud = evidence(noise(14, 6, 0.5), noise=0.0, share=1e-4)
    seen = alone(loud, None).detectable
    expected = math.log(2) + 0.5 * stats.norm.ppf(0.8 ** (1 / 6))
    assert seen is not None and math.log1p(seen) == pytest.approx(expected)


def test_blocks_needed_show_the_margin_at_the_upper_limit_of_the_spread() -> None:
    """Independent blocks: statsmodels' power of a t test comes within a point at the planned count, not one below."""
    for sd, margin in ((0.03, 0.02), (0.05, 0.05)):
        more = alone(evidence(noise(15, 10, sd) + 0.3 * sd), margin).blocks_needed
        assert more is not None
        upper = sd * math.sqrt(9 / stats.chi2.ppf(0.2, 9))
        power = [TTestPower().power(math.log1p(margin) / upper, 10 + n, 0.05) for n in (more, more - 1)]
        assert power[0] > 0.79 and (power[1] < 0.81 or more == 1)


def test_plans_end_where_no_number_of_blocks_helps() -> None:
    assert alone(evidence(noise(16, 6, 5.0))).blocks_needed is None
    assert alone(evidence(noise(16, 6, 5.0))).detectable is None
    many = alone(evidence(noise(16, 1200, 0.4)))
    assert (many.kind, many.blocks_needed) == (Kind.UNDECIDED, None)
    assert alone(evidence(noise(16, 6) + 1.0)).blocks_needed is None, "it is decided"
    shared = [alone(evidence(noise(16, 6, 0.05), share=share)).blocks_needed or 0 for share in (1.0, 0.1)]
    assert shared[0] < shared[1]


# ---- the control


def test_a_control_that_differs_from_itself_widens_by_what_is_sure_of_it() -> None:
    sure, equal = evidence(noise(17, 6) + 0.1), evidence(noise(18, 6))
    apart = control_differences([sure, equal])
    low, _ = stats.t.interval(1 - 0.05 / 2, 5, 0.1, 0.004 / math.sqrt(6))
    assert apart[1] == 0 and 0.08 < apart[0] < 0.1
    assert control_differences([evidence(-noise(17, 6) - 0.1), equal])[0] == pytest.approx(apart[0])
    assert low > apart[0] > low - 0.02, "as far as the autocorrelation is not known"
    assert control_differences([]) == []


def test_widening_is_continuous() -> None:
    """Two controls that differ from themselves by ever more: no step of 0.05% widens by more than 0.15%."""
    shifts = np.arange(0.0, 0.05, 5e-4)
    one, other = noise(19, 8), noise(20, 8)
    for second in (0.5, 1.0, 1.02):
        seen = np.array([control_differences([evidence(one + d), evidence(other + second * d)]) for d in shifts])
        assert (seen[0] == 0).all() and (seen[-1] > 0).all()
        assert np.abs(np.diff(seen, axis=0)).max() < 1.5e-3


# ---- properties of any page


def _correlated(rng: np.random.Generator, n: int) -> Floats:
    values = rng.normal(size=n)
    for block in range(1, n):
        values[block] += 0.6 * values[block - 1]
    return np.asarray(0.05 * values)


def test_a_larger_difference_is_never_less_decided() -> None:
    """The same blocks moved further away from zero, on a page of four."""
    rng = np.random.default_rng(21)
    for _ in range(60):
        page = [evidence(_correlated(rng, int(rng.choice([3, 4, 6, 10]))), low=0.01, noise=0.1) for _ in range(4)]
        decided = -1
        for shift in (0.0, 0.02, 0.05, 0.1, 0.3, 0.7, 1.5, 3.0, 7.0):
            moved = replace(page[0], bounds=bounds(np.array(page[0].bounds.mid.values) + shift, low=0.01))
            now = Family([moved, *page[1:]], None).decide()[0] is Kind.FASTER
            assert now >= decided
            decided = now
        assert decided == 1 or page[0].bounds.mid.n == 3


def test_one_more_block_at_the_mean_is_hardly_less_evidence() -> None:
    """Never less where blocks are known to be independent. Where they show their autocorrelation themselves, a return
    to the mean is a jump that a persistent state would not make: p at most doubles, and what was sure stays sure.
    """
    rng = np.random.default_rng(22)
    for _ in range(300):
        logs = _correlated(rng, int(rng.choice([3, 4, 6, 10]))) + rng.choice([0.02, 0.1, 0.5])
        more = np.append(logs, logs.mean())
        for correlation in (INDEPENDENT, None):
            before, after = (
                Family([evidence(values)], None, correlation=correlation).difference[0].p for values in (logs, more)
            )  # fmt: skip
            if correlation is INDEPENDENT:
                assert after <= before
            else:
                assert after <= 2 * before if before > 1e-3 else after < 5e-3, (before, after)


def test_swapped_sides_turn_every_verdict_around() -> None:
    turned = {Kind.FASTER: Kind.SLOWER, Kind.SLOWER: Kind.FASTER}
    rng = np.random.default_rng(23)
    for _ in range(30):
        page = _random_page(rng)
        swapped = [
            replace(
                each, bounds=_swapped(each.bounds),
                first_replicates=each.first_replicates and _swapped(each.first_replicates),
            )
            for each in page
        ]  # fmt: skip
        for there, back in zip(Family(page, MARGIN).judge(), Family(swapped, MARGIN).judge(), strict=True):
            assert back.kind is turned.get(there.kind, there.kind)
            assert (back.because, back.blocks_needed, back.by_every_block) == (
                there.because, there.blocks_needed, there.by_every_block,
            )  # fmt: skip
            for part in ("estimate", "blocks_range"):
                ours, theirs = (logs_of(getattr(each, part)) for each in (there, back))
                assert (ours is None) == (theirs is None)
                if ours and theirs:
                    assert (ours.low, ours.high) == pytest.approx((-theirs.high, -theirs.low), abs=1e-9)


def _swapped(of: Bounds) -> Bounds:
    low, mid, high = ({b: -v for b, v in zip(s.blocks, s.values, strict=True)} for s in (of.high, of.mid, of.low))
    return bounds(mid, low, high)


def test_the_order_of_a_page_decides_nothing() -> None:
    rng = np.random.default_rng(24)
    for _ in range(15):
        page = _random_page(rng)
        order = rng.permutation(len(page))
        before, after = Family(page, MARGIN).judge(), Family([page[i] for i in order], MARGIN).judge()
        assert [after[i].kind for i in range(len(page))] == [before[i].kind for i in order]


# ---- ratios


def test_a_ratio_is_that_of_the_figures() -> None:
    """An advantage of a time is a smaller ratio."""
    interval = Interval(0.1, 0.3)
    assert in_ratio(0.2, interval) == Estimate(math.exp(0.2), math.exp(0.1), math.exp(0.3))
    assert in_ratio(0.2, interval, -1) == Estimate(math.exp(-0.2), math.exp(-0.3), math.exp(-0.1))
    assert in_ratio(0.2) == Estimate(math.exp(0.2))


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(1.15, 2, Region.ABOVE), (0.5, 0.8, Region.BELOW), (0.95, 1.05, Region.WITHIN), (0.95, 1.2, Region.ACROSS)],
)
def test_regions(low: float, high: float, expected: Region) -> None:
    assert region(low, high, 0.9, 1.1) is expected

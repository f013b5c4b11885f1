"""Judge pairs: the only module that decides on a difference, on equality, or on a bound.

A run's verdicts, its tuning steps, its claims and campaigns are all decided here; they differ in the unit that n counts
(blocks, boots, test beds) and in whether a margin of equivalence applies.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

from vmtoll.analysis.pairs import Pairs
from vmtoll.analysis.statistics import (
    ALPHA,
    MIN_BLOCKS,
    Adjusted,
    Interval,
    Paired,
    Tested,
    blocks_needed,
    detectable,
    judge_family,
)
from vmtoll.model.metric import Metric
from vmtoll.model.verdict import Because, Bound, Estimate, Kind, Region, Tests

MIN_TEST_BEDS = 5  # of a campaign: among fewer, one odd host decides
MIN_BOOTS = 2
MARGIN = 0.02  # what is planned for where no margin of equivalence applies
PRIMARY_SHARE = 0.5  # of the errors of a page, for its primary metrics


@dataclass(frozen=True)
class Evidence:
    """Basis of a judgement.

    `effect`: the log ratio compared ÷ baseline over `minimum` units or more, each of `unit_blocks` blocks; `limited`:
    of the baseline and of the compared side, the share of units that are client-limited or link-limited; `void`: the
    same, of units whose figures say nothing then; `late`: the delay of late clients is taken off the effect;
    `delay_decides`: nothing is left of it then; `empty`: why there is none; `whole_slower_side`: if most of
    the slower side is limited so, no test decides, not even one that finds no difference.

    `veto`: why the effect may not be that of the two sides. `lost_more`: −1 where the baseline lost clearly more of its
    trials, 1 where the compared side did, else 0; `lost_once`: any block lost one side alone; `worst`, `worst_retried`:
    the interval if these trials had been the worst of all. `two_modes`: the ratio is one of two; `single`: the effect
    of one trial a side in each block then, symmetric between equal sides where a mean of two replicates less one trial
    is skewed, which a t test takes for a difference. `share`: of the 5% that this look may spend, 1 where there is no
    other.
    """

    metric: Metric
    effect: Paired | None
    same: Paired | None = None
    limited: tuple[float, float] = (0.0, 0.0)
    void: tuple[float, float] = (0.0, 0.0)
    late: bool = False
    delay_decides: bool = False
    minimum: int = MIN_BLOCKS
    empty: Because | None = None
    whole_slower_side: bool = False
    veto: Because | None = None
    lost_more: int = 0
    lost_once: bool = False
    worst: Interval | None = None
    worst_retried: Interval | None = None
    two_modes: bool = False
    single: Paired | None = None
    unit_blocks: int = 1
    share: float = 1.0

    @classmethod
    def of(cls, pairs: Pairs, metric: Metric, *, whole_slower_side: bool = False, share: float = 1.0) -> Self:
        """The evidence of the pairs of a run; the unit is the block, or the boot where there are several."""
        baseline, compared = pairs.limited
        voiding = metric.limits - metric.delaying if pairs.without_delay else metric.limits
        void = pairs.limited_by(voiding) if metric.is_tail else (0, 0)
        boots = len(pairs.by_boot)
        enough = boots > 1 and pairs.n >= MIN_BLOCKS
        return cls(
            metric,
            pairs.effect,
            pairs.control.same if pairs.control else None,
            (baseline / max(pairs.n, 1), compared / max(pairs.n, 1)),
            void=(void[0] / max(pairs.n, 1), void[1] / max(pairs.n, 1)),
            late=pairs.without_delay,
            delay_decides=pairs.delay_decides,
            minimum=MIN_BOOTS if enough else MIN_BLOCKS,
            empty=None if pairs.n else _why_empty(pairs),
            whole_slower_side=whole_slower_side,
            veto=Because.DISTORTED if pairs.n and pairs.distorted else None,
            lost_more=0 if pairs.lost_more is None else -1 if pairs.lost_more is pairs.baseline else 1,
            lost_once=any(pairs.lost),
            worst=pairs.worst_case(metric),
            worst_retried=pairs.worst_case(metric, retried=True),
            two_modes=pairs.modes is not None,
            single=pairs.single,
            unit_blocks=max(1, round(pairs.n / boots)) if enough else 1,
            share=share,
        )

    @property
    def advantage(self) -> float:
        """The effect, above zero where the compared side is the better."""
        mean = self.effect.mean if self.effect else 0.0
        return mean if self.metric.higher_is_better else -mean

    @property
    def by_speed(self) -> tuple[float, float]:
        """`limited` of the faster and of the slower side."""
        baseline, compared = self.limited
        return (compared, baseline) if self.advantage > 0 else (baseline, compared)

    @property
    def control_differs(self) -> float:
        """Difference of the A/A control from itself, a log ratio above zero; 0 where chance explains it."""
        p = self.same.p_difference if self.same else None
        return abs(self.same.mean) if self.same and p is not None and p < ALPHA else 0.0

    @property
    def refusal(self) -> Because | None:
        """Reason why these figures decide nothing, whatever they are; None when they may."""
        if self.effect is None:
            return self.empty
        if self.metric.is_tail:
            limited = Because.LIMITED_TAIL if max(self.void) > 0.5 or self.delay_decides else None
        elif self.whole_slower_side:
            limited = Because.LIMITED_ON_THE_SLOWER_SIDE if self.by_speed[1] > 0.5 else None
        else:
            limited = Because.LIMITED_ON_BOTH_SIDES if min(self.limited) > 0.5 else None
        return limited or self.veto

    @property
    def testable(self) -> Paired | None:
        """The effect, when a test of it may decide: it is not refused, has enough units, and a look was due."""
        enough = self.effect and self.effect.n >= self.minimum and self.share > 0
        return self.effect if enough and not self.refusal else None


def _why_empty(pairs: Pairs) -> Because | None:
    if not pairs.is_measured:
        return Because.NOT_MEASURED
    counts = pairs.counts
    if any(count.few for count in counts):
        return Because.FEW_REQUESTS
    if pairs.unequal:
        return Because.UNEQUAL_REQUESTS
    if any(count.invalid for count in counts):
        return Because.NO_VALID_PAIR
    return Because.NO_FIGURES if any(count.empty for count in counts) else None


@dataclass(frozen=True)
class Judgement:
    """Fields of a Verdict, which says what they are."""

    kind: Kind
    because: Because | None = None
    bound: Bound | None = None
    blocks_needed: int | None = None
    detectable: float | None = None
    adjusted: Estimate | None = None
    confidence: float | None = None


def test(
    family: Sequence[Evidence], margin: float | None, weights: Sequence[float] | None = None
) -> list[Tested | None]:
    """Test a family against zero and against ±`margin` (a fraction; None: no equivalence), Holm over all of it.

    `weights`: of each comparison in Holm's correction; all alike without.
    """
    shares = [evidence.share or 1.0 for evidence in family]
    return judge_family([evidence.testable for evidence in family], _limit(margin), weights, shares)


def weights_of(metrics: Sequence[Metric]) -> list[float]:
    """Holm's weights of the comparisons of a page, by their metrics: half of the 5% for the primary metrics of its
    loops, half for all others; the whole for either where the other is missing.
    """
    primary = sum(metric.is_primary for metric in metrics)
    if primary in (0, len(metrics)):
        return [1 / len(metrics)] * len(metrics) if metrics else []
    others = (1 - PRIMARY_SHARE) / (len(metrics) - primary)
    return [PRIMARY_SHARE / primary if metric.is_primary else others for metric in metrics]


def judge(evidence: Evidence, tested: Tested | None, margin: float | None) -> Judgement:
    """Decide. `tested` is what the family's tests say of it, None when it is not testable.

    Equivalent when both intervals lie within ±margin, faster or slower when the t interval excludes zero, each only
    where the claim survives Holm in its family, and does not owe itself to the trials that one side lost.
    """
    if evidence.refusal:
        return Judgement(Kind.INVALID, evidence.refusal)
    effect = evidence.effect
    if effect is None or tested is None:
        lacking = evidence.minimum - (effect.n if effect else 0)
        return Judgement(Kind.UNDECIDED, blocks_needed=lacking if lacking > 0 else None)
    because = None
    if margin is not None and tested.equivalence.holds:
        if any(evidence.limited):
            return Judgement(Kind.INVALID, Because.LIMITED_SO_NO_EQUALITY)
        because = _why_not_equivalent(evidence, _limit(margin))
        if because is None:
            return _with_interval(Judgement(Kind.EQUIVALENT), effect, tested.equivalence)
    if because is None and tested.difference.holds:
        decided = _different(evidence, tested.difference.step)
        return decided if decided.kind is Kind.INVALID else _with_interval(decided, effect, tested.difference)
    alpha = ALPHA / tested.difference.step
    more = None if because else blocks_needed(effect, _limit(margin) or _limit(MARGIN), alpha)
    seen = detectable(effect, alpha)
    undecided = Judgement(
        Kind.UNDECIDED,
        because,
        blocks_needed=None if more is None else more * evidence.unit_blocks,
        detectable=None if seen is None else math.expm1(seen),
    )
    return _with_interval(undecided, effect, tested.difference)


def _why_not_equivalent(evidence: Evidence, limit: float) -> Because | None:
    """Reason against equivalence although the t interval lies within the margin; None without any."""
    if evidence.lost_more:
        return Because.UNEQUAL_LOSSES
    if evidence.lost_once and not _within(evidence.worst, limit):
        return Because.LOSSES_DECIDE
    if evidence.control_differs > limit:
        return Because.CONTROL_DIFFERS
    if evidence.two_modes:
        return Because.TWO_MODES
    rank = evidence.effect.signed_rank if evidence.effect else None
    return Because.SKEWED if rank and not _within(rank, limit) else None


def _within(interval: Interval | None, limit: float) -> bool:
    return interval is not None and -limit < interval.low and interval.high < limit


def _different(evidence: Evidence, step: float) -> Judgement:
    fast, slow = evidence.by_speed
    bound = Bound.AT_LEAST if evidence.late else None
    if not evidence.metric.is_tail:
        if slow > 0.5:
            return Judgement(Kind.INVALID, Because.LIMITED_ON_THE_SLOWER_SIDE)
        if slow and fast:
            return Judgement(Kind.INVALID, Because.LIMITED_ON_BOTH_SIDES)
        bound = Bound.AT_LEAST if fast else (Bound.AT_MOST if slow else None)
    faster = evidence.advantage > 0
    if evidence.lost_more == (1 if faster else -1) and not (
        evidence.worst_retried and evidence.effect and _agrees(evidence.worst_retried, evidence.effect.mean)
    ):
        return Judgement(Kind.UNDECIDED, Because.UNEQUAL_LOSSES, bound)
    if abs(evidence.advantage) <= evidence.control_differs:
        return Judgement(Kind.UNDECIDED, Because.CONTROL_DIFFERS, bound)
    if evidence.single and (evidence.single.p_difference or 0.0) * step >= ALPHA:
        return Judgement(Kind.UNDECIDED, Because.TWO_MODES, bound)
    return Judgement(Kind.FASTER if faster else Kind.SLOWER, bound=bound)


def _agrees(interval: Interval, mean: float) -> bool:
    """Return whether an interval lies on the same side of zero as the effect."""
    return interval.low > 0 if mean > 0 else interval.high < 0


def _with_interval(judgement: Judgement, effect: Paired, adjusted: Adjusted) -> Judgement:
    """The judgement with the interval of the level that Holm left to this comparison."""
    if effect.sd is None:
        return judgement
    alpha = ALPHA / adjusted.step
    half = effect.half_width(alpha)
    interval = in_ratio(effect.mean, Interval(effect.mean - half, effect.mean + half))
    return replace(judgement, adjusted=interval, confidence=1 - alpha)


def clean_kind(pairs: Pairs, metric: Metric, tested: Tested | None, margin: float) -> Kind | None:
    """Judgement by the pairs in which nothing distorts a trial, at the levels of the whole; None for too few."""
    evidence = Evidence.of(pairs.clean, metric)
    clean = evidence.testable
    if clean is None or tested is None:
        return None
    ps = (clean.p_difference or 0.0, clean.p_equivalence(_limit(margin)) or 0.0)
    steps = (tested.difference.step, tested.equivalence.step)
    again = [Adjusted(p, min(1.0, p * step), step) for p, step in zip(ps, steps, strict=True)]
    return judge(evidence, Tested(tested.size, *again), margin).kind


def _limit(margin: float | None) -> float:
    return 0.0 if margin is None else math.log1p(margin)


def p_values(effect: Paired | None, tested: Tested | None, family: int) -> Tests:
    """The p-values of an effect, and after Holm among `family` comparisons."""
    return Tests(
        family=family,
        difference=effect.p_difference if effect else None,
        difference_holm=tested.difference.holm if tested else None,
        equivalence=tested.equivalence.p if tested else None,
        equivalence_holm=tested.equivalence.holm if tested else None,
    )


def in_ratio(mean: float, interval: Interval | None) -> Estimate:
    """A log ratio with its interval, as a ratio."""
    if interval is None:
        return Estimate(math.exp(mean))
    return Estimate(math.exp(mean), math.exp(interval.low), math.exp(interval.high))


def region(low: float, high: float, least: float, most: float, *, more: bool = True, less: bool = True) -> Region:
    """Location of an interval relative to `least` and `most`.

    `more`, `less`: whether a figure above, or below, something proves what it shows; where it would have to and does
    not, it is only a BOUND.
    """
    if low > most:
        return Region.ABOVE if more else Region.BOUND
    if high < least:
        return Region.BELOW if less else Region.BOUND
    if least <= low and high <= most:
        return Region.WITHIN if more and less else Region.BOUND
    return Region.ACROSS

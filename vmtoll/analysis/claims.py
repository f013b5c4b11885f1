"""The claims of a run's experiment: each is confirmed, refuted, or inconclusive here."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from vmtoll.analysis.judge import in_ratio, region
from vmtoll.analysis.judged import block_effects
from vmtoll.analysis.pairs import Bounds, less_limited
from vmtoll.analysis.refusals import notes, refusals_of
from vmtoll.analysis.run import Run
from vmtoll.analysis.selection import FAILURE_COUNTS, Figures, Selection, column_of, figures_of_sides, select_trials
from vmtoll.model.claim import ClaimResult, EstimatorUsed, Level, Outcome, Reason, ReasonCode
from vmtoll.model.experiment import Claim, Estimator
from vmtoll.model.finding import Role
from vmtoll.model.metric import THROUGHPUT
from vmtoll.model.table import columns_of
from vmtoll.model.trial import CROSSCHECK, TrialRecord
from vmtoll.model.verdict import BlockEffect, Estimate, Region
from vmtoll.statistics.series import Floats, Series, autocorrelation, fit, lower_limit, upper_limit
from vmtoll.statistics.student import Interval
from vmtoll.statistics.thresholds import ALPHA, MIN_BLOCKS, SPREAD_FLOOR

UNITS = {column.name: column.unit for column in columns_of(TrialRecord)}
UNITS |= {"peak_goodput_rps": "1/s", "goodput_knee_rps": "1/s"}


@dataclass(frozen=True)
class Measured:
    """One selection over another in logs, or a single one in its metric's unit."""

    bounds: Bounds
    # the mean, geometric for a ratio, with the interval over all that findings allow, a 95% one where the number of
    # blocks was fixed; None without a block, and without an interval below three
    estimate: Estimate | None
    limited: bool  # in every block the client or the link set a figure
    alpha: float  # 1 − confidence of the interval

    @property
    def blocks(self) -> int:
        return self.bounds.mid.n


@dataclass(frozen=True)
class Expected:
    """What a source says of a comparison."""

    # the published one, None for a claim about one side; it claims a direction, or equality with `within_pct`
    ratio: float | None = None
    within_pct: float | None = None
    # `at_least`, `at_most`: the limit of one side, in its unit
    at_least: float | None = None
    at_most: float | None = None
    margin: float = 0.0  # the fraction below which a difference counts as none


def bounds_of(selections: Sequence[Selection]) -> Bounds | None:
    """log(first ÷ second) by block, or the figures of a single selection, as measured and as far as findings allow. For
    a ratio None without a common block, or if a figure is not above zero.
    """
    of, over = selections[0], selections[-1]
    (lows, highs), (other_lows, other_highs) = (zip(*each.ends, strict=True) for each in (of, over))
    if len(selections) == 1:
        return Bounds(_series(min, lows), _series(min, [of.figures]), _series(max, highs))
    if not of.figures.keys() & over.figures.keys() or min(*of.figures.values(), *over.figures.values()) <= 0:
        return None
    return Bounds(
        _series(min, map(_log_ratios, lows, other_highs)),
        _series(min, [_log_ratios(of.figures, over.figures)]),
        _series(max, map(_log_ratios, highs, other_lows)),
    )


def _log_ratios(of: Figures, over: Figures) -> Figures:
    return {block: math.log(of[block] / over[block]) for block in sorted(of.keys() & over.keys())}


def _series(combine: Callable[[Iterable[float]], float], versions: Iterable[Figures]) -> Series:
    """The least or the largest of several versions of each block's figure, over the blocks that all have."""
    first, *others = versions
    blocks = tuple(block for block in first if all(block in each for each in others))
    return Series(blocks, tuple(combine(each[block] for each in (first, *others)) for block in blocks))


def measure(run: Run, selections: Sequence[Selection], correlation: Floats) -> Measured | None:
    """Estimate a ratio of two selections, or the level of one, over blocks; None where `bounds_of` is.
    `correlation`: the weights of the autocorrelation of this run's blocks.
    """
    bounds = bounds_of(selections)
    if bounds is None:
        return None
    is_ratio, blocks = len(selections) == 2, bounds.mid.blocks
    alpha, estimate = ALPHA * run.share_of(blocks), None
    if blocks:
        mean = float(fit([bounds.mid]).mean[0] @ correlation)
        interval = _interval(bounds, correlation, alpha, SPREAD_FLOOR if is_ratio else 0.0)
        ends = (max(0.0, interval.low), max(0.0, interval.high)) if interval else (None, None)
        estimate = in_ratio(mean, interval) if is_ratio else Estimate(mean, *ends)
    open_blocks = frozenset[int]().union(*(selection.open_blocks for selection in selections))
    return Measured(bounds, estimate, open_blocks >= set(blocks), alpha)


def _interval(bounds: Bounds, correlation: Floats, alpha: float, floor: float) -> Interval | None:
    """From the lower limit of the lows to the upper limit of the highs; None below three blocks or before a look."""
    low, high = bounds.low, bounds.high
    if min(low.n, high.n) < MIN_BLOCKS or not alpha:
        return None
    if not floor and np.ptp(low.values) == np.ptp(high.values) == 0:  # counts: no noise moves them
        return Interval(low.values[0], high.values[0])
    level = np.array([alpha / 2])
    return Interval(
        float(lower_limit(fit([low], floor), correlation, level)[0]),
        float(upper_limit(fit([high], floor), correlation, level)[0]),
    )


def trimmed_2009(values: Sequence[float]) -> float | None:
    """The estimator of the 2009 experiment: of the first six runs drop the best and the worst, average the other four.
    In the unit of the values; None with fewer than six.
    """
    return float(np.sort(np.asarray(values, dtype=float)[:6])[1:5].mean()) if len(values) >= 6 else None


def estimate(figures: Sequence[float], estimator: Estimator) -> Level:
    """Reduce the blocks' figures, in their order, to one as the source did, and name the method.

    `trimmed-six`: drop the best and the worst of the first six, average the other four (2009). `mean-of-three`: average
    the first three (2008). Otherwise the median. With fewer blocks than that: their mean; an empty Level without any.
    """
    n = len(figures)
    if n == 0:
        return Level()
    if estimator == "trimmed-six":
        if (value := trimmed_2009(figures)) is not None:
            return Level(value, EstimatorUsed.TRIMMED_SIX, 6)
        return Level(float(np.mean(figures)), EstimatorUsed.MEAN_FEWER_THAN_SIX, n)
    if estimator == "mean-of-three":
        used = EstimatorUsed.MEAN_OF_THREE if n >= 3 else EstimatorUsed.MEAN_FEWER_THAN_THREE
        return Level(float(np.mean(figures[:3])), used, min(n, 3))
    return Level(float(np.median(figures)), EstimatorUsed.MEDIAN, n)


@dataclass(frozen=True)
class Decision:
    """An outcome, where the interval lies, and why."""

    outcome: Outcome
    region: Region | None
    reason: Reason


def decide(estimate: Estimate | None, blocks: int, expected: Expected) -> Decision:
    """Compare an estimate over so many blocks with what a source says.

    Direction: confirmed when the whole interval lies on the published side of 1; refuted when it lies on the other
    side, or allows only differences smaller than the margin, or than half of the published one if that is less.
    Equality: confirmed when the whole interval lies within ±`within_pct`, refuted when it lies outside.
    Level: confirmed when the whole interval lies on the claimed side of the limit, refuted when it lies on the other.
    """
    if estimate is None or estimate.ends is None:
        reason = Reason(ReasonCode.FEW_BLOCKS, {"blocks": blocks, "needed": MIN_BLOCKS})
        return Decision(Outcome.INCONCLUSIVE, None, reason)
    interval = Interval(*estimate.ends)
    if expected.ratio is None:
        location, claimed, reason = _level(interval, expected)
    else:
        limit, location, claimed = _ratio(interval, expected.ratio, expected)
        reason = Reason(ReasonCode.INTERVAL, {"limit": limit})
    outcome_if_missed = Outcome.INCONCLUSIVE if location is Region.ACROSS else Outcome.REFUTED
    return Decision(Outcome.CONFIRMED if location is claimed else outcome_if_missed, location, reason)


def _ratio(interval: Interval, published: float, expected: Expected) -> tuple[float, Region, Region]:
    """(the limit that judges a ratio, the interval's location, the claimed location)."""

    def location(limit: float) -> Region:
        return region(interval.low, interval.high, 1 / limit, limit)

    if expected.within_pct is not None:
        limit = 1 + expected.within_pct / 100
        return limit, location(limit), Region.WITHIN
    claimed = Region.ABOVE if published > 1 else Region.BELOW
    no_difference_limit = math.exp(min(math.log1p(expected.margin), abs(math.log(published)) / 2))
    if location(1.0) is Region.ACROSS and location(no_difference_limit) is Region.WITHIN:
        return no_difference_limit, Region.WITHIN, claimed
    return 1.0, location(1.0), claimed


def _level(interval: Interval, expected: Expected) -> tuple[Region, Region, Reason]:
    """(the interval's location, the claimed location, the reason). At the limit itself the claim is confirmed."""
    at_least = expected.at_least is not None
    limit = next(level for level in (expected.at_least, expected.at_most) if level is not None)
    above = interval.low >= limit if at_least else interval.low > limit
    below = interval.high < limit if at_least else interval.high <= limit
    location = Region.ABOVE if above else Region.BELOW if below else Region.ACROSS
    reason = Reason(ReasonCode.LEVEL, {"low": interval.low, "high": interval.high, "limit": limit})
    return location, Region.ABOVE if at_least else Region.BELOW, reason


def judge_claims(run: Run, correlation: Floats | None = None) -> list[ClaimResult]:
    """Judge the claims of the run's experiment, in its order. `correlation`: the weights of the autocorrelation of the
    run's blocks, by default estimated from the claims' own ratios.
    """
    claims = [(claim, _selections(run, claim)) for claim in run.manifest.experiment.claims]
    if correlation is None:
        correlation = correlation_of(selections for _, selections in claims if len(selections) == 2)
    return [_judge(run, claim, selections, correlation) for claim, selections in claims]


def correlation_of(pairs: Iterable[Sequence[Selection]]) -> Floats:
    """The weights of the autocorrelation of blocks, estimated from the ratios of these pairs."""
    return autocorrelation([bounds.mid for pair in pairs if (bounds := bounds_of(pair))])


def _selections(run: Run, claim: Claim) -> list[Selection]:
    """The sides of a claim. In closed loops throughput is the cross-check's if the client or the link limited the tool,
    and the cross-check no more often, as in a verdict.
    """
    sides = (claim.of, claim.over) if claim.over else (claim.of,)
    trials = [select_trials(run, side) for side in sides]
    by_tool = figures_of_sides(run, trials, claim.metric, column_of(claim.metric))
    if claim.metric != THROUGHPUT.field:
        return by_tool
    by_crosscheck = figures_of_sides(run, trials, CROSSCHECK + claim.metric, column_of(CROSSCHECK + claim.metric))
    counts = [(sum(len(s.used) for s in each), sum(len(s.limited) for s in each)) for each in (by_tool, by_crosscheck)]
    is_closed = not any(trial.scenario.load.is_open for side in trials for trial in side)
    return by_crosscheck if is_closed and less_limited(*counts) is Role.CROSSCHECK else by_tool


def count_outcomes(results: Sequence[ClaimResult]) -> dict[Outcome, int]:
    """Outcome → the number of claims that have it."""
    return {outcome: sum(result.outcome is outcome for result in results) for outcome in Outcome}


def _judge(run: Run, claim: Claim, selections: Sequence[Selection], correlation: Floats) -> ClaimResult:
    sides = (claim.of, claim.over) if claim.over else (claim.of,)
    estimator = run.manifest.experiment.published_estimator
    measured, first, is_ratio = measure(run, selections, correlation), selections[0], len(selections) == 2
    reasons = tuple(refusals_of(run, sides, selections, claim.metric))
    if reasons:
        decision = Decision(Outcome.INCONCLUSIVE, None, reasons[0])
    else:
        decision = _decide(run, claim, first, measured)
        reasons = (decision.reason, *notes(run, sides, selections))
    estimate_of_claim = measured.estimate if measured else None
    return ClaimResult(
        says=claim.says,
        metric=claim.metric,
        unit=UNITS.get(claim.metric, ""),
        sides=sides,
        published=tuple(claim.published),
        levels=tuple(estimate(list(selection.figures.values()), estimator) for selection in selections),
        published_ratio=_ratio_of(claim.published),
        ratio=estimate_of_claim if is_ratio else None,
        limited=measured.limited if measured else set(first.figures) <= first.open_blocks,
        blocks=measured.blocks if measured else len(first.figures),
        outcome=decision.outcome,
        region=decision.region,
        reasons=reasons,
        level=None if is_ratio else estimate_of_claim,
        effects=_effects(measured.bounds, selections, math.exp if is_ratio else float) if measured else (),
        rho_weights=tuple(correlation.tolist()) if estimate_of_claim else (),
        alpha=measured.alpha if measured else None,
    )


def _effects(bounds: Bounds, selections: Sequence[Selection], to: Callable[[float], float]) -> tuple[BlockEffect, ...]:
    """Each block of a claim, as ratios or in the metric's unit."""
    trials = [trial for each in selections for trial in each.trials]
    boots, counts = {trial.block: trial.boot for trial in trials}, Counter(trial.block for trial in trials)
    return block_effects({"low": bounds.low, "mid": bounds.mid, "high": bounds.high}, to, boots, counts)


def _decide(run: Run, claim: Claim, of: Selection, measured: Measured | None) -> Decision:
    """Decide a claim that nothing refuses.

    A count of failures may not exceed `at_most` in any block: one block with more refutes the claim, whatever the mean.
    """
    if measured is None:
        return Decision(Outcome.INCONCLUSIVE, None, Reason(ReasonCode.ZERO_HAS_NO_RATIO))
    if not claim.over and claim.at_most is not None and of.metric in FAILURE_COUNTS:
        most = max(of.figures.values(), default=0.0)
        if most > claim.at_most:
            values = {"most": most, "blocks": float(len(of.figures))}
            return Decision(Outcome.REFUTED, Region.ABOVE, Reason(ReasonCode.FAILURES_IN_A_BLOCK, values))
    published = _published_ratio(claim.published) if claim.over else None
    margin = run.manifest.experiment.margin
    expected = Expected(published, claim.within_pct, claim.at_least, claim.at_most, margin)
    return decide(measured.estimate, measured.blocks, expected)


def _ratio_of(published: Sequence[float]) -> float | None:
    return published[0] / published[1] if len(published) == 2 and min(published) > 0 else None


def _published_ratio(published: Sequence[float]) -> float:
    """`of` ÷ `over`; without figures `of` is claimed to be the larger."""
    return _ratio_of(published) or (5e-324 if len(published) == 2 and not published[0] else math.inf)

"""The claims of a run's experiment: each is confirmed, refuted, or inconclusive here."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from vmtoll.analysis.judge import in_ratio, region
from vmtoll.analysis.pairs import Bounds, less_limited
from vmtoll.analysis.refusals import notes, refusals_of
from vmtoll.analysis.run import Run
from vmtoll.analysis.selection import FAILURE_COUNTS, Selection, column_of, figures_of_sides, select_trials
from vmtoll.model.columns import CROSSCHECK, table_schema
from vmtoll.model.experiment import Claim, Estimator
from vmtoll.model.finding import Role
from vmtoll.model.metric import THROUGHPUT
from vmtoll.model.verdict import (
    BlockEffect,
    ClaimResult,
    Estimate,
    EstimatorUsed,
    Level,
    Outcome,
    Reason,
    ReasonCode,
    Region,
)
from vmtoll.statistics.series import Floats, Series, autocorrelation, fit, lower_limit, upper_limit
from vmtoll.statistics.student import Interval
from vmtoll.statistics.thresholds import ALPHA, MIN_BLOCKS, SPREAD_FLOOR

UNITS = {column["name"]: column["unit"] for column in table_schema()["fields"]}
UNITS |= {"peak_goodput_rps": "1/s", "goodput_knee_rps": "1/s"}


@dataclass(frozen=True)
class Ratio:
    """One selection over another: the geometric mean over blocks, with the interval over all that findings allow.

    The interval is a 95% one where the number of blocks was fixed, and None below three blocks. `limited`: in every
    block the client or the link set a figure.
    """

    estimate: Estimate
    blocks: int
    limited: bool = False

    def region(self, limit: float) -> Region:
        """Position of the interval relative to 1/limit and limit; ACROSS without an interval."""
        low, high = self.estimate.low, self.estimate.high
        return Region.ACROSS if low is None or high is None else region(low, high, 1 / limit, limit)


def log_ratios(of: Selection, over: Selection) -> Bounds | None:
    """log(`of` ÷ `over`) by block; None without a common block, or if a figure is not above zero."""
    if not of.figures.keys() & over.figures.keys() or min(*of.figures.values(), *over.figures.values()) <= 0:
        return None

    def logs(
        combine: Callable[[Iterable[float]], float], *versions: tuple[Mapping[int, float], Mapping[int, float]]
    ) -> Series:
        blocks = sorted(set[int].intersection(*({*numerator} & {*denominator} for numerator, denominator in versions)))
        return Series(
            tuple(blocks),
            tuple(
                combine(math.log(numerator[b] / denominator[b]) for numerator, denominator in versions) for b in blocks
            ),
        )

    return Bounds(
        logs(min, (of.bounds.low, over.bounds.high), (of.bounds_without_client.low, over.bounds_without_client.high)),
        logs(min, (of.figures, over.figures)),
        logs(max, (of.bounds.high, over.bounds.low), (of.bounds_without_client.high, over.bounds_without_client.low)),
    )


def ratio(run: Run, of: Selection, over: Selection, correlation: Floats) -> Ratio | None:
    """`of` ÷ `over` over the blocks that both have; None without such a block, or if a figure is not above zero.
    `correlation`: the weights of the autocorrelation of this run's blocks.
    """
    bounds = log_ratios(of, over)
    if bounds is None:
        return None
    interval = _interval(bounds.low, bounds.high, correlation, ALPHA * run.share_of(bounds.mid.blocks))
    mean = float(fit([bounds.mid]).mean[0] @ correlation)
    blocks = set(bounds.mid.blocks)
    return Ratio(in_ratio(mean, interval), bounds.mid.n, (of.open_blocks | over.open_blocks) >= blocks)


def _interval(
    low: Series, high: Series, correlation: Floats, alpha: float, floor: float = SPREAD_FLOOR
) -> Interval | None:
    """From the lower limit of the lows to the upper limit of the highs; None below three blocks or before a look."""
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


def decide(measured_ratio: Ratio, published: float, within_pct: float | None, margin: float) -> Decision:
    """Compare a ratio with the published one. `margin`: the fraction below which a difference counts as none.

    Direction: confirmed when the whole interval lies on the published side of 1; refuted when it lies on the other
    side, or allows only differences smaller than the margin, or than half of the published one if that is less.
    Equality: confirmed when the whole interval lies within ±`within_pct`, refuted when it lies outside.
    """
    if measured_ratio.estimate.low is None:
        return Decision(Outcome.INCONCLUSIVE, None, _few_blocks(measured_ratio.blocks))
    if within_pct is not None:
        limit = 1 + within_pct / 100
        location, claimed = measured_ratio.region(limit), Region.WITHIN
    else:
        limit, location, claimed = _direction(measured_ratio, published, margin)
    outcome_if_missed = Outcome.INCONCLUSIVE if location is Region.ACROSS else Outcome.REFUTED
    reason = Reason(ReasonCode.INTERVAL, {"limit": limit})
    return Decision(Outcome.CONFIRMED if location is claimed else outcome_if_missed, location, reason)


def _direction(measured_ratio: Ratio, published: float, margin: float) -> tuple[float, Region, Region]:
    """(the limit that judges a direction, the interval's location, the claimed location)."""
    claimed = Region.ABOVE if published > 1 else Region.BELOW
    no_difference_limit = math.exp(min(math.log1p(margin), abs(math.log(published)) / 2))
    if measured_ratio.region(1.0) is Region.ACROSS and measured_ratio.region(no_difference_limit) is Region.WITHIN:
        return no_difference_limit, Region.WITHIN, claimed
    return 1.0, measured_ratio.region(1.0), claimed


def _few_blocks(blocks: int) -> Reason:
    return Reason(ReasonCode.FEW_BLOCKS, {"blocks": blocks, "needed": MIN_BLOCKS})


def judge_claims(run: Run, correlation: Floats | None = None) -> list[ClaimResult]:
    """Judge the claims of the run's experiment, in its order. `correlation`: the weights of the autocorrelation of the
    run's blocks, by default estimated from the claims' own ratios.
    """
    claims_with_selections = [(claim, _selections(run, claim)) for claim in run.manifest.experiment.claims]
    if correlation is None:
        correlation = correlation_of(
            [claim_selections for _, claim_selections in claims_with_selections if len(claim_selections) == 2]
        )
    return [_judge(run, claim, claim_selections, correlation) for claim, claim_selections in claims_with_selections]


def correlation_of(pairs: Iterable[Sequence[Selection]]) -> Floats:
    """The weights of the autocorrelation of blocks, estimated from the ratios of these pairs."""
    bounds = [log_ratios(of, over) for of, over in pairs]
    return autocorrelation([each.mid for each in bounds if each])


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
    measured_ratio = ratio(run, selections[0], selections[1], correlation) if len(selections) == 2 else None
    reasons = tuple(refusals_of(run, sides, selections, claim.metric))
    if reasons:
        decision = Decision(Outcome.INCONCLUSIVE, None, reasons[0])
    else:
        decision = _decide(run, claim, selections, measured_ratio, correlation)
        reasons = (decision.reason, *notes(run, sides, selections))
    if len(selections) == 2:
        bounds, level = log_ratios(*selections), None
    else:
        bounds = level_bounds(selections[0])
        level = _level(bounds.mid, _level_interval(run, selections[0], correlation), correlation)
    return ClaimResult(
        says=claim.says,
        metric=claim.metric,
        unit=UNITS.get(claim.metric, ""),
        sides=sides,
        published=tuple(claim.published),
        levels=tuple(estimate(list(selection.figures.values()), estimator) for selection in selections),
        published_ratio=_ratio_of(claim.published),
        ratio=measured_ratio.estimate if measured_ratio else None,
        limited=measured_ratio.limited if measured_ratio else set(selections[0].figures) <= selections[0].open_blocks,
        blocks=measured_ratio.blocks if measured_ratio else len(selections[0].figures),
        outcome=decision.outcome,
        region=decision.region,
        reasons=reasons,
        level=level,
        effects=tuple(_effects(bounds, selections, to=math.exp if len(selections) == 2 else float)) if bounds else (),
        rho_weights=tuple(correlation.tolist()) if (measured_ratio.estimate if measured_ratio else level) else (),
        alpha=ALPHA * run.share_of(bounds.mid.blocks) if bounds else None,
    )


def _level(mid: Series, interval: Interval | None, correlation: Floats) -> Estimate | None:
    """The mean of one side's blocks in the metric's unit; None without a block."""
    if not mid.n:
        return None
    ends = (interval.low, interval.high) if interval else (None, None)
    return Estimate(float(fit([mid]).mean[0] @ correlation), *ends)


def _effects(bounds: Bounds, selections: Sequence[Selection], to: Callable[[float], float]) -> Iterator[BlockEffect]:
    """Each block of a claim, as ratios or in the metric's unit."""
    low, mid, high = (
        dict(zip(each.blocks, each.values, strict=True)) for each in (bounds.low, bounds.mid, bounds.high)
    )
    boots = {trial.block: trial.boot for each in selections for trial in each.trials}
    counts = Counter(trial.block for each in selections for trial in each.trials)
    for block in sorted(low.keys() | mid.keys() | high.keys()):
        least, measured, most = (None if block not in each else to(each[block]) for each in (low, mid, high))
        yield BlockEffect(block, boots[block], least, measured, most, counts[block])


def _decide(
    run: Run, claim: Claim, selections: Sequence[Selection], measured_ratio: Ratio | None, correlation: Floats
) -> Decision:  # fmt: skip
    if claim.over is None:
        return _decide_level(run, selections[0], claim, correlation)
    if measured_ratio is None:
        return Decision(Outcome.INCONCLUSIVE, None, Reason(ReasonCode.ZERO_HAS_NO_RATIO))
    return decide(measured_ratio, _published_ratio(claim.published), claim.within_pct, run.manifest.experiment.margin)


def _decide_level(run: Run, selection: Selection, claim: Claim, correlation: Floats) -> Decision:
    """Compare one side with a level by the interval of its mean over all that findings allow.

    A count of failures may not exceed `at_most` in any block: one block with more refutes the claim, whatever the mean.
    """
    if claim.at_most is not None and selection.metric in FAILURE_COUNTS:
        excess_figures = [figure for figure in selection.figures.values() if figure > claim.at_most]
        if excess_figures:
            values = {"most": max(excess_figures), "blocks": float(len(selection.figures))}
            return Decision(Outcome.REFUTED, Region.ABOVE, Reason(ReasonCode.FAILURES_IN_A_BLOCK, values))
    interval = _level_interval(run, selection, correlation)
    if interval is None:
        return Decision(Outcome.INCONCLUSIVE, None, _few_blocks(len(selection.figures)))
    at_least = claim.at_least is not None
    limit = next(level for level in (claim.at_least, claim.at_most) if level is not None)
    # At the limit itself the claim is confirmed.
    above = interval.low >= limit if at_least else interval.low > limit
    below = interval.high < limit if at_least else interval.high <= limit
    reason = Reason(ReasonCode.LEVEL, {"low": interval.low, "high": interval.high, "limit": limit})
    if not above and not below:
        return Decision(Outcome.INCONCLUSIVE, Region.ACROSS, reason)
    outcome = Outcome.CONFIRMED if above == at_least else Outcome.REFUTED
    return Decision(outcome, Region.ABOVE if above else Region.BELOW, reason)


def level_bounds(selection: Selection) -> Bounds:
    """The figures of one side by block, in their unit, as measured and as far as findings and lost trials allow."""
    return Bounds(
        _series(
            {
                block: min(value, selection.bounds_without_client.low[block])
                for block, value in selection.bounds.low.items()
            }
        ),
        _series(selection.figures),
        _series(
            {
                block: max(value, selection.bounds_without_client.high[block])
                for block, value in selection.bounds.high.items()
            }
        ),
    )


def _series(figures: Mapping[int, float]) -> Series:
    return Series(tuple(figures), tuple(figures.values()))


def _level_interval(run: Run, selection: Selection, correlation: Floats) -> Interval | None:
    bounds = level_bounds(selection)
    interval = _interval(bounds.low, bounds.high, correlation, ALPHA * run.share_of(selection.figures), floor=0.0)
    return interval and Interval(max(0.0, interval.low), max(0.0, interval.high))


def _ratio_of(published: Sequence[float]) -> float | None:
    return published[0] / published[1] if len(published) == 2 and min(published) > 0 else None


def _published_ratio(published: Sequence[float]) -> float:
    """`of` ÷ `over`; without figures `of` is claimed to be the larger."""
    return _ratio_of(published) or (5e-324 if len(published) == 2 and not published[0] else math.inf)

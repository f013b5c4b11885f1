"""The claims of a run's experiment: each is confirmed, refuted, or inconclusive here.

A side is any selection of trials; a block's figure is the median over its cells of the matrix.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import median

import numpy as np

from vmtoll.analysis.judge import in_ratio, region
from vmtoll.analysis.pairs import Bounds, Measure, Side, TrialOutcome, less_limited, sides_of
from vmtoll.analysis.run import Run, by_block
from vmtoll.analysis.sets import OPEN_ENDED, Nature, Possible, Quantity
from vmtoll.model.columns import CROSSCHECK, flat, table_schema
from vmtoll.model.experiment import Claim, ClaimSide, Estimator
from vmtoll.model.finding import OPEN_PACE_LIMITS, PACE_LIMITS, Code, Role, Validity
from vmtoll.model.hardware import Hardware
from vmtoll.model.load import Load, LoadKind
from vmtoll.model.metric import THROUGHPUT
from vmtoll.model.trial import Accelerator, TrialRecord
from vmtoll.model.verdict import ClaimResult, Estimate, EstimatorUsed, Level, Outcome, Reason, ReasonCode, Region
from vmtoll.model.workload import listed
from vmtoll.statistics.series import Floats, Series, autocorrelation, fit, lower_limit, upper_limit
from vmtoll.statistics.student import Interval
from vmtoll.statistics.thresholds import ALPHA, MIN_BLOCKS, NATURAL_FACTOR, SPREAD_FLOOR

Figure = Callable[[TrialRecord], float | None]
KNEE = 0.9  # a step is served while this share of what it offers comes back in time
# What counts failures is known best from the trials that were refused for them. Metric → how a block's cells become
# one figure: nothing that failed in one of them may hide behind the others.
OF_FAILURES: Mapping[str, Callable[[Sequence[float]], float]] = {
    "availability_pct": min, "failed": sum, "bodies_wrong": sum, "messages_lost": sum, "messages_doubled": sum,
}  # fmt: skip
COUNTS_FAILURES = frozenset(metric for metric, combine in OF_FAILURES.items() if combine is sum)
FAILURE_FINDINGS = frozenset({Code.FAILED_REQUESTS, Code.LOST_MAIL, Code.WRONG_BODY})
# What counts messages and bytes, not time: emulation makes it slow, not wrong.
SOUND_UNDER_EMULATION = frozenset({"messages_lost", "messages_doubled", "bodies_wrong"})
_PERCENTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999}
PER_RUN = frozenset({"server_cpu_user_s", "server_cpu_system_s"})  # seconds over all requests of a trial
UNITS = {column["name"]: column["unit"] for column in table_schema()["fields"]}
UNITS |= {"peak_goodput_rps": "1/s", "goodput_knee_rps": "1/s"}


@dataclass(frozen=True)
class Selection:
    """The figures of some trials, by block, for a metric: a column of trials.csv, or a figure of a whole rate sweep.
    `figures`: as measured; `low`, `high`: as far as findings and lost trials allow, which may have more blocks;
    `limited`: trials that the client or the link limited; `open_blocks`: those in which that leaves an end open.
    """

    metric: str
    outcomes: tuple[TrialOutcome, ...]
    figures: Mapping[int, float]
    low: Mapping[int, float]
    high: Mapping[int, float]
    limited: tuple[TrialRecord, ...] = ()
    limits: frozenset[Code] = frozenset()
    open_blocks: frozenset[int] = frozenset()

    @property
    def trials(self) -> list[TrialRecord]:
        return [outcome.trial for outcome in self.outcomes]

    @property
    def used(self) -> list[TrialRecord]:
        """The trials that have a figure."""
        return [outcome.trial for outcome in self.outcomes if outcome.possible]

    @property
    def refused(self) -> frozenset[Code]:
        """The findings of trials without a figure."""
        return frozenset(code for outcome in self.outcomes if not outcome.possible for code in outcome.trial.codes)

    @property
    def emulation(self) -> ReasonCode | None:
        """Kind of emulation in any of its trials: of the guest, or else of the hardware below; None for none."""
        if any(trial.accelerator is Accelerator.TCG for trial in self.trials):
            return ReasonCode.EMULATED
        emulated = any(trial.hardware is Hardware.EMULATED for trial in self.trials)
        return ReasonCode.EMULATED_HARDWARE if emulated else None

    @property
    def cores(self) -> int:
        """The most cores that the server had; 0 where the run does not say."""
        return max((trial.resources.server_cores or 0 for trial in self.trials), default=0)


@dataclass(frozen=True)
class Ratio:
    """One selection over another: the geometric mean over blocks, with the interval over whatever findings allow, of
    95% where the number of blocks was fixed; None below three. `limited`: in every block the client or the link set a
    figure.
    """

    estimate: Estimate
    blocks: int
    limited: bool = False

    def region(self, limit: float) -> Region:
        """Position of the interval relative to 1/limit and limit; ACROSS without an interval."""
        low, high = self.estimate.low, self.estimate.high
        return Region.ACROSS if low is None or high is None else region(low, high, 1 / limit, limit)


def log_ratios(of: Selection, over: Selection) -> Bounds | None:
    """log(`of` ÷ `over`) by block; None without a block, or where a figure is not above zero."""
    if not of.figures.keys() & over.figures.keys() or min(*of.figures.values(), *over.figures.values()) <= 0:
        return None

    def logs(numerator: Mapping[int, float], denominator: Mapping[int, float]) -> Series:
        blocks = sorted(numerator.keys() & denominator.keys())
        return Series(tuple(blocks), tuple(math.log(numerator[b] / denominator[b]) for b in blocks))

    return Bounds(logs(of.low, over.high), logs(of.figures, over.figures), logs(of.high, over.low))


def ratio(run: Run, of: Selection, over: Selection, correlation: Floats) -> Ratio | None:
    """`of` ÷ `over` over the blocks that both have; None when there is none or a figure is not above zero.
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
    if not floor and np.ptp(low.values) == np.ptp(high.values) == 0:  # counts, which no noise moves
        return Interval(low.values[0], high.values[0])
    level = np.array([alpha / 2])
    return Interval(
        float(lower_limit(fit([low], floor), correlation, level)[0]),
        float(upper_limit(fit([high], floor), correlation, level)[0]),
    )


def select(run: Run, of: ClaimSide) -> list[TrialRecord]:
    """The trials that `of` names by server, environment, workload and users. An A/A control has no part in it."""
    servers, environments, workloads = names_of(of)
    loads = None if of.users is None else [Load(LoadKind.CLOSED, users) for users in listed(of.users)]
    return [
        trial
        for trial in run.trials
        if not trial.arm.is_control
        and trial.scenario.server in servers
        and trial.arm.environment in environments
        and trial.scenario.workload in workloads
        and (loads is None or trial.scenario.load.alone in loads)
    ]


def names_of(of: ClaimSide) -> tuple[Sequence[str], Sequence[str], Sequence[str]]:
    """The servers, environments and workloads of a side."""
    return listed(of.server), listed(of.environment), listed(of.workload)


def selection(run: Run, trials: Sequence[TrialRecord], metric: str, of_trial: Figure) -> Selection:
    """The figures of these trials by block, alone; see `selections`."""
    return selections(run, [trials], metric, of_trial)[0]


def selections(
    run: Run, sides: Sequence[Sequence[TrialRecord]], metric: str, of_trial: Figure
) -> list[Selection]:  # fmt: skip
    """The figures of one or two sides by block; `of_trial` gives each trial's own, for a metric named `metric`.

    Where several cells match, a block's figure is the median over them (see OF_FAILURES for what counts failures),
    and a block that lacks one is left out.
    """
    every = [trial for side in sides for trial in side]
    measure = _measure(run, every, metric, of_trial)
    paired = sides_of(run, sides[0], sides[1] if len(sides) > 1 else (), measure)[: len(sides)]
    return [_selection(side, metric, of_trial) for side in paired]


def _selection(side: Side, metric: str, of_trial: Figure) -> Selection:
    is_count = side.measure.quantity.nature is Nature.COUNT
    outcomes = tuple(_counted(outcome, metric, of_trial) if is_count else outcome for outcome in side.outcomes)
    side = Side(outcomes, side.measure)
    values = {outcome.trial.key: outcome.possible for outcome in outcomes if outcome.possible}
    figures = _by_block(side, metric, {key: found.value for key, found in values.items()})
    ends = []
    for name, is_worse in (("low", side.measure.higher_is_better), ("high", not side.measure.higher_is_better)):
        of_trials = {
            key: (min if name == "low" else max)(getattr(found, name), getattr(found.without_client, name))
            for key, found in values.items()
        }
        if values and is_worse and not is_count:
            worst = (min if name == "low" else max)(found.value for found in values.values())
            lost = worst / NATURAL_FACTOR if name == "low" else worst * NATURAL_FACTOR
            of_trials |= {o.trial.key: lost for o in outcomes if not o.possible and o.lost}
        ends.append(_by_block(side, metric, of_trials))
    least, most = (min(figures.values()), max(figures.values())) if figures else (0.0, 0.0)
    if is_count:
        least, most = -math.inf, math.inf
    return Selection(
        metric,
        outcomes,
        figures,
        {block: max(value, least / NATURAL_FACTOR) for block, value in ends[0].items()},
        {block: min(value, most * NATURAL_FACTOR) for block, value in ends[1].items()},
        tuple(side.limited),
        frozenset(code for t in side.limited for code in side.measure.limits & t.limits(side.measure.role)),
        frozenset(
            o.trial.block for o in outcomes if o.possible and OPEN_ENDED & o.possible.widths.keys()
        ),
    )  # fmt: skip


def _counted(outcome: TrialOutcome, metric: str, of_trial: Figure) -> TrialOutcome:
    """A count has no set; what counts failures is known best from trials that were refused for them."""
    refused = {finding.code for finding in outcome.trial.findings if finding.severity is Validity.INVALID}
    usable = not refused or (metric in OF_FAILURES and refused <= FAILURE_FINDINGS)
    value = of_trial(outcome.trial) if usable else None
    return TrialOutcome(outcome.trial, None if value is None else Possible(value, value, value))


def _measure(run: Run, trials: Sequence[TrialRecord], metric: str, of_trial: Figure) -> Measure:
    prefix, _, name = metric.removeprefix(CROSSCHECK).removesuffix("_us").rpartition("_")
    percentile = _PERCENTILES.get(name, 0.0) if metric.endswith("_us") else 0.0
    if _is_rate(metric):
        nature = Nature.RATE
    elif percentile:
        nature = Nature.PERCENTILE
    elif metric.endswith(("_mean_ms", "_mean_us")):
        nature = Nature.MEAN
    else:
        nature = Nature.CPU if metric.endswith("cpu_us_per_request") else Nature.COUNT
    quantity = Quantity(
        nature,
        percentile,
        prefix,
        unit_s=1e6 if metric.endswith("_us") else 1e3,
        is_open=any(trial.scenario.load.is_open for trial in trials),
        prescribed=frozenset({Code.LINK_BOUND} if run.manifest.experiment.prescribes_link else ()) | {Code.LITTLES_LAW},
    )
    return Measure(of_trial, quantity, _role(metric, trials), _is_rate(metric), _limits(run, trials, metric))


def column_of(metric: str) -> Figure:
    """A column of trials.csv as a trial's figure. Service times are the cross-check's where it logs them, else the
    primary's.
    """
    column = "goodput_rps" if metric in SWEEPS else metric

    def figure(trial: TrialRecord) -> float | None:
        row = flat(trial)
        value = row.get(CROSSCHECK + column) if metric.startswith("service_time_") else None
        value = row.get(column) if value is None else value
        return float(value) if isinstance(value, int | float) else None

    return figure


def _role(metric: str, trials: Sequence[TrialRecord]) -> Role:
    """The measurement that holds a column."""
    if metric.startswith(CROSSCHECK):
        return Role.CROSSCHECK
    timed = metric.startswith("service_time_") and any(t.crosscheck and t.crosscheck.logs_service_times for t in trials)
    return Role.CROSSCHECK if timed else Role.PRIMARY


def _limits(run: Run, trials: Sequence[TrialRecord], metric: str) -> frozenset[Code]:
    """The findings that bound this metric. A link whose rate the experiment prescribes is part of what it asks, and
    users that pause are part of the tool that the source used as well.
    """
    if not (_is_time(metric) or _is_rate(metric)):
        return frozenset()
    codes = OPEN_PACE_LIMITS if any(trial.scenario.load.is_open for trial in trials) else PACE_LIMITS
    return codes - {Code.LITTLES_LAW, *([Code.LINK_BOUND] if run.manifest.experiment.prescribes_link else [])}


def _is_time(metric: str) -> bool:
    return metric.endswith(("_ms", "_us"))


def _is_rate(metric: str) -> bool:
    return metric.endswith(("_rps", "_mb_per_s")) or metric in {"transactions", "transferred_mb"}


def _by_block(side: Side, metric: str, values: Mapping[tuple[int, int], float]) -> dict[int, float]:
    """Block → one figure over the cells, from the figure of each trial by its key; in a metric of SWEEPS a sweep is one
    cell. A block that lacks a cell which another has is left out.
    """
    cells: dict[int, dict[object, float]] = {}
    for block, members in by_block([trial for trial in side.trials if trial.key in values]).items():
        if metric in SWEEPS:
            ordered = sorted(members, key=_sweep)
            cells[block] = {
                key: SWEEPS[metric]([(t.offered.offered_rps or math.nan, values[t.key]) for t in steps])
                for key, steps in groupby(ordered, key=_sweep)
            }
        else:
            cells[block] = {(t.arm, t.scenario): values[t.key] for t in members}
    every = {cell for figures in cells.values() for cell in figures}
    combine = OF_FAILURES.get(metric, median)
    return {
        block: float(combine(list(figures.values()))) for block, figures in cells.items() if len(figures) == len(every)
    }


def _sweep(trial: TrialRecord) -> tuple[str, str, str]:
    return trial.arm.environment, trial.scenario.server, trial.scenario.workload


def knee_rps(steps: Iterable[tuple[float, float]]) -> float:
    """The highest offered rate up to which every step's goodput is KNEE of it; 0 when none is. `steps`: offered rate
    and goodput.
    """
    served = 0.0
    for offered, goodput in sorted(steps):
        if not goodput >= KNEE * offered:
            break
        served = offered
    return served


# Figures of a whole rate sweep, of its steps: offered rate and goodput.
SWEEPS: Mapping[str, Callable[[Sequence[tuple[float, float]]], float]] = {
    "peak_goodput_rps": lambda steps: max(goodput for _, goodput in steps),
    "goodput_knee_rps": knee_rps,
}


def trimmed_2009(values: Sequence[float]) -> float | None:
    """The estimator of the 2009 experiment: of the first six runs drop the best and the worst, average the other four.
    In the unit of the values; None when there are fewer than six.
    """
    return float(np.sort(np.asarray(values, dtype=float)[:6])[1:5].mean()) if len(values) >= 6 else None


def estimate(figures: Sequence[float], estimator: Estimator) -> Level:
    """The figures of the blocks, in their order, as the source made one of them; and which way.

    `trimmed-six`: of the first six best and worst dropped, four averaged (2009). `mean-of-three`: the first three
    averaged (2008). Else the median. With fewer blocks than that: their mean. None without a figure.
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


def decide(seen: Ratio, published: float, within_pct: float | None, margin: float) -> Decision:
    """A ratio against the published one; `margin` a fraction below which a difference is none.

    Direction: confirmed when the whole interval lies on the published side of 1; refuted when it lies on the other,
    or within the margin where the published one does not. Equality: confirmed when the whole interval lies within
    ±`within_pct`, refuted when it lies outside.
    """
    if seen.estimate.low is None:
        return Decision(Outcome.INCONCLUSIVE, None, _few_blocks(seen.blocks))
    if within_pct is not None:
        limit = 1 + within_pct / 100
        location, claimed = seen.region(limit), Region.WITHIN
    else:
        limit, location, claimed = _direction(seen, published, margin)
    missed = Outcome.INCONCLUSIVE if location is Region.ACROSS else Outcome.REFUTED
    reason = Reason(ReasonCode.INTERVAL, {"limit": limit})
    return Decision(Outcome.CONFIRMED if location is claimed else missed, location, reason)


def _direction(seen: Ratio, published: float, margin: float) -> tuple[float, Region, Region]:
    """The limit by which a direction is judged, the interval's location, and the location claimed."""
    limit, location = 1.0, seen.region(1.0)
    different = abs(math.log(published)) > math.log1p(margin)
    if location is Region.ACROSS and different:
        location = Region.WITHIN if seen.region(1 + margin) is Region.WITHIN else location
    if location is Region.WITHIN:
        limit = 1 + margin
    return limit, location, Region.ABOVE if published > 1 else Region.BELOW


def _few_blocks(blocks: int) -> Reason:
    return Reason(ReasonCode.FEW_BLOCKS, {"blocks": blocks, "needed": MIN_BLOCKS})


def judge_claims(run: Run, correlation: Floats | None = None) -> list[ClaimResult]:
    """The claims of the run's experiment, in its order; none for an experiment that has none. `correlation`: the
    weights of the autocorrelation of the run's blocks, by default what the claims' own ratios tell of it.
    """
    chosen = [(claim, _selections(run, claim)) for claim in run.manifest.experiment.claims]
    if correlation is None:
        correlation = correlation_of([each for _, each in chosen if len(each) == 2])
    return [_judge(run, claim, each, correlation) for claim, each in chosen]


def correlation_of(pairs: Iterable[Sequence[Selection]]) -> Floats:
    """The weights of the autocorrelation of blocks, by the ratios of these selections."""
    bounds = [log_ratios(of, over) for of, over in pairs]
    return autocorrelation([each.mid for each in bounds if each])


def _selections(run: Run, claim: Claim) -> list[Selection]:
    """The sides of a claim. Rates are the cross-check's where the client or the link limited the tool more often, as in
    a verdict.
    """
    sides = (claim.of, claim.over) if claim.over else (claim.of,)
    trials = [select(run, named) for named in sides]
    chosen = selections(run, trials, claim.metric, column_of(claim.metric))
    if claim.metric != THROUGHPUT.field:
        return chosen
    cheaper = selections(run, trials, CROSSCHECK + claim.metric, column_of(CROSSCHECK + claim.metric))
    counts = [(sum(len(s.used) for s in each), sum(len(s.limited) for s in each)) for each in (chosen, cheaper)]
    closed = not any(trial.scenario.load.is_open for side in trials for trial in side)
    return cheaper if closed and less_limited(*counts) is Role.CROSSCHECK else chosen


def count_outcomes(results: Sequence[ClaimResult]) -> dict[Outcome, int]:
    """Outcome → how many claims have it."""
    return {outcome: sum(result.outcome is outcome for result in results) for outcome in Outcome}


def _judge(run: Run, claim: Claim, chosen: Sequence[Selection], correlation: Floats) -> ClaimResult:
    sides = (claim.of, claim.over) if claim.over else (claim.of,)
    estimator = run.manifest.experiment.published_estimator
    seen = ratio(run, chosen[0], chosen[1], correlation) if len(chosen) == 2 else None
    reasons = tuple(refusals_of(run, sides, chosen, claim.metric))
    if reasons:
        decision = Decision(Outcome.INCONCLUSIVE, None, reasons[0])
    else:
        decision = _decide(run, claim, chosen, seen, correlation)
        reasons = (decision.reason, *_notes(run, sides, chosen))
    return ClaimResult(
        says=claim.says,
        metric=claim.metric,
        unit=UNITS.get(claim.metric, ""),
        sides=sides,
        published=tuple(claim.published),
        levels=tuple(estimate(list(each.figures.values()), estimator) for each in chosen),
        published_ratio=_ratio_of(claim.published),
        ratio=seen.estimate if seen else None,
        limited=seen.limited if seen else set(chosen[0].figures) <= chosen[0].open_blocks,
        blocks=seen.blocks if seen else len(chosen[0].figures),
        outcome=decision.outcome,
        region=decision.region,
        reasons=reasons,
    )


def _decide(
    run: Run, claim: Claim, chosen: Sequence[Selection], seen: Ratio | None, correlation: Floats
) -> Decision:  # fmt: skip
    if claim.over is None:
        return _decide_level(run, chosen[0], claim, correlation)
    if seen is None:
        return Decision(Outcome.INCONCLUSIVE, None, Reason(ReasonCode.ZERO_HAS_NO_RATIO))
    return decide(seen, _published_ratio(claim.published), claim.within_pct, run.manifest.experiment.margin)


def _decide_level(run: Run, chosen: Selection, claim: Claim, correlation: Floats) -> Decision:
    """One side against a level: the interval of its mean decides, over whatever findings allow.

    Of what counts failures, at most `at_most`: one block with more refutes it, whatever the mean.
    """
    if claim.at_most is not None and chosen.metric in COUNTS_FAILURES:
        beyond = [figure for figure in chosen.figures.values() if figure > claim.at_most]
        if beyond:
            values = {"most": max(beyond), "blocks": float(len(chosen.figures))}
            return Decision(Outcome.REFUTED, Region.ABOVE, Reason(ReasonCode.FAILURES_IN_A_BLOCK, values))
    low, high = (Series(tuple(end), tuple(end.values())) for end in (chosen.low, chosen.high))
    interval = _interval(low, high, correlation, ALPHA * run.share_of(chosen.figures), floor=0.0)
    if interval is None:
        return Decision(Outcome.INCONCLUSIVE, None, _few_blocks(len(chosen.figures)))
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


def refusals_of(run: Run, sides: Sequence[ClaimSide], selections: Sequence[Selection], metric: str) -> Iterator[Reason]:
    """Reasons why these figures decide nothing, whatever they are."""
    if any(not chosen.trials for chosen in selections):
        yield from _absences(run, sides, selections)
        return
    codes = {chosen.emulation for chosen in selections}
    emulation = next((code for code in (ReasonCode.EMULATED, ReasonCode.EMULATED_HARDWARE) if code in codes), None)
    if emulation and metric not in SOUND_UNDER_EMULATION:
        yield Reason(emulation)
    if metric in PER_RUN and len({_requests(chosen) for chosen in selections}) > 1:
        yield Reason(ReasonCode.DIFFERENT_REQUESTS)
    yield from _cores(run, sides, selections)
    for index, chosen in enumerate(selections):
        if not chosen.used:
            yield Reason(ReasonCode.NO_FIGURE, {"side": index}, (metric,), tuple(sorted(chosen.refused)))
    if all(chosen.used for chosen in selections) and any(not chosen.figures for chosen in selections):
        yield Reason(ReasonCode.NO_COMPLETE_BLOCK)


def _absences(run: Run, sides: Sequence[ClaimSide], selections: Sequence[Selection]) -> Iterator[Reason]:
    skipped = run.manifest.skipped_servers
    measured = (
        {trial.scenario.server for trial in run.trials},
        {trial.arm.environment for trial in run.trials},
        {trial.scenario.workload for trial in run.trials},
    )
    for index, (claimed, chosen) in enumerate(zip(sides, selections, strict=True)):
        if chosen.trials:
            continue
        names_and_measured = zip(names_of(claimed), measured, strict=True)
        absent = [name for names, present in names_and_measured for name in names if name not in present]
        if lacking := tuple(name for name in absent if name in skipped):
            yield why_skipped(run, lacking)
        else:
            yield Reason(ReasonCode.NOT_MEASURED, {"side": index}, tuple(absent))


def why_skipped(run: Run, servers: tuple[str, ...]) -> Reason:
    """Reason why a run has skipped these servers: their release lacks them, or their source was not available."""
    releases = [skip.release for skip in run.manifest.skipped if skip.server in servers and skip.release]
    if releases:
        return Reason(ReasonCode.NOT_SHIPPED, names=(releases[0], *servers))
    return Reason(ReasonCode.SOURCE_NOT_AT_HAND, names=servers)


def _requests(chosen: Selection) -> float:
    """Requests of a trial, to two digits."""
    counts = [t.primary.transactions for t in chosen.trials if t.primary and t.primary.transactions is not None]
    return float(f"{median(counts):.2g}") if counts else math.nan


def _cores(run: Run, sides: Sequence[ClaimSide], selections: Sequence[Selection]) -> Iterator[Reason]:
    """A claim about more cores, or more workers, where the server had no more of them.

    An experiment that limits the cores of one workload means more cores by its others; sides whose servers have
    different numbers of workers mean what these do side by side.
    """
    had = [chosen.cores for chosen in selections]
    if not all(had):
        return
    limits = {name: workload.cores for name, workload in run.manifest.workloads.items()}
    fewest = min((cores for cores in limits.values() if cores), default=0)
    unlimited = [any(not limits.get(workload) for workload in listed(named.workload)) for named in sides]
    if fewest and any(free and cores <= fewest for free, cores in zip(unlimited, had, strict=True)):
        yield Reason(ReasonCode.TOO_FEW_CORES, {"about": fewest, "had": min(had)})
        return
    workers = [max(_workers(run, server) for server in listed(named.server)) for named in sides]
    if max(had) == 1 and len(workers) == 2 and all(workers) and workers[0] != workers[1]:
        yield Reason(ReasonCode.ONE_CORE_FOR_WORKERS)


def _workers(run: Run, server: str) -> int:
    facts = (host.get("servers") or {} for host in run.hosts.values())
    return max((int((servers.get(server) or {}).get("workers") or 0) for servers in facts), default=0)


def _notes(run: Run, sides: Sequence[ClaimSide], selections: Sequence[Selection]) -> Iterator[Reason]:
    """Notes on bounds of the figures; for a ratio also on the experiment's own full link and on missing servers."""
    if limited := sum(len(chosen.limited) for chosen in selections):
        codes = tuple(sorted({code for chosen in selections for code in chosen.limits}))
        used = sum(len(chosen.used) for chosen in selections)
        yield Reason(ReasonCode.LIMITED, {"trials": limited, "used": used}, codes=codes)
    if len(sides) == 1:
        return
    experiment = run.manifest.experiment
    full = sum(Code.LINK_BOUND in trial.codes for chosen in selections for trial in chosen.trials)
    if full and experiment.prescribes_link:
        yield Reason(ReasonCode.FULL_LINK, {"trials": full}, (experiment.link,))
    lacking = [
        skip.server
        for named in sides
        for skip in run.manifest.skipped
        if skip.server in listed(named.server) and skip.workload in (None, *listed(named.workload))
    ]
    if lacking:
        yield Reason(ReasonCode.WITHOUT_SERVERS, names=tuple(dict.fromkeys(filter(None, lacking))))


def _ratio_of(published: Sequence[float]) -> float | None:
    return published[0] / published[1] if len(published) == 2 and min(published) > 0 else None


def _published_ratio(published: Sequence[float]) -> float:
    """`of` ÷ `over`; without figures `of` is claimed to be the larger."""
    return _ratio_of(published) or (5e-324 if len(published) == 2 and not published[0] else math.inf)

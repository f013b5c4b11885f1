"""The claims of a run's experiment: each is confirmed, refuted, or inconclusive here.

A side is any selection of trials; a block's figure is the median over its cells of the matrix.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from statistics import median

import numpy as np

from vmtoll.analysis.judge import in_ratio, region
from vmtoll.analysis.pairs import Figure, Pairs, Side, side
from vmtoll.analysis.run import Run, by_block
from vmtoll.analysis.statistics import ALPHA, Interval, half_width, trimmed_2009
from vmtoll.model.columns import CROSSCHECK, flat, table_schema
from vmtoll.model.experiment import Claim, ClaimSide, Estimator
from vmtoll.model.finding import OPEN_PACE_LIMITS, PACE_LIMITS, Code, Role, Validity
from vmtoll.model.hardware import Hardware
from vmtoll.model.load import Load, LoadKind
from vmtoll.model.trial import Accelerator, TrialRecord
from vmtoll.model.verdict import ClaimResult, Estimate, EstimatorUsed, Level, Outcome, Reason, ReasonCode, Region
from vmtoll.model.workload import listed

MIN_CLAIM_BLOCKS = 3  # two blocks have an interval in name only: t(0.975, 1) = 12.7
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
PER_RUN = frozenset({"server_cpu_user_s", "server_cpu_system_s"})  # seconds over all requests of a trial
UNITS = {column["name"]: column["unit"] for column in table_schema()["fields"]}
UNITS |= {"peak_goodput_rps": "1/s", "goodput_knee_rps": "1/s"}


@dataclass(frozen=True, kw_only=True)
class Selection(Side):
    """The figures of some trials, by block, for a metric: a column of trials.csv, or a figure of a whole rate sweep.

    `alpha`: one less the confidence of its interval; 0 before the first look of a run that goes on until it knows.
    """

    metric: str
    alpha: float = ALPHA

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

    @property
    def proves_more(self) -> bool:
        """Return whether its figure proves that the server reaches it or more.

        If the client or the link was the bottleneck, the server could have done more: a rate is then a lower bound and
        a time an upper one.
        """
        return not self.limited or not _is_time(self.metric)

    @property
    def proves_less(self) -> bool:
        """Return whether its figure proves that the server reaches it or less."""
        return not self.limited or _is_time(self.metric)

    @cached_property
    def interval(self) -> Interval | None:
        """Student's interval of the mean over blocks, in the metric's unit; None below MIN_CLAIM_BLOCKS."""
        values = np.array(list(self.figures.values()), dtype=float)
        if len(values) < MIN_CLAIM_BLOCKS or not self.alpha:
            return None
        half = half_width(float(values.std(ddof=1)), len(values), self.alpha)
        return Interval(float(values.mean()) - half, float(values.mean()) + half)


@dataclass(frozen=True)
class Ratio:
    """One selection over another: the geometric mean over blocks with its paired-t interval, of 95% where the number of
    blocks was fixed.

    A limit on the side of the numerator leaves a rate's ratio too small (only `proves_more`), one on the other too
    large.
    """

    estimate: Estimate
    blocks: int
    proves_more: bool = True
    proves_less: bool = True

    def region(self, limit: float) -> Region:
        """Position of the interval relative to 1/limit and limit; ACROSS without an interval."""
        low, high = self.estimate.low, self.estimate.high
        if low is None or high is None:
            return Region.ACROSS
        return region(low, high, 1 / limit, limit, more=self.proves_more, less=self.proves_less)


def ratio(run: Run, of: Selection, over: Selection) -> Ratio | None:
    """`of` ÷ `over` over the blocks that both have; None when there is none or a figure is not above zero."""
    pairs = Pairs(over, of)
    effect, alpha = pairs.effect, ALPHA * run.share_of(pairs.blocks)
    if effect is None:
        return None
    has_interval = effect.n >= MIN_CLAIM_BLOCKS and alpha > 0
    half = effect.half_width(alpha) if has_interval else 0.0
    estimate = in_ratio(effect.mean, Interval(effect.mean - half, effect.mean + half) if has_interval else None)
    return Ratio(estimate, effect.n, of.proves_more and over.proves_less, of.proves_less and over.proves_more)


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
    """The figures of these trials by block; `of_trial` gives each trial's own, for a metric named `metric`.

    Where several cells match, a block's figure is the median over them (see OF_FAILURES for what counts failures),
    and a block that lacks one is left out.
    """
    role = _role(metric, trials)
    whole = side(
        trials, of_trial, limits=_limits(run, trials, metric), role=role, usable=_usable(metric), positive=False
    )
    figures = _by_block(whole, metric, of_trial)
    alpha = ALPHA * run.share_of(figures)
    return Selection(**(vars(whole) | {"metric": metric, "figures": figures, "alpha": alpha}))


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


def _usable(metric: str) -> Callable[[TrialRecord], bool]:
    def usable(trial: TrialRecord) -> bool:
        refused = {finding.code for finding in trial.findings if finding.severity is Validity.INVALID}
        return not refused or (metric in OF_FAILURES and refused <= FAILURE_FINDINGS)

    return usable


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


def _by_block(whole: Side, metric: str, of_trial: Figure) -> dict[int, float]:
    """Block → one figure over the cells; in a metric of SWEEPS a sweep is one cell."""
    cells: dict[int, dict[object, float]] = {}
    for block, members in by_block(whole.used).items():
        if metric in SWEEPS:
            ordered = sorted(members, key=_sweep)
            cells[block] = {key: SWEEPS[metric](list(steps)) for key, steps in groupby(ordered, key=_sweep)}
        else:
            cells[block] = {(t.arm, t.scenario): value for t in members if (value := of_trial(t)) is not None}
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


def _goodput(step: TrialRecord) -> float:
    return (step.primary and step.primary.goodput_rps) or 0.0


# Figures of a whole rate sweep.
SWEEPS: Mapping[str, Callable[[Sequence[TrialRecord]], float]] = {
    "peak_goodput_rps": lambda steps: max(map(_goodput, steps)),
    "goodput_knee_rps": lambda steps: knee_rps((s.offered.offered_rps or math.nan, _goodput(s)) for s in steps),
}


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
    ±`within_pct`, refuted when it lies outside. A bound (see Ratio) decides only in the direction it proves.
    """
    if seen.estimate.low is None:
        return Decision(Outcome.INCONCLUSIVE, None, _few_blocks(seen.blocks))
    if within_pct is not None:
        limit = 1 + within_pct / 100
        location, claimed = seen.region(limit), Region.WITHIN
    else:
        limit, location, claimed = _direction(seen, published, margin)
    missed = Outcome.INCONCLUSIVE if location in (Region.ACROSS, Region.BOUND) else Outcome.REFUTED
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
    return Reason(ReasonCode.FEW_BLOCKS, {"blocks": blocks, "needed": MIN_CLAIM_BLOCKS})


def judge_claims(run: Run) -> list[ClaimResult]:
    """The claims of the run's experiment, in its order; none for an experiment that has none."""
    return [_judge(run, claim) for claim in run.manifest.experiment.claims]


def count_outcomes(results: Sequence[ClaimResult]) -> dict[Outcome, int]:
    """Outcome → how many claims have it."""
    return {outcome: sum(result.outcome is outcome for result in results) for outcome in Outcome}


def _judge(run: Run, claim: Claim) -> ClaimResult:
    sides = (claim.of, claim.over) if claim.over else (claim.of,)
    selections = [selection(run, select(run, named), claim.metric, column_of(claim.metric)) for named in sides]
    estimator = run.manifest.experiment.published_estimator
    seen = ratio(run, *selections) if len(selections) == 2 else None
    reasons = tuple(refusals_of(run, sides, selections, claim.metric))
    if reasons:
        decision = Decision(Outcome.INCONCLUSIVE, None, reasons[0])
    else:
        decision = _decide(run, claim, selections, seen)
        reasons = (decision.reason, *_notes(run, sides, selections))
    return ClaimResult(
        says=claim.says,
        metric=claim.metric,
        unit=UNITS.get(claim.metric, ""),
        sides=sides,
        published=tuple(claim.published),
        levels=tuple(estimate(list(chosen.figures.values()), estimator) for chosen in selections),
        published_ratio=_ratio_of(claim.published),
        ratio=seen.estimate if seen else None,
        proves_more=seen.proves_more if seen else selections[0].proves_more,
        proves_less=seen.proves_less if seen else selections[0].proves_less,
        blocks=seen.blocks if seen else len(selections[0].figures),
        outcome=decision.outcome,
        region=decision.region,
        reasons=reasons,
    )


def _decide(run: Run, claim: Claim, selections: Sequence[Selection], seen: Ratio | None) -> Decision:
    if claim.over is None:
        return _decide_level(selections[0], claim)
    if seen is None:
        return Decision(Outcome.INCONCLUSIVE, None, Reason(ReasonCode.ZERO_HAS_NO_RATIO))
    return decide(seen, _published_ratio(claim.published), claim.within_pct, run.manifest.experiment.margin)


def _decide_level(chosen: Selection, claim: Claim) -> Decision:
    """One side against a level: the 95% interval of its mean decides.

    Of what counts failures, at most `at_most`: one block with more refutes it, whatever the mean.
    """
    if claim.at_most is not None and chosen.metric in COUNTS_FAILURES:
        beyond = [figure for figure in chosen.figures.values() if figure > claim.at_most]
        if beyond:
            values = {"most": max(beyond), "blocks": float(len(chosen.figures))}
            return Decision(Outcome.REFUTED, Region.ABOVE, Reason(ReasonCode.FAILURES_IN_A_BLOCK, values))
    if chosen.interval is None:
        return Decision(Outcome.INCONCLUSIVE, None, _few_blocks(len(chosen.figures)))
    low, high = chosen.interval.low, chosen.interval.high
    at_least = claim.at_least is not None
    limit = next(level for level in (claim.at_least, claim.at_most) if level is not None)
    # At the limit itself the claim is confirmed.
    above = (low >= limit if at_least else low > limit) and chosen.proves_more
    below = (high < limit if at_least else high <= limit) and chosen.proves_less
    reason = Reason(ReasonCode.LEVEL, {"low": low, "high": high, "limit": limit})
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

"""The figures of any selection of trials, block by block, with the ends that findings and lost trials allow.

A block's figure is the median over the combinations of arm and scenario that match; a rate sweep has one figure for all
its steps.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from statistics import median

from vmtoll.analysis.run import Run, by_block
from vmtoll.analysis.sets import BoundedFigure, Nature, is_rate, quantity_of
from vmtoll.analysis.sides import Measure, Side, TrialOutcome, sides_of
from vmtoll.model.claim import ReasonCode
from vmtoll.model.columns import value_of
from vmtoll.model.experiment import ClaimSide
from vmtoll.model.finding import CLOSED_LOOP_LIMITS, OPEN_LOOP_LIMITS, Code, Role, Validity
from vmtoll.model.hardware import Hardware
from vmtoll.model.load import Load, LoadKind
from vmtoll.model.metric import is_answered
from vmtoll.model.trial import CROSSCHECK, Accelerator, TrialRecord
from vmtoll.model.workload import listed
from vmtoll.statistics.thresholds import NATURAL_FACTOR

TrialFigure = Callable[[TrialRecord], float | None]
Figures = Mapping[int, float]  # by block
KNEE = 0.9  # a step counts as served if this share of its offered rate comes back in time
# Metrics that count failures also use the trials that were refused for failures. Metric → how the figures of a block
# become one figure: a failure in one combination must not hide behind the others.
FAILURE_METRICS: Mapping[str, Callable[[Sequence[float]], float]] = {
    "availability_pct": min, "failed": sum, "bodies_wrong": sum, "messages_lost": sum, "messages_doubled": sum,
}  # fmt: skip
FAILURE_COUNTS = frozenset(metric for metric, combine in FAILURE_METRICS.items() if combine is sum)
FAILURE_FINDINGS = frozenset({Code.FAILED_REQUESTS, Code.LOST_MAIL, Code.WRONG_BODY})


@dataclass(frozen=True)
class Selection(Side):
    """The trials of a side of a claim, for a metric: a column of trials.csv, or a figure of a whole rate sweep."""

    metric: str

    @cached_property
    def _by_trial(self) -> Mapping[tuple[int, int], BoundedFigure]:
        return {outcome.trial.key: outcome.figure for outcome in self.outcomes if outcome.figure}

    @cached_property
    def figures(self) -> Figures:
        """As measured."""
        return self._by_block({key: figure.value for key, figure in self._by_trial.items()})

    @cached_property
    def ends(self) -> tuple[tuple[Figures, Figures], tuple[Figures, Figures]]:
        """The least and the largest figures that findings and lost trials allow, which may have more blocks: with the
        client's own CPU time, and without it. It counts on both sides or on neither.
        """
        without_client = {key: figure.without_client for key, figure in self._by_trial.items()}
        return self._ends(self._by_trial), self._ends(without_client)

    def _ends(self, figures: Mapping[tuple[int, int], BoundedFigure]) -> tuple[Figures, Figures]:
        low, high = ({key: getattr(figure, end) for key, figure in figures.items()} for end in ("low", "high"))
        if not figures or self.measure.quantity.nature is Nature.COUNT:
            return self._by_block(low), self._by_block(high)
        # A lost trial counts as twice as bad as the worst of its side.
        lost = [o.trial.key for o in self.outcomes if not o.figure and o.lost]
        measured = [figure.value for figure in figures.values()]
        if self.measure.higher_is_better:
            low |= dict.fromkeys(lost, min(measured) / NATURAL_FACTOR)
        else:
            high |= dict.fromkeys(lost, max(measured) * NATURAL_FACTOR)
        mids = self._by_block({key: figure.value for key, figure in figures.items()}).values()
        least, most = (min(mids) / NATURAL_FACTOR, max(mids) * NATURAL_FACTOR) if mids else (-math.inf, math.inf)
        return (
            {block: max(value, least) for block, value in self._by_block(low).items()},
            {block: min(value, most) for block, value in self._by_block(high).items()},
        )

    def _by_block(self, values: Mapping[tuple[int, int], float]) -> dict[int, float]:
        """Block → one figure over its combinations of arm and scenario, from the figure of each trial by its key. For a
        metric of SWEEPS a sweep is one. A block that lacks a combination of another block is left out.
        """
        combinations: dict[int, dict[object, float]] = {}
        for block, members in by_block([trial for trial in self.trials if trial.key in values]).items():
            if self.metric in SWEEPS:
                ordered = sorted(members, key=_sweep)
                combinations[block] = {
                    key: SWEEPS[self.metric]([(t.offered.offered_rps or math.nan, values[t.key]) for t in steps])
                    for key, steps in groupby(ordered, key=_sweep)
                }
            else:
                combinations[block] = {(t.arm, t.scenario): values[t.key] for t in members}
        all_combinations = {combination for figures in combinations.values() for combination in figures}
        combine = FAILURE_METRICS.get(self.metric, median)
        return {
            block: float(combine(list(figures.values())))
            for block, figures in combinations.items()
            if len(figures) == len(all_combinations)
        }

    @property
    def limits(self) -> frozenset[Code]:
        """The findings that say that the client or the link limited a trial."""
        return frozenset(c for t in self.limited for c in self.measure.limits & t.limits(self.measure.role))

    @property
    def refused(self) -> frozenset[Code]:
        """The findings of trials without a figure."""
        return frozenset(code for outcome in self.outcomes if not outcome.figure for code in outcome.trial.codes)

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


def select_trials(run: Run, side: ClaimSide) -> list[TrialRecord]:
    """The trials that `side` names by server, environment, workload and users, without A/A controls."""
    servers, environments, workloads = names_of(side)
    loads = None if side.users is None else [Load(LoadKind.CLOSED, users) for users in listed(side.users)]
    return [
        trial
        for trial in run.trials
        if not trial.arm.is_control
        and trial.scenario.server in servers
        and trial.arm.environment in environments
        and trial.scenario.workload in workloads
        and (loads is None or trial.scenario.load.on_one_machine in loads)
    ]


def names_of(side: ClaimSide) -> tuple[Sequence[str], Sequence[str], Sequence[str]]:
    """The servers, environments and workloads of a side."""
    return listed(side.server), listed(side.environment), listed(side.workload)


def figures_of_side(run: Run, trials: Sequence[TrialRecord], metric: str, trial_figure: TrialFigure) -> Selection:
    """The figures of a single side by block; see `figures_of_sides`."""
    return figures_of_sides(run, [trials], metric, trial_figure)[0]


def figures_of_sides(
    run: Run, sides: Sequence[Sequence[TrialRecord]], metric: str, trial_figure: TrialFigure
) -> list[Selection]:  # fmt: skip
    """The figures of one or two sides by block; `trial_figure` gives each trial's own, for a metric named `metric`.

    Where several combinations of arm and scenario match, a block's figure is the median over them (for counts of
    failures see FAILURE_METRICS), and a block that lacks one of them is left out.
    """
    all_trials = [trial for side in sides for trial in side]
    measure = _measure(run, all_trials, metric, trial_figure)
    outcome_sides = sides_of(run, sides[0], sides[1] if len(sides) > 1 else (), measure)[: len(sides)]
    return [_selection(side, metric, trial_figure) for side in outcome_sides]


def _selection(side: Side, metric: str, trial_figure: TrialFigure) -> Selection:
    outcomes = side.outcomes
    if side.measure.quantity.nature is Nature.COUNT:
        outcomes = tuple(_count_outcome(outcome, metric, trial_figure) for outcome in outcomes)
    return Selection(outcomes, side.measure, metric)


def _count_outcome(outcome: TrialOutcome, metric: str, trial_figure: TrialFigure) -> TrialOutcome:
    """The outcome of a count, which has no bounds; a count of failures also uses trials refused for failures alone."""
    refused = {finding.code for finding in outcome.trial.findings if finding.severity is Validity.INVALID}
    usable = not refused or (metric in FAILURE_METRICS and refused <= FAILURE_FINDINGS)
    value = trial_figure(outcome.trial) if usable else None
    return TrialOutcome(outcome.trial, None if value is None else BoundedFigure(value, value, value))


def _measure(run: Run, trials: Sequence[TrialRecord], metric: str, trial_figure: TrialFigure) -> Measure:
    quantity = quantity_of(metric, is_open=any(trial.scenario.load.is_open for trial in trials))
    prescribed = frozenset({Code.LINK_BOUND} if run.manifest.experiment.prescribes_link else ()) | {Code.LITTLES_LAW}
    quantity = replace(quantity, prescribed=prescribed, excludes_client=True)
    return Measure(trial_figure, quantity, _role(metric, trials), is_rate(metric), _limits(run, trials, metric))


def column_of(metric: str) -> TrialFigure:
    """A column of trials.csv as a trial's figure. Service times are the cross-check's if it logs them, else the
    primary's.
    """
    column = "goodput_rps" if metric in SWEEPS else metric

    def figure(trial: TrialRecord) -> float | None:
        measurement = trial.crosscheck if column.startswith(CROSSCHECK) else trial.primary
        if column.endswith("cpu_us_per_request") and measurement and not is_answered(measurement):
            return None
        value = value_of(trial, CROSSCHECK + column) if metric.startswith("service_time_") else None
        value = value_of(trial, column) if value is None else value
        return None if value is None else float(value)

    return figure


def _role(metric: str, trials: Sequence[TrialRecord]) -> Role:
    """Role of the measurement that a column comes from."""
    if metric.startswith(CROSSCHECK):
        return Role.CROSSCHECK
    uses_crosscheck = metric.startswith("service_time_") and any(
        t.crosscheck and t.crosscheck.logs_service_times for t in trials
    )
    return Role.CROSSCHECK if uses_crosscheck else Role.PRIMARY


def _limits(run: Run, trials: Sequence[TrialRecord], metric: str) -> frozenset[Code]:
    """The findings that mean that the client or the link limited this metric. Two do not count: a full link whose rate
    the experiment prescribes, and users that pause (LITTLES_LAW), because they did so in the source's tool as well.
    """
    if not (_is_time(metric) or is_rate(metric)):
        return frozenset()
    codes = OPEN_LOOP_LIMITS if any(trial.scenario.load.is_open for trial in trials) else CLOSED_LOOP_LIMITS
    return codes - {Code.LITTLES_LAW, *([Code.LINK_BOUND] if run.manifest.experiment.prescribes_link else [])}


def _is_time(metric: str) -> bool:
    return metric.endswith(("_ms", "_us"))


def _sweep(trial: TrialRecord) -> tuple[str, str, str]:
    return trial.arm.environment, trial.scenario.server, trial.scenario.workload


def knee_rps(steps: Iterable[tuple[float, float]]) -> float:
    """The highest offered rate up to which the goodput of every step is at least KNEE of its offered rate; 0 if none.
    `steps`: (offered rate, goodput).
    """
    served = 0.0
    for offered, goodput in sorted(steps):
        if not goodput >= KNEE * offered:
            break
        served = offered
    return served


# Figures of a whole rate sweep, from its steps: (offered rate, goodput).
SWEEPS: Mapping[str, Callable[[Sequence[tuple[float, float]]], float]] = {
    "peak_goodput_rps": lambda steps: max(goodput for _, goodput in steps),
    "goodput_knee_rps": knee_rps,
}

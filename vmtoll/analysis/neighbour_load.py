"""Effect of a neighbour's load on the guest that shares its host: each load against none, block by block."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from vmtoll.analysis.amounts import median_of
from vmtoll.analysis.judge import in_ratio
from vmtoll.analysis.pairs import pair, role_of
from vmtoll.analysis.run import Run
from vmtoll.analysis.sets import is_rate, quantity_of
from vmtoll.analysis.sides import Measure, sides_of
from vmtoll.model.columns import value_of
from vmtoll.model.finding import Role, Validity
from vmtoll.model.load import Load, NeighbourLoad
from vmtoll.model.metric import LATENCY_P99, Loop, loop_of
from vmtoll.model.trial import CROSSCHECK, Arm, Scenario, TrialRecord
from vmtoll.model.verdict import Estimate
from vmtoll.statistics.student import mean_of

# Kind of loop → the two fields of Measurement that a curve shows: the rate and the p99.
CURVE_FIELDS = {
    Loop.OPEN: ("goodput_rps", "response_time_p99_us"),
    Loop.CLOSED: ("throughput_rps", "service_time_p99_us"),
}


@dataclass(frozen=True)
class NeighbourStep:
    """One load on the neighbour."""

    load: NeighbourLoad
    answered_rps: float | None  # its answers per second, the median over trials, None without a figure
    trials: tuple[TrialRecord, ...]  # those of the machine under test that are not invalid, one per block

    def measure(self, field: str) -> Measure:
        """The Measure of a field of Measurement."""
        role = role_of(LATENCY_P99, Role.PRIMARY, self.trials) if field == LATENCY_P99.field else Role.PRIMARY
        prefix = CROSSCHECK if role is Role.CROSSCHECK else ""
        quantity = quantity_of(field, is_open=field.startswith("response"))
        return Measure(lambda trial: value_of(trial, prefix + field), quantity, role, is_rate(field))

    def level(self, run: Run, field: str) -> Estimate | None:
        """The geometric mean of a field, with its interval over blocks, in the field's unit; None without a figure."""
        figures = [v for v in sides_of(run, self.trials, (), self.measure(field))[0].figures.values() if v > 0]
        if not figures:
            return None
        level = mean_of(np.log(figures))
        return in_ratio(level.mean, level.t)


@dataclass(frozen=True)
class Curve:
    """One load on one server on one arm, under rising neighbour loads; `load` is the load without them."""

    server: str
    workload: str
    load: Load
    arm: Arm
    steps: tuple[NeighbourStep, ...]

    @property
    def fields(self) -> tuple[str, str]:
        """See CURVE_FIELDS."""
        return CURVE_FIELDS[loop_of(self.load)]

    def effect(self, run: Run, step: NeighbourStep, field: str) -> Estimate | None:
        """Ratio of a field under this neighbour load to none, by block; None for the quiet step, or without a pair."""
        quiet, measure = self.steps[0], step.measure(field)
        if quiet.load.value or quiet is step:
            return None
        ratios = pair(run, quiet.trials, step.trials, measure).bounds.mid.values
        if not ratios:
            return None
        effect = mean_of(ratios)
        return in_ratio(effect.mean, effect.t, measure.sign)


def curves_of(run: Run) -> list[Curve]:
    """Every load that was measured under two or more neighbour loads."""
    groups: dict[Scenario, list[Scenario]] = {}
    for scenario in run.scenarios:
        if scenario.load.neighbour is not None:
            load = Load(scenario.load.kind, scenario.load.value, scenario.load.guests)
            groups.setdefault(Scenario(scenario.server, scenario.workload, load), []).append(scenario)
    arms = [arm for arm in run.arms if not arm.is_control]
    curves = [
        Curve(key.server, key.workload, key.load, arm, tuple(_steps(run, scenarios, arm)))
        for key, scenarios in groups.items()
        for arm in arms
    ]
    return [curve for curve in curves if len(curve.steps) > 1]


def _steps(run: Run, scenarios: Sequence[Scenario], arm: Arm) -> Iterator[NeighbourStep]:
    for scenario in sorted(scenarios, key=lambda scenario: scenario.sort_key):
        trials = tuple(trial for trial in run.trials_of(scenario, arm) if trial.validity is not Validity.INVALID)
        answered = median_of(trial.resources.neighbour_rps for trial in trials)
        if trials and scenario.load.neighbour is not None:
            yield NeighbourStep(scenario.load.neighbour, answered, trials)

"""Effect of a neighbour's load on the guest that shares its host: each load against none, block by block."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from vmtoll.analysis.judge import in_ratio
from vmtoll.analysis.pairs import Pairs, Side, role_of, side
from vmtoll.analysis.run import Run
from vmtoll.analysis.statistics import fewest_requests, paired
from vmtoll.model.finding import Role, Validity
from vmtoll.model.load import Load, NeighbourLoad
from vmtoll.model.metric import LATENCY_P99, Loop, loop_of
from vmtoll.model.trial import Arm, Scenario, TrialRecord
from vmtoll.model.verdict import Estimate

# What is followed over the loads, by kind of loop: how much came through, and the tail; fields of Measurement.
FOLLOWED = {Loop.OPEN: ("goodput_rps", "response_time_p99_us"), Loop.CLOSED: ("throughput_rps", "service_time_p99_us")}


@dataclass(frozen=True)
class NeighbourStep:
    """One load on the neighbour. `answered_rps`: what it answered, None without a figure; `trials`: those of the
    machine under test that are not invalid, one per block.
    """

    load: NeighbourLoad
    answered_rps: float | None
    trials: tuple[TrialRecord, ...]

    def side(self, field: str) -> Side:
        """A field of the measurement by block."""
        role = Role.PRIMARY
        if field == LATENCY_P99.field:
            role = role_of(LATENCY_P99, role, self.trials)
        fewest = fewest_requests(0.99) if field.endswith("p99_us") else 0
        return side(self.trials, lambda trial: getattr(trial.measurement(role), field, None), role=role, fewest=fewest)

    def level(self, field: str) -> Estimate | None:
        """The geometric mean of a field, with its interval over blocks, in the field's unit; None without a figure."""
        figures = list(self.side(field).figures.values())
        if not figures:
            return None
        level = paired(np.log(figures))
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
        """See FOLLOWED."""
        return FOLLOWED[loop_of(self.load)]

    def effect(self, step: NeighbourStep, field: str) -> Estimate | None:
        """Ratio of a field under the neighbour's load to none in the same block; None where either lacks one."""
        quiet = self.steps[0]
        if quiet.load.value or quiet is step:
            return None
        effect = Pairs(quiet.side(field), step.side(field)).effect
        return in_ratio(effect.mean, effect.t) if effect else None


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
        answered = [rps for trial in trials if (rps := trial.resources.neighbour_rps) is not None]
        if trials and scenario.load.neighbour is not None:
            yield NeighbourStep(scenario.load.neighbour, float(median(answered)) if answered else None, trials)

"""Gain of each tuning step of a guest, with its interval and with the host's figures.

`cumulative` steps compare each profile with the one before it, `single` steps compare a profile that differs from the
base in one thing with that base. Metal is the level to reach.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np

from vmtoll.analysis.hypervisor import host_view
from vmtoll.analysis.judge import Evidence, judge, p_values, test, weights_of
from vmtoll.analysis.pairs import (
    Pairs,
    Side,
    as_series,
    choose_role,
    control_in,
    metric_side,
    noisiest,
    of_equal_requests,
    replicates,
)
from vmtoll.analysis.run import Run
from vmtoll.analysis.statistics import Tested
from vmtoll.model.experiment import TuningSteps
from vmtoll.model.finding import Role
from vmtoll.model.metric import CPU, HOST_CPU, TAIL, THROUGHPUT, Metric, loop_of
from vmtoll.model.trial import BASELINE, Arm, Scenario
from vmtoll.model.verdict import Because, Gain, StepKind, StepMetric, StepScenario, TuningResult, TuningStep

METRICS = (THROUGHPUT, TAIL, HOST_CPU, CPU)


@dataclass(frozen=True)
class Step:
    """Step from one profile to another; `over`: profiles between them that this run lacks."""

    kind: StepKind
    before: str
    after: str
    over: tuple[str, ...] = ()


@dataclass(frozen=True)
class Measured:
    """One step in one scenario and metric, by the ratio of its levels; what it gives back is shown in the metric's
    unit. `share`: of the 5% that its look may spend.
    """

    step: Step
    scenario: Scenario
    metric: Metric
    pairs: Pairs
    share: float = 1.0

    @property
    def evidence(self) -> Evidence:
        evidence = Evidence.of(self.pairs, self.metric, whole_slower_side=True, share=self.share)
        return evidence if evidence.effect else replace(evidence, empty=evidence.empty or Because.NO_VALID_PAIR)

    def level(self, side: Side) -> float | None:
        """The mean of a side over the blocks of both."""
        return level([side.figures[block] for block in self.pairs.blocks])

    def gain(self, effect: float) -> float:
        """A log ratio as a gain in the metric's unit, seen from where the step starts."""
        change = (self.level(self.pairs.baseline) or 0.0) * float(np.expm1(effect))
        return change if self.metric.higher_is_better else -change


def level(values: list[float]) -> float | None:
    """The geometric mean over blocks, so that the ratios of steps multiply; None without a block."""
    return float(np.exp(np.log(values).mean())) if values else None


def steps_of(declared: TuningSteps, measured: Collection[str]) -> list[Step]:
    """The comparisons of an experiment's tuning steps, between the profiles that were measured."""
    steps: list[Step] = []
    before, over = "", list[str]()
    for profile in declared.cumulative:
        if profile not in measured:
            over.append(profile)
            continue
        if before:
            steps.append(Step(StepKind.CUMULATIVE, before, profile, tuple(over)))
        before, over = profile, []
    base = declared.base
    if base is None or base not in measured:
        return steps
    return steps + [Step(StepKind.SINGLE, base, profile) for profile in declared.single if profile in measured]


def measure(run: Run, scenario: Scenario, metric: Metric, role: Role, step: Step) -> Measured:
    """One step in the scenario's blocks that have both profiles; its control is the noisiest of metal and of both."""
    arms = [Arm(step.before), Arm(step.after)]
    before, after = (metric_side(replicates(run, scenario, arm), metric, role) for arm in arms)
    controls = (control_in(run, scenario, arm, metric, role) for arm in (BASELINE, *arms))
    pairs = Pairs(before, after, control=noisiest(controls))
    pairs = of_equal_requests(run, pairs, metric.percentile) if metric.percentile else pairs
    return Measured(step, scenario, metric, pairs, run.share_of(pairs.blocks))


def tuning_steps(run: Run) -> TuningResult | None:
    """Gains of the steps of the run's experiment; None for an experiment without any."""
    declared = run.manifest.experiment.tuning_steps
    if declared is None:
        return None
    guests = {arm.environment for arm in run.guests}
    profiles = [profile for profile in declared.environments if profile in guests]
    whys = {skipped.environment: skipped.why for skipped in run.manifest.skipped if skipped.environment}
    steps = steps_of(declared, profiles)
    roles = {scenario: _role(run, scenario, profiles) for scenario in run.compared}
    measured = _measured(run, roles, steps)
    return TuningResult(
        base=declared.base,
        profiles=tuple(profiles),
        skipped={profile: whys.get(profile, "") for profile in declared.environments if profile not in guests},
        scenarios=tuple(
            StepScenario(
                scenario=scenario,
                metrics=_metrics(run, scenario, roles[scenario], profiles, measured.get(scenario, {})),
                host=tuple(host_view(run, scenario, [Arm(profile) for profile in profiles])),
            )
            for scenario in run.compared
        ),
    )


def _measured(
    run: Run, roles: Mapping[Scenario, Role], steps: list[Step]
) -> dict[Scenario, dict[Metric, list[TuningStep]]]:
    """Every step in every metric that says something under a scenario's load: all of them are one family."""
    family = [
        measure(run, scenario, metric, role, step)
        for metric in METRICS
        for scenario, role in roles.items()
        if loop_of(scenario.load) in metric.loops
        for step in steps
    ]
    series = as_series([member.pairs for member in family])
    family = [replace(member, pairs=pairs) for member, pairs in zip(family, series, strict=True)]
    tests = test([member.evidence for member in family], None, weights_of([member.metric for member in family]))
    results: dict[Scenario, dict[Metric, list[TuningStep]]] = {}
    for member, tested in zip(family, tests, strict=True):
        of_scenario = results.setdefault(member.scenario, {})
        of_scenario.setdefault(member.metric, []).append(_result(member, tested, len(family)))
    return results


def _metrics(
    run: Run, scenario: Scenario, role: Role, profiles: list[str], results: Mapping[Metric, list[TuningStep]]
) -> dict[str, StepMetric]:
    return {
        metric.name: StepMetric(
            metric=metric,
            role=role,
            tool=(run.tool(scenario) if role is Role.PRIMARY else run.crosscheck(scenario)) or "",
            levels=_levels(run, scenario, metric, role, profiles),
            steps=tuple(results.get(metric, ())),
        )
        for metric in METRICS
        if loop_of(scenario.load) in metric.loops
    }


def _role(run: Run, scenario: Scenario, profiles: list[str]) -> Role:
    """One for all steps, so that they connect: the cross-check where the tool was limited on some profile."""
    chosen = {choose_role(run, scenario, Arm(profile)) for profile in profiles}
    return Role.CROSSCHECK if Role.CROSSCHECK in chosen else Role.PRIMARY


def _levels(run: Run, scenario: Scenario, metric: Metric, role: Role, profiles: list[str]) -> dict[str, float]:
    levels = {}
    for arm in (BASELINE, *map(Arm, profiles)):
        figures = metric_side(replicates(run, scenario, arm), metric, role).figures
        if (value := level(list(figures.values()))) is not None:
            levels[arm.environment] = value
    return levels


def _result(measured: Measured, tested: Tested | None, family: int) -> TuningStep:
    """A step counts when it survives Holm in its family."""
    pairs, step = measured.pairs, measured.step
    effect, floor = pairs.effect, pairs.noise_floor
    judgement = judge(measured.evidence, tested, None)
    start, end = (measured.level(side) for side in pairs.sides)
    gain = None
    if effect:
        ends = sorted(measured.gain(end) for end in (effect.t.low, effect.t.high)) if effect.t else [None, None]
        gain = Gain(measured.gain(effect.mean), *ends)
    return TuningStep(
        step=step.kind,
        before=Arm(step.before),
        after=Arm(step.after),
        over=step.over,
        start=start,
        end=end,
        gain=gain,
        ratio=end / start if end and start else None,
        blocks=pairs.n,
        noise_floor=None if floor is None else abs(measured.gain(floor)),
        tests=p_values(effect, tested, family),
        **vars(judgement),
    )

"""Gain of each tuning step of a guest, with its interval and with the host's figures.

`cumulative` steps compare each profile with the one before it, `single` steps compare a profile that differs from the
base in one thing with that base. The baseline is the level to reach.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from vmtoll.analysis.hypervisor import host_view
from vmtoll.analysis.judge import Family
from vmtoll.analysis.judged import controls_of, evidence_of, with_trials
from vmtoll.analysis.pairs import choose_role, pair_arms, replicates
from vmtoll.analysis.run import Run
from vmtoll.analysis.sides import measure_of, sides_of
from vmtoll.model.experiment import TuningSteps
from vmtoll.model.finding import Role
from vmtoll.model.metric import CPU, HOST_CPU, TAIL, THROUGHPUT, Metric, loop_of
from vmtoll.model.trial import Arm, Scenario
from vmtoll.model.verdict import Estimate, Judged, StepKind, StepMetric, StepScenario, TuningResult, TuningStep

METRICS = (THROUGHPUT, TAIL, HOST_CPU, CPU)


@dataclass(frozen=True)
class ProfileStep:
    """Step from one profile to another."""

    kind: StepKind
    before: str
    after: str
    skipped_profiles: tuple[str, ...] = ()  # those between them that this run lacks


def level(values: Sequence[float]) -> float | None:
    """The geometric mean over blocks, so that the ratios of steps multiply; None without a block."""
    return float(np.exp(np.log(values).mean())) if values else None


def steps_of(declared: TuningSteps, measured: Collection[str]) -> list[ProfileStep]:
    """The comparisons of an experiment's tuning steps, between the profiles that were measured."""
    steps: list[ProfileStep] = []
    before, skipped_profiles = "", list[str]()
    for profile in declared.cumulative:
        if profile not in measured:
            skipped_profiles.append(profile)
            continue
        if before:
            steps.append(ProfileStep(StepKind.CUMULATIVE, before, profile, tuple(skipped_profiles)))
        before, skipped_profiles = profile, []
    base = declared.base
    if base is None or base not in measured:
        return steps
    return steps + [ProfileStep(StepKind.SINGLE, base, profile) for profile in declared.single if profile in measured]


def tuning_steps(run: Run) -> TuningResult | None:
    """Gains of the steps of the run's experiment; None for an experiment without any."""
    declared = run.manifest.experiment.tuning_steps
    if declared is None:
        return None
    measured = {arm.environment for arm in run.arms}
    profiles = [profile for profile in declared.environments if profile in measured]
    skip_reasons = {skip.environment: skip.why for skip in run.manifest.skipped if skip.environment}
    steps = steps_of(declared, profiles)
    roles = {scenario: _role(run, scenario, profiles) for scenario in run.compared_scenarios}
    results = _judge_steps(run, roles, steps)
    return TuningResult(
        base=declared.base,
        profiles=tuple(profiles),
        skipped={
            profile: skip_reasons.get(profile, "") for profile in declared.environments if profile not in measured
        },
        scenarios=tuple(
            StepScenario(
                scenario=scenario,
                tool=run.tool(scenario),
                metrics=_metrics(run, scenario, roles[scenario], profiles, results.get(scenario, {})),
                host=tuple(host_view(run, scenario, [Arm(profile) for profile in profiles])),
            )
            for scenario in run.compared_scenarios
        ),
    )


def _judge_steps(
    run: Run, roles: Mapping[Scenario, Role], steps: list[ProfileStep]
) -> dict[Scenario, dict[Metric, list[TuningStep]]]:
    """Judge every step in every metric that applies under a scenario's load, all of them as one family."""
    controls = controls_of(run, roles)
    step_pairs = [
        (step, scenario, metric, pair_arms(run, scenario, Arm(step.before), Arm(step.after), metric, role))
        for metric in METRICS
        for scenario, role in roles.items()
        if loop_of(scenario.load) in metric.loops
        for step in steps
    ]
    evidence = [
        evidence_of(run, pairs, metric, controls.get((metric.name, loop_of(scenario.load))))
        for _, scenario, metric, pairs in step_pairs
    ]
    family = Family(evidence, None)
    results: dict[Scenario, dict[Metric, list[TuningStep]]] = {}
    for (step, scenario, metric, pairs), evidence_row, judgement in zip(
        step_pairs, evidence, family.judge(), strict=True
    ):
        judged = with_trials(pairs, evidence_row, judgement, with_plain_levels=True)
        results.setdefault(scenario, {}).setdefault(metric, []).append(_result(run, step, metric, judged))
    return results


def _metrics(
    run: Run, scenario: Scenario, role: Role, profiles: list[str], results: Mapping[Metric, list[TuningStep]]
) -> dict[str, StepMetric]:
    return {
        metric.name: StepMetric(
            metric=metric,
            role=role,
            tool=run.tool_of(scenario, role) or "",
            levels=_levels(run, scenario, metric, role, profiles),
            steps=tuple(results.get(metric, ())),
        )
        for metric in METRICS
        if loop_of(scenario.load) in metric.loops
    }


def _role(run: Run, scenario: Scenario, profiles: list[str]) -> Role:
    """One role for all steps, so that they connect: the cross-check if it is chosen for any profile."""
    roles = {choose_role(run, scenario, run.baseline, Arm(profile)) for profile in profiles}
    return Role.CROSSCHECK if Role.CROSSCHECK in roles else Role.PRIMARY


def _levels(run: Run, scenario: Scenario, metric: Metric, role: Role, profiles: list[str]) -> dict[str, float]:
    levels, measure = {}, measure_of(metric, role, is_open=scenario.load.is_open)
    for arm in dict.fromkeys([run.baseline, *map(Arm, profiles)]):
        figures = sides_of(run, replicates(run, scenario, arm), (), measure)[0].figures
        if (value := level(list(figures.values()))) is not None:
            levels[arm.environment] = value
    return levels


def _result(run: Run, step: ProfileStep, metric: Metric, judged: Judged) -> TuningStep:
    """The result of a step; its gain is in the metric's unit, from the level where the step starts."""
    start, end, estimate, gain = judged.baseline.level, judged.compared.level, judged.estimate, None
    if estimate and start:
        sign = 1 if metric.higher_is_better else -1
        ends = sorted(sign * start * (end - 1) for end in estimate.ends or ())
        gain = Estimate(sign * start * (estimate.value - 1), *ends)
    after = Arm(step.after)
    return TuningStep(
        step=step.kind, before=Arm(step.before), after=after, over=step.skipped_profiles,
        accelerator=run.accelerator(after), hardware=run.hardware(after), start=start, end=end, gain=gain,
        **vars(judged),
    )  # fmt: skip

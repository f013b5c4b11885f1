"""The tables `verdicts`, `effects` and `claims`: their rows, made of comparisons and claims.

Bundles, datasets and spreadsheets hold these rows. A reader can recompute every interval from them: from the blocks'
lows and highs, the weights of the autocorrelations, and the level.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from operator import attrgetter

from vmtoll.model.analysis import RunAnalysis
from vmtoll.model.claim import ClaimResult
from vmtoll.model.finding import Role
from vmtoll.model.hardware import Hardware
from vmtoll.model.metric import METRICS, Metric
from vmtoll.model.table import Cell, column, nested, rows
from vmtoll.model.trial import Accelerator, Arm, Scenario
from vmtoll.model.verdict import BlockEffect, Judged, StepKind, Verdict


@dataclass(frozen=True, kw_only=True)
class ComparisonRow:
    """Two arms of a run in one scenario and metric."""

    run_id: str = column("the run")
    scenario: Scenario = nested()
    tool: str = column("load tool of the workload")
    baseline: Arm = column(
        "environment that `compared` is divided by; of a tuning step the guest before it", value=str, required=True
    )
    compared: Arm = column(
        "environment that is compared; with #2 the A/A control, its own second measurement", value=str, required=True
    )
    step: StepKind | None = column("cumulative or single: a tuning step; empty of other comparisons", default=None)
    accelerator: Accelerator = column(
        "what ran the code of the compared machine: none (metal, container), kvm, tcg (emulation)", required=False
    )
    hardware: Hardware = column(
        "what the host of the compared machine runs on: native (the hardware itself), nested (another hypervisor), "
        "pvm (KVM's module kvm_pvm, without the CPU's virtualization), emulated (a CPU emulated in software), unknown",
        required=False,
    )  # fmt: skip
    metric: Metric = column(
        "what is compared: throughput, tail (open-loop p99), latency_p99 (closed-loop service time), cpu, host_cpu",
        value=attrgetter("name"), choices=METRICS, required=True,
    )  # fmt: skip
    role: Role | None = column("the measurement whose values were compared")
    measured_by: str | None = column("tool of that measurement; empty where there is none")
    effects: tuple[BlockEffect, ...]
    verdict: Judged | None = None  # None for an A/A control, where `compared` is the second replicate of `baseline`


@dataclass(frozen=True)
class VerdictRow:
    """A verdict or a tuning step."""

    comparison: ComparisonRow = nested()
    verdict: Judged = nested(of=Verdict)


@dataclass(frozen=True)
class EffectRow:
    """A block of a verdict, a tuning step or an A/A control."""

    comparison: ComparisonRow = nested()
    effect: BlockEffect = nested()
    verdict: Judged | None = nested(only=("weight", "look", "level"))


@dataclass(frozen=True)
class ClaimRow:
    """A published claim of the experiment."""

    run_id: str = column("the run")
    claim: int = column("number of the claim in the experiment, from 1", least=1)
    result: ClaimResult = nested()


def comparisons(analysis: RunAnalysis) -> Iterator[ComparisonRow]:
    """All comparisons of a run: arms with the baseline, tuning steps, A/A controls."""
    for comparison in analysis.comparisons:
        for verdict in comparison.verdicts.values():
            yield ComparisonRow(
                run_id=analysis.run_id, scenario=comparison.scenario, tool=comparison.tool,
                baseline=comparison.baseline, compared=comparison.arm, accelerator=comparison.accelerator,
                hardware=comparison.hardware, metric=verdict.metric, role=verdict.role, measured_by=verdict.tool,
                effects=verdict.effects, verdict=verdict,
            )  # fmt: skip
    for step_scenario in analysis.tuning_steps.scenarios if analysis.tuning_steps else ():
        for step_metric in step_scenario.metrics.values():
            for step in step_metric.steps:
                yield ComparisonRow(
                    run_id=analysis.run_id, scenario=step_scenario.scenario, tool=step_scenario.tool,
                    baseline=step.before, compared=step.after, accelerator=step.accelerator, hardware=step.hardware,
                    metric=step_metric.metric, role=step_metric.role, measured_by=step_metric.tool,
                    effects=step.effects, verdict=step, step=step.step,
                )  # fmt: skip
    for control in analysis.controls:
        yield ComparisonRow(
            run_id=analysis.run_id, scenario=control.scenario, tool=control.tool,
            baseline=Arm(control.arm.environment), compared=control.arm, accelerator=control.accelerator,
            hardware=control.hardware, metric=control.metric, role=control.role, measured_by=control.measured_by,
            effects=control.effects,
        )  # fmt: skip


def verdict_rows(analysis: RunAnalysis, only: Collection[Judged] | None = None) -> Iterator[dict[str, Cell]]:
    """One row per verdict and tuning step to which its metric applies; `only`: only these."""
    only_ids = None if only is None else {id(verdict) for verdict in only}
    return rows(
        VerdictRow(comparison, verdict)
        for comparison in comparisons(analysis)
        if (verdict := comparison.verdict) and verdict.applies and (only_ids is None or id(verdict) in only_ids)
    )


def effect_rows(analysis: RunAnalysis) -> Iterator[dict[str, Cell]]:
    """One row per block of each verdict, tuning step and A/A control."""
    return rows(
        EffectRow(comparison, effect, comparison.verdict)
        for comparison in comparisons(analysis)
        for effect in comparison.effects
    )


def claim_rows(analysis: RunAnalysis) -> Iterator[dict[str, Cell]]:
    """One row per published claim of the experiment."""
    return rows(ClaimRow(analysis.run_id, number, claim) for number, claim in enumerate(analysis.claims, 1))

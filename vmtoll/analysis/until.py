"""State of a run's comparisons at a look: decided, narrow enough, or open.

The comparisons are those of the page: every verdict that applies, every tuning step, every claim of the experiment.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from vmtoll.analysis.run import Run, load_run
from vmtoll.analysis.selection import names_of
from vmtoll.analysis.verdict import analyse
from vmtoll.model.experiment import ClaimSide
from vmtoll.model.metric import Metric
from vmtoll.model.trial import Arm, Scenario
from vmtoll.model.until import ComparisonState, Look, LookComparison
from vmtoll.model.verdict import (
    ClaimResult,
    Estimate,
    Judged,
    Kind,
    Outcome,
    ReasonCode,
    RunAnalysis,
    VerdictReason,
)
from vmtoll.model.workload import listed

# Reasons of claims that more blocks may decide.
_BLOCKS_MAY_DECIDE = frozenset({ReasonCode.INTERVAL, ReasonCode.LEVEL, ReasonCode.FEW_BLOCKS})


def look_at(run_dir: Path, looks: Sequence[Look]) -> list[LookComparison]:
    """Judge a run that is still going on. `looks`: those that it has had, and the one that is due."""
    run = load_run(run_dir)
    manifest = run.manifest.model_copy(update={"looks": list(looks)})
    run = Run(run.path, manifest, run.hosts, run.records)
    return comparisons_at_look(run, analyse(run))


def comparisons_at_look(run: Run, analysis: RunAnalysis) -> list[LookComparison]:
    """Every comparison of a run's analysis with its standing."""
    until = run.manifest.experiment.until
    enough_pct = until.half_width_pct if until else 0.0
    return [*_verdicts(analysis, enough_pct), *_steps(analysis, enough_pct), *_claims(run, analysis, enough_pct)]


def _verdicts(analysis: RunAnalysis, enough_pct: float) -> Iterator[LookComparison]:
    for comparison in analysis.comparisons:
        for verdict in comparison.verdicts.values():
            if verdict.applies:
                yield _look_comparison(verdict, enough_pct, verdict.metric, comparison.scenario, comparison.arms)


def _steps(analysis: RunAnalysis, enough_pct: float) -> Iterator[LookComparison]:
    for scenario in analysis.tuning_steps.scenarios if analysis.tuning_steps else ():
        for metric in scenario.metrics.values():
            for step in metric.steps:
                yield _look_comparison(step, enough_pct, metric.metric, scenario.scenario, [step.before, step.after])


def _look_comparison(
    judged: Judged, enough_pct: float, metric: Metric, scenario: Scenario, arms: list[Arm]
) -> LookComparison:
    half_pct = None if judged.half_width is None else 100 * judged.half_width
    standing = _standing(judged, half_pct, enough_pct)
    return LookComparison(
        standing=standing, metric=metric.name, scenarios=[scenario], arms=arms, half_width_pct=half_pct
    )


def _standing(judged: Judged, half_pct: float | None, enough_pct: float) -> ComparisonState:
    """State of a judged comparison. What findings left open counts as open: more blocks may decide it."""
    if judged.is_decided:
        return ComparisonState.DECIDED
    if judged.kind is Kind.NOT_JUDGED or judged.because is VerdictReason.LIMIT:
        return ComparisonState.REFUSED
    return ComparisonState.NARROW if half_pct is not None and half_pct <= enough_pct else ComparisonState.OPEN


def half_width_pct(estimate: Estimate | None) -> float | None:
    """Half the width of a ratio's interval, in percent of the ratio; None without an interval."""
    if estimate is None or estimate.ends is None:
        return None
    return 50 * (estimate.ends[1] - estimate.ends[0]) / estimate.value


def _half_width_of_claim_pct(claim: ClaimResult) -> float | None:
    """Half the width of the interval that decides, of a ratio or of a level, in percent."""
    if claim.reasons[0].code is ReasonCode.LEVEL:
        low, high = (claim.reasons[0].values[end] for end in ("low", "high"))
        return 100 * (high - low) / abs(low + high) if low + high else None
    return half_width_pct(claim.ratio)


def _claims(run: Run, analysis: RunAnalysis, enough_pct: float) -> Iterator[LookComparison]:
    for claim in analysis.claims:
        scenarios = [s for s in run.scenarios if any(_includes(side, s) for side in claim.sides)]
        half_pct = _half_width_of_claim_pct(claim)
        yield LookComparison(
            standing=_claim_standing(claim, half_pct, enough_pct) if scenarios else ComparisonState.REFUSED,
            metric=claim.metric,
            scenarios=scenarios,
            claim=claim.says,
            half_width_pct=half_pct,
        )


def _claim_standing(claim: ClaimResult, half_pct: float | None, enough_pct: float) -> ComparisonState:
    if claim.outcome is not Outcome.INCONCLUSIVE:
        return ComparisonState.DECIDED
    if claim.limited or claim.reasons[0].code not in _BLOCKS_MAY_DECIDE:
        return ComparisonState.REFUSED
    return ComparisonState.NARROW if half_pct is not None and half_pct <= enough_pct else ComparisonState.OPEN


def _includes(side: ClaimSide, scenario: Scenario) -> bool:
    """Return whether a side of a claim takes trials of a scenario."""
    servers, _, workloads = names_of(side)
    if scenario.server not in servers or scenario.workload not in workloads:
        return False
    return side.users is None or scenario.load.on_one_machine.value in listed(side.users)

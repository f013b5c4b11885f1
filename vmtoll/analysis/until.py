"""State of a run's comparisons at a look: decided, narrow enough, or open.

The comparisons are those of the page: every verdict that applies, every tuning step, every claim of the experiment.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from vmtoll.analysis.claims import names_of
from vmtoll.analysis.run import Run, load_run
from vmtoll.analysis.verdict import analyse
from vmtoll.model.experiment import ClaimSide
from vmtoll.model.trial import BASELINE, Scenario
from vmtoll.model.until import Compared, Look, Standing
from vmtoll.model.verdict import (
    Because,
    ClaimResult,
    Estimate,
    Kind,
    Outcome,
    ReasonCode,
    Region,
    RunAnalysis,
    TuningStep,
    Verdict,
)
from vmtoll.model.workload import listed

# Claims that more blocks may decide.
_FOR_WANT_OF_BLOCKS = frozenset({ReasonCode.INTERVAL, ReasonCode.LEVEL, ReasonCode.FEW_BLOCKS})


def look_at(run_dir: Path, looks: Sequence[Look]) -> list[Compared]:
    """Judge a run that goes on. `looks`: those that it has had, and the one that is due."""
    run = load_run(run_dir)
    manifest = run.manifest.model_copy(update={"looks": list(looks)})
    run = Run(run.path, manifest, run.hosts, run.records)
    return compared(run, analyse(run))


def compared(run: Run, analysis: RunAnalysis) -> list[Compared]:
    """Every comparison of a run's analysis with its standing."""
    until = run.manifest.experiment.until
    enough_pct = until.half_width_pct if until else 0.0
    return [*_verdicts(analysis, enough_pct), *_steps(analysis, enough_pct), *_claims(run, analysis, enough_pct)]


def _verdicts(analysis: RunAnalysis, enough_pct: float) -> Iterator[Compared]:
    for comparison in analysis.comparisons:
        for verdict in comparison.verdicts.values():
            if verdict.applies:
                half_pct = half_width_pct(verdict.estimate)
                yield Compared(
                    standing=_standing(verdict, half_pct, enough_pct),
                    metric=verdict.metric.name,
                    scenarios=[comparison.scenario],
                    arms=[BASELINE, comparison.arm],
                    half_width_pct=half_pct,
                )


def _steps(analysis: RunAnalysis, enough_pct: float) -> Iterator[Compared]:
    for scenario in analysis.tuning_steps.scenarios if analysis.tuning_steps else ():
        for metric in scenario.metrics.values():
            for step in metric.steps:
                half_pct = _half_width_of_step_pct(step)
                yield Compared(
                    standing=_standing(step, half_pct, enough_pct),
                    metric=metric.metric.name,
                    scenarios=[scenario.scenario],
                    arms=[step.before, step.after],
                    half_width_pct=half_pct,
                )


def _standing(judged: Verdict | TuningStep, half_pct: float | None, enough_pct: float) -> Standing:
    """Standing of a judgement: if something else may have made a difference, it may be gone in the blocks to come."""
    if judged.kind is Kind.INVALID:
        return Standing.OPEN if judged.because is Because.DISTORTED else Standing.REFUSED
    if judged.kind is not Kind.UNDECIDED:
        return Standing.DECIDED
    return Standing.NARROW if half_pct is not None and half_pct <= enough_pct else Standing.OPEN


def half_width_pct(estimate: Estimate | None) -> float | None:
    """Half the width of a ratio's interval, in percent of the ratio; None without an interval."""
    if estimate is None or estimate.low is None or estimate.high is None:
        return None
    return 50 * (estimate.high - estimate.low) / estimate.ratio


def _half_width_of_step_pct(step: TuningStep) -> float | None:
    gain, end = step.gain, step.end
    if gain is None or gain.low is None or gain.high is None or not end:
        return None
    return 50 * (gain.high - gain.low) / end


def _half_width_of_claim_pct(claim: ClaimResult) -> float | None:
    """Half the width of the interval that decides, of a ratio or of a level, in percent."""
    if claim.reasons[0].code is ReasonCode.LEVEL:
        low, high = (claim.reasons[0].values[end] for end in ("low", "high"))
        return 100 * (high - low) / abs(low + high) if low + high else None
    return half_width_pct(claim.ratio)


def _claims(run: Run, analysis: RunAnalysis, enough_pct: float) -> Iterator[Compared]:
    for claim in analysis.claims:
        scenarios = [s for s in run.scenarios if any(_names(side, s) for side in claim.sides)]
        half_pct = _half_width_of_claim_pct(claim)
        yield Compared(
            standing=_of_claim(claim, half_pct, enough_pct) if scenarios else Standing.REFUSED,
            metric=claim.metric,
            scenarios=scenarios,
            claim=claim.says,
            half_width_pct=half_pct,
        )


def _of_claim(claim: ClaimResult, half_pct: float | None, enough_pct: float) -> Standing:
    if claim.outcome is not Outcome.INCONCLUSIVE:
        return Standing.DECIDED
    if claim.region is Region.BOUND or claim.reasons[0].code not in _FOR_WANT_OF_BLOCKS:
        return Standing.REFUSED
    return Standing.NARROW if half_pct is not None and half_pct <= enough_pct else Standing.OPEN


def _names(side: ClaimSide, scenario: Scenario) -> bool:
    """Return whether a side of a claim takes trials of a scenario."""
    servers, _, workloads = names_of(side)
    if scenario.server not in servers or scenario.workload not in workloads:
        return False
    return side.users is None or scenario.load.alone.value in listed(side.users)

"""State of a run's comparisons at a look: decided, narrow enough, or open.

The comparisons are those of the page: every verdict that applies, every tuning step, every claim of the experiment.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from vmtoll.analysis.run import Run, load_run
from vmtoll.analysis.selection import names_of
from vmtoll.analysis.verdict import analyse
from vmtoll.model.analysis import RunAnalysis
from vmtoll.model.claim import ClaimResult, Outcome, ReasonCode
from vmtoll.model.experiment import ClaimSide
from vmtoll.model.trial import Scenario
from vmtoll.model.until import ComparisonState, Look, LookComparison
from vmtoll.model.verdict import Estimate, Kind, VerdictReason
from vmtoll.model.verdict_columns import comparisons
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
    return [*_judged(analysis, enough_pct), *_claims(run, analysis, enough_pct)]


def _judged(analysis: RunAnalysis, enough_pct: float) -> Iterator[LookComparison]:
    for row in comparisons(analysis):
        judged = row.verdict
        if judged and (row.step or judged.applies):
            half_pct = None if judged.half_width is None else 100 * judged.half_width
            is_refused = judged.kind is Kind.NOT_JUDGED or judged.because is VerdictReason.LIMIT
            yield LookComparison(
                standing=_standing(judged.is_decided, is_refused, half_pct, enough_pct), metric=row.metric.name,
                scenarios=[row.scenario], arms=[row.baseline, row.compared], half_width_pct=half_pct,
            )  # fmt: skip


def _standing(is_decided: bool, is_refused: bool, half_pct: float | None, enough_pct: float) -> ComparisonState:
    """State of a comparison. What findings left open counts as open: more blocks may decide it."""
    if is_decided or is_refused:
        return ComparisonState.DECIDED if is_decided else ComparisonState.REFUSED
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
        half_pct, is_decided = _half_width_of_claim_pct(claim), claim.outcome is not Outcome.INCONCLUSIVE
        is_refused = claim.limited or claim.reasons[0].code not in _BLOCKS_MAY_DECIDE
        standing = _standing(is_decided and bool(scenarios), is_refused or not scenarios, half_pct, enough_pct)
        yield LookComparison(
            standing=standing, metric=claim.metric, scenarios=scenarios, claim=claim.says, half_width_pct=half_pct
        )


def _includes(side: ClaimSide, scenario: Scenario) -> bool:
    """Return whether a side of a claim takes trials of a scenario."""
    servers, _, workloads = names_of(side)
    if scenario.server not in servers or scenario.workload not in workloads:
        return False
    return side.users is None or scenario.load.on_one_machine.value in listed(side.users)

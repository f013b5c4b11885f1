"""The analysis of a run: each metric of each scenario on each arm against the baseline, tuning steps and claims."""

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from vmtoll.analysis.amounts import median_of
from vmtoll.analysis.availability import availability, reliability
from vmtoll.analysis.claims import judge_claims
from vmtoll.analysis.equality import OPEN_STATUSES, equality
from vmtoll.analysis.first_answers import start_figures
from vmtoll.analysis.judge import Family, in_ratio
from vmtoll.analysis.judged import Control, controls_of, evidence_of, with_trials
from vmtoll.analysis.levels import percentile_level
from vmtoll.analysis.limiters import limiter
from vmtoll.analysis.operations import operation_effects
from vmtoll.analysis.pairs import Pairs, choose_role, pair_arms, role_of
from vmtoll.analysis.run import Run
from vmtoll.analysis.tuning_steps import tuning_steps
from vmtoll.files import write_durably
from vmtoll.model.analysis import RunAnalysis, to_json
from vmtoll.model.finding import Role, Validity
from vmtoll.model.load import LoadKind
from vmtoll.model.metric import METRICS, TAIL, THROUGHPUT, Metric, loop_of
from vmtoll.model.note import (
    Answered,
    Attained,
    ClientOnSameMachine,
    ClientTime,
    ControlDiffers,
    CrosscheckDisagrees,
    FailedRequests,
    FewBlocks,
    NoControl,
    Note,
    OwnRates,
)
from vmtoll.model.trial import Arm, ClientPlace, MachineKind, Scenario, TrialRecord
from vmtoll.model.verdict import Comparison, ControlEffects, Judged, Kind, Verdict, VerdictReason
from vmtoll.statistics.series import Floats
from vmtoll.statistics.student import Interval, mean_of
from vmtoll.statistics.thresholds import MIN_EQUIVALENT_BLOCKS

ANALYSIS = "analysis.json"

ComparisonKey = tuple[Scenario, Arm]


def analyse(run: Run) -> RunAnalysis:
    """Judge a run; writes nothing."""
    margin = run.manifest.experiment.margin
    comparisons, controls, correlation = _comparisons(run, margin)
    findings = Counter(code for trial in run.trials for code in trial.codes)
    validities = Counter(trial.validity for trial in run.trials)
    return RunAnalysis(
        run_id=run.manifest.run_id,
        comparisons=comparisons,
        controls=controls,
        counts={validity: validities[validity] for validity in Validity},
        attempts=len(run.records),
        planned=run.manifest.trials_planned,
        findings=dict(sorted(findings.items(), key=lambda item: (-item[1], item[0]))),
        blocks=len({trial.block for trial in run.trials}),
        boots=max(1, len({trial.boot for trial in run.trials})),
        margin=margin,
        noise_floor=_worst_noise_floor(comparisons),
        undeclared_differences=sum(fact.status in OPEN_STATUSES for fact in equality(run)),
        tuning_steps=tuning_steps(run),
        operations=operation_effects(run) or None,
        first_answers=start_figures(run) or None,
        claims=tuple(judge_claims(run, correlation)),
        searches=tuple(sorted(run.manifest.searches)),
        complete=run.manifest.status == "complete",
        emulated=run.emulated,
        kvm_hardware=run.kvm_hardware,
        unseen_hosts=tuple(run.manifest.unseen_hosts),
        one_boot=run.manifest.one_boot,
        restarted=_restarted(run),
    )


def _restarted(run: Run) -> tuple[str, ...] | None:
    """`guest`, `container`: what restarted between the boots of a run in the embedded lab, where metal is one, too."""
    if run.manifest.lab != "embedded" or len({trial.boot for trial in run.trials}) <= 1:
        return None
    kinds = {run.manifest.experiment.kind_of(trial.arm.environment) for trial in run.trials}
    names = {"guest" if kind is MachineKind.GUEST else "container" for kind in kinds}
    return tuple(sorted(names, reverse=True))


def write_analysis(run: Run, analysis: RunAnalysis) -> Path:
    """Write the analysis next to run.json; return the file."""
    file = run.path / ANALYSIS
    write_durably(file, to_json(analysis))
    return file


def _worst_noise_floor(comparisons: Sequence[Comparison]) -> float | None:
    for metric in (THROUGHPUT, TAIL):
        verdicts = [comparison.verdicts[metric.name] for comparison in comparisons]
        if any(verdict.applies for verdict in verdicts):
            return max((v.noise_floor for v in verdicts if v.noise_floor is not None), default=None)
    return None


def _comparisons(
    run: Run, margin: float
) -> tuple[tuple[Comparison, ...], tuple[ControlEffects, ...], Floats]:  # fmt: skip
    """Every metric of every scenario on every arm, the A/A controls, and the weights of the family's autocorrelation.
    The metrics that apply under their load are one family.
    """
    roles = {
        (scenario, arm): choose_role(run, scenario, run.baseline, arm)
        for arm in run.compared_arms
        for scenario in run.compared_scenarios
    }
    controls = controls_of(run, {scenario: role for (scenario, _), role in roles.items()})
    verdicts: dict[tuple[ComparisonKey, str], Verdict] = {}
    pairs_by_key: dict[tuple[ComparisonKey, str], tuple[Pairs, Control | None]] = {}
    for (scenario, arm), throughput_role in roles.items():
        for name, metric in METRICS.items():
            loop = loop_of(scenario.load)
            if loop in metric.loops and not (metric.guest_field and _is_unseen(run, arm)):
                role = role_of(metric, throughput_role, _trials(run, scenario, arm))
                pairs = pair_arms(run, scenario, run.baseline, arm, metric, role)
                pairs_by_key[(scenario, arm), name] = pairs, controls.get((name, loop))
            else:
                verdicts[(scenario, arm), name] = _not_applicable(run, metric, scenario, arm, margin)
    evidence = [
        evidence_of(run, pairs, METRICS[name], control) for (_, name), (pairs, control) in pairs_by_key.items()
    ]  # fmt: skip
    family = Family(evidence, margin)
    for ((key, name), (pairs, control)), evidence_row, judgement in zip(
        pairs_by_key.items(), evidence, family.judge(), strict=True
    ):
        judged = with_trials(pairs, evidence_row, judgement)
        verdicts[key, name] = _verdict(run, *key, METRICS[name], pairs, control, judged)
    comparisons = tuple(
        Comparison(
            scenario=scenario,
            tool=run.tool(scenario),
            baseline=run.baseline,
            arm=arm,
            accelerator=run.accelerator(arm),
            hardware=run.hardware(arm),
            verdicts={name: verdicts[(scenario, arm), name] for name in METRICS},
            reliability=reliability(run, scenario, arm),
        )
        for scenario, arm in roles
    )
    effects = tuple(each for control in controls.values() for each in control.effects)
    return comparisons, effects, family.correlation


def _verdict(
    run: Run, scenario: Scenario, arm: Arm, metric: Metric, pairs: Pairs, control: Control | None,
    judged: Judged,
) -> Verdict:  # fmt: skip
    role = pairs.measure.role
    shares = [availability(run.trials_of(scenario, side), role) for side in (run.baseline, arm)]
    # Figures leave failed requests out, so the verdict must say that there were some.
    has_failures = any(share and share.successful < share.requests for share in shares)
    is_local = any(trial.client is ClientPlace.LOCALHOST for trial in _trials(run, scenario, arm))
    notes = [
        NoControl() if control is None else None,
        ControlDiffers(math.exp(control.control_difference)) if control and control.control_difference else None,
        FewBlocks(pairs.n) if 0 < pairs.n < MIN_EQUIVALENT_BLOCKS else None,
        ClientOnSameMachine() if is_local else None,
        _client_time(pairs) if metric is THROUGHPUT and scenario.load.is_one_user else None,
        FailedRequests() if has_failures else None,
        *(_tail_notes(run, scenario, arm, pairs) if metric is TAIL else ()),
    ]
    return Verdict(
        metric=metric,
        role=role,
        tool=run.tool_of(scenario, role),
        baseline_available=shares[0],
        compared_available=shares[1],
        baseline_percentile=percentile_level(run, pairs, pairs.baseline, metric),
        compared_percentile=percentile_level(run, pairs, pairs.compared, metric),
        baseline_limiter=limiter(run, pairs.baseline.used, role),
        compared_limiter=limiter(run, pairs.compared.used, role),
        notes=tuple(note for note in notes if note),
        **vars(judged),
    )


def _client_time(pairs: Pairs) -> ClientTime:
    """The share of the load's time that the client itself used, on each side."""

    def share(trial: TrialRecord) -> float | None:
        measurement = trial.measurement(pairs.measure.role)
        if measurement is None or not measurement.client_cpu_s or not measurement.duration_s:
            return None
        return min(1.0, measurement.client_cpu_s / measurement.duration_s)

    return ClientTime(median_of(map(share, pairs.baseline.used)), median_of(map(share, pairs.compared.used)))


def _tail_notes(run: Run, scenario: Scenario, arm: Arm, pairs: Pairs) -> list[Note]:
    """Notes on the rates if each side had its own, and on a cross-check whose interval does not touch the tool's."""
    notes: list[Note] = []
    if scenario.load.kind is LoadKind.SHARE:
        baseline_rps, compared_rps = (
            median_of(trial.offered.offered_rps for trial in run.trials_of(scenario, side))
            for side in (run.baseline, arm)
        )
        if baseline_rps != compared_rps:
            notes.append(OwnRates(baseline_rps, compared_rps))
    crosscheck = pair_arms(run, scenario, run.baseline, arm, TAIL, Role.CROSSCHECK)
    intervals = [mean_of(each.bounds.mid.values).t if each.n else None for each in (pairs, crosscheck)]
    if all(intervals) and not _overlap(*intervals):
        crosscheck_ratio = in_ratio(0.0, intervals[1], pairs.measure.sign)
        low, high = crosscheck_ratio.low or 0.0, crosscheck_ratio.high or 0.0
        notes.append(CrosscheckDisagrees(run.crosscheck(scenario) or "", low, high))
    return notes


def _overlap(first: Interval | None, second: Interval | None) -> bool:
    """Return whether two intervals overlap; True if one of them is not known."""
    return first is None or second is None or (first.low <= second.high and second.low <= first.high)


def _not_applicable(run: Run, metric: Metric, scenario: Scenario, arm: Arm, margin: float) -> Verdict:
    """The verdict of a metric that does not apply: not under this kind of load, or of a host that was not seen."""
    notes: tuple[Note, ...] = ()
    if loop_of(scenario.load) in metric.loops:
        because = VerdictReason.HOST_NOT_SEEN
    elif metric is TAIL:
        because = VerdictReason.CLOSED_LOOP_HAS_NO_TAIL
    elif metric is THROUGHPUT:
        because, notes = VerdictReason.LOAD_SETS_THE_RATE, (_attained_note(run, scenario, arm),)
    else:
        because = VerdictReason.OPEN_LOOP_SEE_TAIL
    return Verdict(metric=metric, kind=Kind.NOT_JUDGED, because=because, margin=margin, notes=notes)


def _is_unseen(run: Run, arm: Arm) -> bool:
    """Return whether a side of the comparison is a guest whose host was not seen."""
    return any(side.environment in run.manifest.unseen_hosts for side in (run.baseline, arm))


def _attained_note(run: Run, scenario: Scenario, arm: Arm) -> Attained:
    """The offered rate of each side of an open loop, and the share of it that was answered: medians over the trials
    that are not invalid.
    """
    return Attained(_answered(run, scenario, run.baseline), _answered(run, scenario, arm))


def _answered(run: Run, scenario: Scenario, side: Arm) -> Answered | None:
    trials = _usable_trials(run, scenario, side)
    offered = median_of(trial.offered.offered_rps for trial in trials)
    attained = median_of(_share_answered(trial) for trial in trials)
    return None if offered is None or attained is None else Answered(offered, attained)


def _share_answered(trial: TrialRecord) -> float | None:
    answered = trial.primary.throughput_rps if trial.primary else None
    offered = trial.offered.offered_rps
    return None if answered is None or not offered else answered / offered


def _trials(run: Run, scenario: Scenario, arm: Arm) -> list[TrialRecord]:
    return [trial for side in (run.baseline, arm) for trial in run.trials_of(scenario, side)]


def _usable_trials(run: Run, scenario: Scenario, arm: Arm) -> list[TrialRecord]:
    return [trial for trial in run.trials_of(scenario, arm) if trial.validity is not Validity.INVALID]

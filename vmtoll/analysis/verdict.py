"""The analysis of a run: each metric of each server on each guest against the baseline, and what follows from it."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median

from vmtoll.analysis.availability import availability, reliability
from vmtoll.analysis.claims import judge_claims
from vmtoll.analysis.equality import OPEN, equality
from vmtoll.analysis.judge import Evidence, clean_kind, in_ratio, judge, p_values, test, weights_of
from vmtoll.analysis.levels import percentile_level, variance_shares
from vmtoll.analysis.limiters import limiter
from vmtoll.analysis.pairs import (
    Control,
    Pairs,
    as_series,
    choose_role,
    decisive,
    metric_side,
    pair_arms,
    role_of,
)
from vmtoll.analysis.run import Run
from vmtoll.analysis.statistics import ALPHA, MIN_BLOCKS, Interval, Paired, Tested, signed_rank_level, trimmed_2009
from vmtoll.analysis.tuning_steps import tuning_steps
from vmtoll.files import write_durably
from vmtoll.model.finding import Code, Role, Validity
from vmtoll.model.load import LoadKind
from vmtoll.model.metric import CPU, LATENCY_P99, METRICS, TAIL, THROUGHPUT, Loop, Metric, loop_of
from vmtoll.model.trial import BASELINE, Arm, ClientPlace, Scenario, TrialRecord
from vmtoll.model.verdict import (
    Because,
    Comparison,
    Disagreement,
    DisagreementSide,
    Estimate,
    Kind,
    Limit,
    Note,
    NoteCode,
    RunAnalysis,
    Verdict,
    to_json,
)

ANALYSIS = "analysis.json"

Compared = tuple[Scenario, Arm]


def analyse(run: Run) -> RunAnalysis:
    """Judge a run; writes nothing."""
    margin = run.manifest.experiment.margin
    comparisons = _comparisons(run, margin)
    findings = Counter(code for trial in run.trials for code in trial.codes)
    validities = Counter(trial.validity for trial in run.trials)
    return RunAnalysis(
        run_id=run.manifest.run_id,
        comparisons=comparisons,
        counts={validity: validities[validity] for validity in Validity},
        attempts=len(run.records),
        planned=run.manifest.trials_planned,
        findings=dict(sorted(findings.items(), key=lambda item: (-item[1], item[0]))),
        blocks=len({trial.block for trial in run.trials}),
        boots=max(1, len({trial.boot for trial in run.trials})),
        margin=margin,
        noise_floor=_worst_floor(comparisons),
        undeclared_differences=sum(fact.status in OPEN for fact in equality(run)),
        disagreements=tuple(_disagreements(run, comparisons)),
        tuning_steps=tuning_steps(run),
        claims=tuple(judge_claims(run)),
        searches=tuple(sorted(run.manifest.searches)),
        complete=run.manifest.status == "complete",
        emulated=run.emulated,
        kvm_hardware=run.kvm_hardware,
    )


def keep(run: Run, analysis: RunAnalysis) -> Path:
    """Write the analysis next to run.json; return the file."""
    file = run.path / ANALYSIS
    write_durably(file, to_json(analysis))
    return file


def _worst_floor(comparisons: Sequence[Comparison]) -> float | None:
    for metric in (THROUGHPUT, TAIL):
        verdicts = [comparison.verdicts[metric.name] for comparison in comparisons]
        if any(verdict.applies for verdict in verdicts):
            return max((v.noise_floor for v in verdicts if v.noise_floor is not None), default=None)
    return None


def _comparisons(run: Run, margin: float) -> tuple[Comparison, ...]:
    """Every metric of every scenario on every guest. Those that say something under their load are one family."""
    roles = {(scenario, arm): choose_role(run, scenario, arm) for arm in run.guests for scenario in run.compared}
    verdicts: dict[tuple[Compared, str], Verdict] = {}
    family: dict[tuple[Compared, str], Pairs] = {}
    for (scenario, arm), chosen in roles.items():
        for name, metric in METRICS.items():
            if loop_of(scenario.load) in metric.loops:
                role = role_of(metric, chosen, _trials(run, scenario, arm))
                family[(scenario, arm), name] = decisive(pair_arms(run, scenario, arm, metric, role), metric)
            else:
                verdicts[(scenario, arm), name] = _not_applicable(run, metric, scenario, arm, margin)
    family = dict(zip(family, as_series(list(family.values())), strict=True))
    metrics = [METRICS[name] for _, name in family]
    evidence = [
        Evidence.of(pairs, metric, share=run.share_of(pairs.blocks))
        for pairs, metric in zip(family.values(), metrics, strict=True)
    ]
    tests = test(evidence, margin, weights_of(metrics))
    for (compared, name), evident, tested in zip(family, evidence, tests, strict=True):
        pairs = family[compared, name]
        verdicts[compared, name] = _verdict(run, *compared, pairs, evident, tested, len(family), margin)
    return tuple(
        Comparison(
            scenario=scenario,
            tool=run.tool(scenario),
            arm=arm,
            accelerator=run.accelerator(arm),
            hardware=run.hardware(arm),
            verdicts={name: verdicts[(scenario, arm), name] for name in METRICS},
            reliability=reliability(run, scenario, arm),
        )
        for scenario, arm in roles
    )


def _verdict(
    run: Run,
    scenario: Scenario,
    arm: Arm,
    pairs: Pairs,
    evidence: Evidence,
    tested: Tested | None,
    family: int,
    margin: float,
) -> Verdict:
    metric, judgement = evidence.metric, judge(evidence, tested, margin)
    effect, role, control = pairs.effect, pairs.baseline.role, pairs.control
    baseline, compared = pairs.counts
    shares = [availability(run.trials_of(scenario, side), role) for side in (BASELINE, arm)]
    floor = pairs.noise_floor
    local = any(trial.client is ClientPlace.LOCALHOST for trial in _trials(run, scenario, arm))
    clean = pairs.clean.effect if len(pairs.clean_blocks) < pairs.n else None
    without = clean_kind(pairs, metric, tested, margin) if clean and not evidence.veto else None
    depends = without is not None and without is not judgement.kind
    # A percentile must be shown with the requests that failed, and so must what left them out.
    failed = any(share and share.successful < share.requests for share in shares)
    return Verdict(
        metric=metric,
        applies=judgement.because is not Because.NOT_MEASURED,
        role=role,
        tool=run.tool(scenario) if role is Role.PRIMARY else run.crosscheck(scenario),
        estimate=in_ratio(effect.mean, effect.t) if effect else None,
        hodges_lehmann=in_ratio(effect.median, effect.signed_rank) if effect else None,
        hodges_lehmann_level=signed_rank_level(effect.n) if effect else None,
        limited_by=tuple(sorted({Limit.LINK if code is Code.LINK_BOUND else Limit.CLIENT for code in pairs.limits})),
        blocks=pairs.n,
        boots=max(1, len(pairs.by_boot)),
        clean=in_ratio(clean.mean, clean.t) if clean else None,
        margin=margin,
        noise_floor=None if floor is None else math.expm1(floor),
        noise_floor_server=control.server if control else None,
        noise_floor_arm=control.arm if control else None,
        tests=p_values(effect, tested, family),
        baseline=baseline,
        compared=compared,
        baseline_available=shares[0],
        compared_available=shares[1],
        baseline_trimmed=_trimmed(run, scenario, BASELINE, metric, role),
        compared_trimmed=_trimmed(run, scenario, arm, metric, role),
        baseline_percentile=percentile_level(run, pairs, pairs.baseline, metric),
        compared_percentile=percentile_level(run, pairs, pairs.compared, metric),
        variance=variance_shares(pairs),
        baseline_limiter=limiter(run, pairs.baseline.used, role),
        compared_limiter=limiter(run, pairs.compared.used, role),
        notes=(
            *_notes(pairs, tested),
            *([Note(NoteCode.DEPENDS_ON_SUSPECT, {"pairs": pairs.n - len(pairs.clean_blocks)})] if depends else []),
            *([Note(NoteCode.CLIENT_ON_SAME_MACHINE)] if local else []),
            *([Note(NoteCode.FAILED_REQUESTS)] if failed else []),
            *(_tail_notes(run, scenario, arm, pairs) if metric is TAIL else ()),
        ),
        **vars(judgement),
    )


def _trimmed(run: Run, scenario: Scenario, arm: Arm, metric: Metric, role: Role) -> float | None:
    """The estimator of 2009, of the first replicate alone."""
    return trimmed_2009(list(metric_side(run.trials_of(scenario, arm), metric, role).figures.values()))


def _notes(pairs: Pairs, tested: Tested | None) -> list[Note]:
    if pairs.effect is None:
        return _lost_notes(pairs)
    notes = [*_lost_notes(pairs), *_test_notes(pairs, pairs.effect, tested), *_control_notes(pairs.control)]
    if any(pairs.limited):
        notes.append(Note(NoteCode.LIMITED))
    counts = pairs.counts
    if suspect := sum(count.suspect for count in counts):
        values = {
            "suspect": suspect,
            "trials": sum(c.used for c in counts),
            "distorted": sum(c.distorted for c in counts),
        }
        notes.append(Note(NoteCode.SUSPECT, values))
    if pairs.unequal:
        notes.append(Note(NoteCode.UNEQUAL_REQUESTS, {"blocks": pairs.unequal}))
    return notes


def _test_notes(pairs: Pairs, effect: Paired, tested: Tested | None) -> list[Note]:
    """Doubts that the tests, and the shape of the figures, leave."""
    notes = [Note(NoteCode.INTERVALS_DISAGREE)] if effect.disagree else []
    if tested:
        for code, adjusted in (
            (NoteCode.DIFFERENCE_LOST_TO_HOLM, tested.difference),
            (NoteCode.EQUIVALENCE_LOST_TO_HOLM, tested.equivalence),
        ):
            if adjusted.p < ALPHA and not adjusted.holds:
                notes.append(Note(code, {"p": adjusted.p, "holm": adjusted.holm, "family": tested.size}))
    if pairs.n < MIN_BLOCKS:
        notes.append(Note(NoteCode.FEW_BLOCKS, {"blocks": pairs.n, "needed": MIN_BLOCKS}))
    if modes := pairs.modes:
        ratios = {"low": math.exp(modes.low), "high": math.exp(modes.high)}
        notes.append(Note(NoteCode.TWO_MODES, ratios | {"n_low": modes.n_low, "n_high": modes.n_high}))
    if (series := pairs.series) and series.inflation > 1:
        notes.append(Note(NoteCode.AUTOCORRELATED, {"r": series.r, "p": series.p, "inflation": series.inflation}))
    return notes


def _control_notes(control: Control | None) -> list[Note]:
    """Notes on the A/A control: whether there is one, whose it is, and whether it differs from itself."""
    if control is None:
        return [Note(NoteCode.NO_NOISE_FLOOR)]
    if control.server:
        return [Note(NoteCode.NOISE_FLOOR_OF_OTHER_SERVER, subject=control.server)]
    if control.same.t and control.same.t.excludes_zero:
        ends = {"low": math.exp(control.same.t.low), "high": math.exp(control.same.t.high)}
        return [Note(NoteCode.CONTROL_DIFFERS, ends)]
    return []


def _lost_notes(pairs: Pairs) -> list[Note]:
    """Trials of each side that were excluded, and that needed a second attempt."""
    baseline, compared = pairs.counts
    return [
        Note(code, {"baseline": of_baseline, "compared": of_compared})
        for code, of_baseline, of_compared in (
            (NoteCode.EXCLUDED, baseline.invalid, compared.invalid),
            (NoteCode.RETRIED, baseline.retried, compared.retried),
        )
        if of_baseline or of_compared
    ]


def _tail_notes(run: Run, scenario: Scenario, arm: Arm, pairs: Pairs) -> list[Note]:
    """The rates, where each side had its own, and a cross-check whose interval does not even touch the tool's."""
    notes = []
    if scenario.load.kind is LoadKind.SHARE:
        rates = (_median(t.offered.offered_rps for t in run.trials_of(scenario, side)) for side in (BASELINE, arm))
        offered = dict(zip(("baseline", "compared"), rates, strict=True))
        if len(set(offered.values())) > 1:
            notes.append(Note(NoteCode.OWN_RATES, {name: rate for name, rate in offered.items() if rate is not None}))
    crosscheck = pair_arms(run, scenario, arm, TAIL, Role.CROSSCHECK)
    intervals = [compared_pairs.effect.t if compared_pairs.effect else None for compared_pairs in (pairs, crosscheck)]
    if not _overlap(*intervals):
        estimate = in_ratio(crosscheck.effect.mean, crosscheck.effect.t) if crosscheck.effect else Estimate(1.0)
        values = {"low": estimate.low or 0.0, "high": estimate.high or 0.0}
        notes.append(Note(NoteCode.CROSSCHECK_DISAGREES, values, run.crosscheck(scenario) or ""))
    return notes


def _overlap(first: Interval | None, second: Interval | None) -> bool:
    """True too where one of them is not known."""
    return first is None or second is None or (first.low <= second.high and second.low <= first.high)


def _not_applicable(run: Run, metric: Metric, scenario: Scenario, arm: Arm, margin: float) -> Verdict:
    """The verdict of a metric that says nothing of a server under this kind of load."""
    notes: tuple[Note, ...] = ()
    if metric is TAIL:
        because = Because.CLOSED_LOOP_HAS_NO_TAIL
    elif metric is THROUGHPUT:
        because, notes = Because.LOAD_SETS_THE_RATE, (_attained(run, scenario, arm),)
    else:
        because = Because.OPEN_LOOP_SEE_TAIL
    return Verdict(metric=metric, kind=Kind.INVALID, because=because, applies=False, margin=margin, notes=notes)


def _attained(run: Run, scenario: Scenario, arm: Arm) -> Note:
    """Rate that each side of an open loop answered: medians over the trials that are not invalid."""
    values: dict[str, float] = {}
    for name, side in (("baseline", BASELINE), ("compared", arm)):
        trials = _good(run, scenario, side)
        offered = _median(trial.offered.offered_rps for trial in trials)
        attained = _median(_share_answered(trial) for trial in trials)
        if offered is not None and attained is not None:
            values |= {f"{name}_offered": offered, f"{name}_attained": attained}
    return Note(NoteCode.ATTAINED, values)


def _share_answered(trial: TrialRecord) -> float | None:
    answered = trial.primary.throughput_rps if trial.primary else None
    offered = trial.offered.offered_rps
    return None if answered is None or not offered else answered / offered


def _median(values: Iterable[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return float(median(numbers)) if numbers else None


def _trials(run: Run, scenario: Scenario, arm: Arm) -> list[TrialRecord]:
    return [trial for side in (BASELINE, arm) for trial in run.trials_of(scenario, side)]


# What the closed loop and the open loop call the same thing.
ALIKE = ((LATENCY_P99, TAIL), (CPU, CPU))
_DIRECTION = {Kind.FASTER: 1, Kind.SLOWER: -1, Kind.EQUIVALENT: 0, Kind.UNDECIDED: 0}


def _disagreements(run: Run, comparisons: Sequence[Comparison]) -> list[Disagreement]:
    """Pairs of verdicts on one server and guest that point in different directions, or only one of them in any.

    An invalid verdict says nothing, so that it disagrees with nothing.
    """
    closed, opened = ([c for c in comparisons if loop_of(c.scenario.load) is loop] for loop in Loop)
    return [
        _disagreement(run, first, second, closed_metric.name, open_metric.name)
        for first in closed
        for second in opened
        if (first.scenario.server, first.arm) == (second.scenario.server, second.arm)
        for closed_metric, open_metric in ALIKE
        if len(
            {_DIRECTION.get(c.verdicts[m.name].kind) for c, m in ((first, closed_metric), (second, open_metric))}
            - {None}
        )
        == 2
    ]


def _disagreement(
    run: Run, closed: Comparison, opened: Comparison, closed_metric: str, open_metric: str
) -> Disagreement:
    role = closed.verdicts[THROUGHPUT.name].role or Role.PRIMARY
    arms = (BASELINE, opened.arm)
    drawn = [_median(THROUGHPUT.value(t, role) for t in _good(run, closed.scenario, arm)) for arm in arms]
    offered = [_median(t.offered.offered_rps for t in _good(run, opened.scenario, arm)) for arm in arms]
    return Disagreement(
        server=opened.scenario.server,
        arm=opened.arm,
        closed=DisagreementSide(
            scenario=closed.scenario,
            verdict=closed.verdicts[closed_metric],
            baseline_rps=drawn[0],
            compared_rps=drawn[1],
        ),
        open=DisagreementSide(
            scenario=opened.scenario,
            verdict=opened.verdicts[open_metric],
            baseline_rps=offered[0],
            compared_rps=offered[1],
        ),
        stalled=sum(Code.STALLED in trial.codes for arm in arms for trial in _good(run, opened.scenario, arm)),
    )


def _good(run: Run, scenario: Scenario, arm: Arm) -> list[TrialRecord]:
    return [trial for trial in run.trials_of(scenario, arm) if trial.validity is not Validity.INVALID]

"""Two runs of one experiment, scenario by scenario: reproduced, not reproduced, or not comparable and why."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from statistics import median

import numpy as np
from scipy import special

from vmtoll.analysis.equality import DECISIVE, machine_facts, scenario_facts
from vmtoll.analysis.run import Run
from vmtoll.analysis.verdict import analyse
from vmtoll.model.agreement import (
    Agreement,
    AgreementReason,
    MetricResult,
    RunComparison,
    RunDifference,
    RunName,
    ScenarioResult,
    Status,
)
from vmtoll.model.facts import FACTS, Facts
from vmtoll.model.finding import Validity
from vmtoll.model.trial import Arm, Measurement, Scenario, TrialRecord, without_thin_percentiles
from vmtoll.model.verdict import DECIDED, Comparison, Estimate, Kind, Verdict
from vmtoll.statistics.student import Floats
from vmtoll.statistics.thresholds import CONFIDENCE, MAX_BLOCKS

TOLERANCE_SHARE = 0.1  # how far two effects may differ, as a share of the published one
POWER = 0.8


def agreement(
    published: Verdict, again: Verdict, between_run_sd: float = 0.0, *, same_trials: bool = False
) -> Agreement:
    """Compare the verdicts of two runs on one metric. `same_trials`: the runs are a run and its bundle, so that any
    difference is a fault.

    A result is reproduced if its size agrees; that is the rule of the ACM ("Artifact Review and Badging", version 1.1,
    2020): agreement "within a tolerance deemed acceptable", with the main claims unchanged. A published run that claims
    nothing cannot be reproduced.

    - The size is the ratio compared ÷ baseline, its change the difference of the logarithms with Welch's 95% interval
      (Welch 1947; each side with the error of its blocks and blocks − 1 degrees of freedom), widened by what the
      findings of both runs allow. `between_run_sd`: standard deviation of the log ratio between runs of one machine,
      beyond their blocks' noise, where that is known. It enters the variance once for each run.
    - The test is one of equivalence (two one-sided tests, Schuirmann 1987; for replications Anderson and Maxwell 2016,
      "There's more than one way to conduct a replication study"): reproduced when the whole interval of the change
      lies within the tolerance, not reproduced when all of it lies outside, else inconclusive. So a noisy run is
      inconclusive: it neither reproduces nor refutes anything. The kinds may differ: 2.1% faster, and equivalent within
      2%, are the same size.
    - The tolerance is the practical margin or a tenth of the published effect (in logarithms), whichever is larger.
      A noise floor widens no tolerance: noise is in the interval.
    - If the published size has an open end ("at least 22 times"), only the end that it claims is compared.
    - Faster in one run and slower in the other is never reproduced.
    """
    if published.kind not in DECIDED or published.estimate is None:
        return Agreement(Status.NOT_COMPARABLE, AgreementReason.CLAIMS_NOTHING)
    if again.kind is Kind.NOT_JUDGED or again.estimate is None:
        return Agreement(Status.NOT_COMPARABLE, AgreementReason.NO_RESULT)
    tolerance = _tolerance(published)
    change, interval = _change(published, again, between_run_sd)
    if same_trials:
        interval = (change, change)
    if {published.kind, again.kind} == {Kind.FASTER, Kind.SLOWER}:
        status, why = Status.NOT_REPRODUCED, AgreementReason.CLAIM_CHANGED
    elif interval is None:
        status, why = Status.INCONCLUSIVE, AgreementReason.NO_INTERVAL
    else:
        status, why = _status_by_size(published, again, interval, tolerance)
    needed = _blocks_needed(published, again, tolerance, between_run_sd) if why is AgreementReason.IMPRECISE else None
    ratio = Estimate(math.exp(change), *map(math.exp, interval or ()))
    return Agreement(status, why, ratio, math.expm1(tolerance), needed)


def _status_by_size(
    published: Verdict, again: Verdict, interval: tuple[float, float], tolerance: float
) -> tuple[Status, AgreementReason]:
    """Judge the interval of the change, with the sign that makes values above zero a larger effect. If the published
    size has an open end, only the end that it claims counts.
    """
    decisive = published if published.kind is not Kind.EQUIVALENT else again
    low, high = interval if decisive.estimate and decisive.estimate.value >= 1 else (-interval[1], -interval[0])
    is_open = published.is_at_least
    if (low > tolerance and not is_open) or high < -tolerance:
        return Status.NOT_REPRODUCED, AgreementReason.BOUND_BROKEN if is_open else AgreementReason.SIZE_CHANGED
    if low >= -tolerance and (high <= tolerance or is_open):
        return Status.REPRODUCED, AgreementReason.BOUND_HOLDS if is_open else AgreementReason.SAME
    return Status.INCONCLUSIVE, AgreementReason.IMPRECISE


def _change(published: Verdict, again: Verdict, between_run_sd: float) -> tuple[float, tuple[float, float] | None]:
    """The difference of the log ratios with Welch's interval; no interval if a side has only one block."""
    assert published.estimate is not None
    assert again.estimate is not None
    change = math.log(again.estimate.value / published.estimate.value)
    a, b = _squared_error(published), _squared_error(again)
    if a is None or b is None:
        return change, None
    error, freedom = _welch(a, published.blocks, np.array([b]), np.array([float(again.blocks)]), between_run_sd)
    half = float((special.stdtrit(freedom, (1 + CONFIDENCE) / 2) * error)[0])
    (down, up), (down_again, up_again) = _allowed_by_findings(published), _allowed_by_findings(again)
    return change, (change - half - down_again - up, change + half + up_again + down)


def _allowed_by_findings(verdict: Verdict) -> tuple[float, float]:
    """How far below and above the measured value the mean log ratio may be, by the findings."""
    logs = [
        [math.log(value) for effect in verdict.effects if (value := getattr(effect, name)) is not None]
        for name in ("low", "mid", "high")
    ]
    low, mid, high = (float(np.mean(each)) if each else 0.0 for each in logs)
    return max(0.0, mid - low), max(0.0, high - mid)


def _welch(a: float, blocks: int, b: Floats, blocks_again: Floats, between_run_sd: float) -> tuple[Floats, Floats]:
    """Standard errors of a change and their degrees of freedom, from the squared errors of both sides."""
    between = 2 * between_run_sd**2  # treated as known: it adds no degrees of freedom
    denominator = np.maximum(a**2 / (blocks - 1) + b**2 / (blocks_again - 1), 1e-300)
    return np.sqrt(a + b + between), np.clip((a + b + between) ** 2 / denominator, 1.0, 1e9)


def _blocks_needed(published: Verdict, again: Verdict, tolerance: float, between_run_sd: float) -> int | None:
    """Number of further blocks after which the second run's interval lies within ±tolerance with 80% power, if nothing
    has changed. By two one-sided tests, each missed with half of 20% (Phillips 1990); None above 1,000 blocks in all.
    """
    a, b = _squared_error(published), _squared_error(again)
    if a is None or b is None:
        return None
    blocks = np.arange(again.blocks + 1, MAX_BLOCKS + 1, dtype=float)
    error, freedom = _welch(a, published.blocks, b * again.blocks / blocks, blocks, between_run_sd)
    quantiles = special.stdtrit(freedom, (1 + CONFIDENCE) / 2) + special.stdtrit(freedom, (1 + POWER) / 2)
    enough = blocks[quantiles * error <= tolerance]
    return int(enough[0]) - again.blocks if enough.size else None


def _squared_error(verdict: Verdict) -> float | None:
    """The squared standard error of the mean log ratio, from sampling alone; None without two blocks."""
    return None if verdict.standard_error is None or verdict.blocks < 2 else verdict.standard_error**2


def _tolerance(published: Verdict) -> float:
    """Tolerance as a difference of logarithms."""
    effect = abs(math.log(published.estimate.value)) if published.estimate else 0.0
    return max(math.log1p(published.margin), TOLERANCE_SHARE * effect)


# Further facts that must match before absolute figures may be compared.
ABSOLUTE_FIGURE_FACTS = [fact.name for fact in FACTS if fact.boot and fact.name not in ("cmdline", "cpu_model")] + [
    "sysctls"
]
FIGURES = ("throughput_rps", "response_time_p99_us", "service_time_p99_us", "server_cpu_us_per_request")


def compare_runs(published: Run, again: Run, between_run_sd: float = 0.0) -> RunComparison:
    """Compare every scenario of either run; the first run is the one to be reproduced. `between_run_sd`: see
    `agreement`.
    """
    first, second = _comparisons(published), _comparisons(again)
    same_trials = _figures(published) == _figures(again)
    judge = partial(agreement, between_run_sd=between_run_sd, same_trials=same_trials)
    is_same_run = same_trials and published.manifest.run_id == again.manifest.run_id

    def agree(verdict: Verdict, other: Verdict) -> Agreement:
        result = judge(verdict, other)
        is_copy = is_same_run and result.status is Status.REPRODUCED
        return replace(result, status=Status.IDENTICAL) if is_copy else result

    scenarios = tuple(
        _scenario(published, again, first.get(key), second.get(key), agree) for key in dict.fromkeys([*first, *second])
    )
    counts = Counter(scenario.status for scenario in scenarios)
    return RunComparison(_name(published), _name(again), dict(counts), scenarios, between_run_sd)


def _figures(run: Run) -> list[tuple[str, list[Measurement]]]:
    """Measurements of each trial as in a bundle: without histograms, which it keeps elsewhere."""
    return [
        (
            trial.name,
            [replace(measurement, histogram=None) for measurement in without_thin_percentiles(trial).measurements],
        )
        for trial in run.trials
    ]


def _name(run: Run) -> RunName:
    manifest = run.manifest
    return RunName(
        manifest.experiment.name,
        manifest.run_id,
        manifest.commit,
        manifest.started_at,
        manifest.lab,
        manifest.link,
        run.emulated,
    )


def _comparisons(run: Run) -> dict[tuple[Scenario, Arm, Arm], Comparison]:
    return {
        (comparison.scenario, comparison.baseline, comparison.arm): comparison
        for comparison in analyse(run).comparisons
    }


def _scenario(
    published: Run,
    again: Run,
    first: Comparison | None,
    second: Comparison | None,
    agree: Callable[[Verdict, Verdict], Agreement],
) -> ScenarioResult:
    comparison = first or second
    assert comparison is not None
    scenario, arms = comparison.scenario, comparison.arms
    result = partial(
        ScenarioResult, scenario=scenario, baseline=comparison.baseline, arm=comparison.arm,
        accelerator=comparison.accelerator,
    )  # fmt: skip
    if first is None or second is None:
        why = AgreementReason.ONLY_IN_THE_FIRST if first else AgreementReason.ONLY_IN_THE_SECOND
        return result(status=Status.NOT_COMPARABLE, why=why)
    facts = _differences(_decisive_facts(published, scenario, arms), _decisive_facts(again, scenario, arms))
    others = _differences(_other_facts(published, arms), _other_facts(again, arms))
    incomparable = Agreement(Status.NOT_COMPARABLE, AgreementReason.FACTS_DIFFER) if facts else None
    metrics = {
        name: MetricResult(incomparable or agree(published_verdict, second_verdict), published_verdict, second_verdict)
        for name, published_verdict in first.verdicts.items()
        if (second_verdict := second.verdicts.get(name)) and published_verdict.applies and published_verdict.blocks
    }
    status, why = _overall(metrics, facts)
    absolute = None if facts or others else _absolute(published, again, scenario, arms)
    return result(
        status=status, why=why, facts=facts, other_differences=others, metrics=metrics, absolute=absolute
    )  # fmt: skip


def _decisive_facts(run: Run, scenario: Scenario, arms: Sequence[Arm]) -> Facts:
    facts = scenario_facts(run, scenario, arms[-1])
    for side in arms:
        premise = machine_facts(run, scenario.server, side)
        facts |= {f"{name} on {side}": value for name, value in premise.items() if name in DECISIVE}
    return facts


def _other_facts(run: Run, arms: Sequence[Arm]) -> Facts:
    hosts = {side: run.machine(side.environment).recorded for side in arms}
    return {f"{fact} on {side}": hosts[side].get(fact) for side in arms for fact in ABSOLUTE_FIGURE_FACTS}


def _differences(first: Facts, second: Facts) -> tuple[RunDifference, ...]:
    names = sorted(name for name in first.keys() | second.keys() if first.get(name) != second.get(name))
    return tuple(RunDifference(name, first.get(name), second.get(name)) for name in names)


def _overall(metrics: Mapping[str, MetricResult], facts: Sequence[RunDifference]) -> tuple[Status, AgreementReason]:
    """Not reproduced if any metric is not; reproduced if one is and no other contradicts it or leaves it open."""
    if facts:
        return Status.NOT_COMPARABLE, AgreementReason.FACTS_DIFFER
    statuses = [result.agreement.status for result in metrics.values()]
    for status in (Status.NOT_REPRODUCED, Status.INCONCLUSIVE, Status.REPRODUCED, Status.IDENTICAL):
        if status in statuses:
            return status, AgreementReason.METRICS
    return Status.NOT_COMPARABLE, next((result.agreement.why for result in metrics.values()), AgreementReason.NO_FIGURE)


def _absolute(published: Run, again: Run, scenario: Scenario, arms: Sequence[Arm]) -> dict[str, dict[str, float]]:
    """For each arm and figure: median again ÷ median published."""
    ratios: dict[str, dict[str, float]] = {}
    for arm in arms:
        first, second = (_medians(run.trials_of(scenario, arm)) for run in (published, again))
        ratios[str(arm)] = {name: second[name] / first[name] for name in first if name in second and first[name] > 0}
    return ratios


def _medians(trials: Sequence[TrialRecord]) -> dict[str, float]:
    """The figures of the primary measurement, or of the cross-check if that alone logs them."""
    medians = {}
    for name in FIGURES:
        values = [
            next((value for m in trial.measurements if (value := m.column(name)) is not None), None)
            for trial in trials
            if trial.validity is not Validity.INVALID
        ]
        if present := [value for value in values if value is not None]:
            medians[name] = float(median(present))
    return medians

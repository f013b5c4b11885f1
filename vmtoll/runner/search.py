"""A search for the highest load that meets an objective: choose the step of a fine rate sweep for the next trial.

The steps and the place of each trial are fixed before the run; only a trial's step depends on the records so far. The
same records give the same step, so a resumed run continues as if it had not stopped.
"""

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import scipy  # loads its parts when they are used

from vmtoll.model.load import Load, LoadKind
from vmtoll.model.tail import log_p99, may_count, p99_of_planned_us
from vmtoll.model.trial import TrialRecord, TrialSpec, last_attempts
from vmtoll.model.workload import SearchWorkload
from vmtoll.spec.experiment import Resolved

# The trials of a step are judged at three, and again from six on. Student's t for their mean, two-sided, at half of 5%
# each time (Bonferroni); more than six are judged as strictly as six.
FIRST_LOOK, LAST_LOOK = 3, 6
T_AT = {FIRST_LOOK: 6.205347, LAST_LOOK: 3.163381}
ALPHA_PER_LOOK = 0.05 / 2 / 2  # of one side


@dataclass(frozen=True)
class StepTrial:
    """One trial."""

    # log(deadline / p99 of all planned requests), positive if the deadline was met; None if the trial has no p99
    margin: float | None
    requests: int
    successful: int

    @property
    def loss(self) -> float:
        """Fraction of the trial's requests that failed."""
        return 1 - self.successful / self.requests if self.requests else 0.0


def with_searched_load(spec: TrialSpec, resolved: Resolved, records: Iterable[TrialRecord]) -> TrialSpec:
    """The trial with the load that the records before it call for, if its workload is a search; else unchanged."""
    workload = resolved.workloads[spec.scenario.workload]
    if not isinstance(workload, SearchWorkload):
        return spec
    combination = (spec.arm, spec.scenario.server, spec.scenario.workload)
    earlier_records = [
        record
        for record in records
        if (record.arm, record.scenario.server, record.scenario.workload) == combination and record.key < spec.key
    ]
    return replace(spec, scenario=replace(spec.scenario, load=next_load(workload, earlier_records)))


def steps_of(workload: SearchWorkload) -> list[Load]:
    """The steps, lightest first: equal ratios of at most the resolution, rounded to four digits."""
    low, high = workload.between
    steps = math.ceil(math.log(high / low) / math.log1p(workload.resolution_pct / 100) - 1e-9)
    kind = LoadKind.RATE if workload.between_rps else LoadKind.SHARE
    return [Load(kind, float(f"{low * (high / low) ** (step / steps):.4g}")) for step in range(steps + 1)]


def next_load(workload: SearchWorkload, records: Iterable[TrialRecord]) -> Load:
    """The next step to try: the middle between the highest step that meets the objective and the lowest that does not.

    Each step is tried until it is decided; when no step is left between these two, they are tried in turn.
    """
    steps, trials_by_load = steps_of(workload), _by_load(workload, records)
    trials = [trials_by_load.get(step, []) for step in steps]
    is_step_met = [is_met(step_trials, workload.availability_pct) for step_trials in trials]
    missed = next((index for index, answer in enumerate(is_step_met) if answer is False), len(steps))
    best = max((index for index in range(missed) if is_step_met[index]), default=-1)
    open_steps = range(best + 1, missed)
    if open_steps:
        return steps[next((index for index in open_steps if trials[index]), (best + missed) // 2)]
    ends = [index for index in (best, missed) if 0 <= index < len(steps)]
    return steps[min(ends, key=lambda index: len(trials[index]))]


def is_met(trials: Sequence[StepTrial], availability_pct: float) -> bool | None:
    """Return whether the trials of one step show that the objective is met; None while more trials may decide it.

    The p99 decides, unless the trials show that the availability is missed. A few failed requests in one trial leave
    the availability open; the analysis of the run judges it. A p99 that six trials leave open counts as missed, as in a
    rate sweep, until later trials of that step show otherwise.
    """
    margins = [trial.margin for trial in trials if trial.margin is not None]
    if len(trials) < FIRST_LOOK:
        return None
    if 100 * _most_available(trials if len(trials) >= LAST_LOOK else trials[:FIRST_LOOK]) < availability_pct:
        return False
    if len(margins) >= FIRST_LOOK:
        judged_margins = margins if len(margins) >= LAST_LOOK else margins[:FIRST_LOOK]
        t = T_AT[min(len(judged_margins), LAST_LOOK)]
        mean, half_width = (
            statistics.mean(judged_margins),
            t * statistics.stdev(judged_margins) / math.sqrt(len(judged_margins)),
        )
        if abs(mean) > half_width:
            return mean > 0
    return None if len(trials) < LAST_LOOK else False


def _most_available(trials: Sequence[StepTrial]) -> float:
    """The highest availability that these trials leave possible, as a fraction: 1 − the lower bound on the fraction of
    trials that lose requests (Clopper and Pearson 1934, at 1.25% for each of two looks) × their mean loss.
    """
    losses = [trial.loss for trial in trials if trial.loss > 0]
    if not losses:
        return 1.0
    fewest = float(scipy.special.betaincinv(len(losses), len(trials) - len(losses) + 1, ALPHA_PER_LOOK))
    return 1 - fewest * statistics.mean(losses)


def _by_load(workload: SearchWorkload, records: Iterable[TrialRecord]) -> dict[Load, list[StepTrial]]:
    """Load → its trials in the order of the run, only the last attempt of each."""
    trials_by_load: dict[Load, list[StepTrial]] = {}
    for record in last_attempts(list(records)):
        trials_by_load.setdefault(record.scenario.load, []).append(_step_trial(workload, record))
    return trials_by_load


def _step_trial(workload: SearchWorkload, record: TrialRecord) -> StepTrial:
    primary, limit_us = record.primary, 1000 * workload.deadline_ms
    p99_us = p99_of_planned_us(record) if may_count(record) else None
    has_counts = primary is not None and primary.requests is not None and primary.successful is not None
    return StepTrial(
        margin=math.log(limit_us) - log_p99(p99_us, limit_us) if p99_us else None,
        requests=primary.requests or 0 if primary and has_counts else 0,
        successful=primary.successful or 0 if primary and has_counts else 0,
    )

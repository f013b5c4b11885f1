"""The capacity that shares are fractions of, from the records of capacity trials: pure functions.

Capacity trials pass through every gate. A rate that the client or the link limited is only a lower bound; a ramp
accepts it, because its steps only have to lie around the knee.
"""

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import scipy  # loads its parts when they are used

from vmtoll.model.capacity import CapacityEstimate
from vmtoll.model.errors import CapacityError
from vmtoll.model.finding import CLOSED_LOOP_LIMITS, FINDINGS, Code, Validity
from vmtoll.model.trial import Arm, TrialRecord, TrialSpec
from vmtoll.model.workload import MailWorkload, RampWorkload
from vmtoll.spec.experiment import Resolved

# The capacity is the mean of TRIALS good trials. A block makes at most MOST_TRIALS to get them; the next block tries
# again, up to MOST_BLOCKS: what spoils the first minute of a run is often gone a minute later.
TRIALS, MOST_TRIALS, MOST_BLOCKS = 3, 5, 3
# Findings that mean that the client or the link limited the rate.
LIMITING = CLOSED_LOOP_LIMITS | {Code.CLIENT_STARVED}


@dataclass(frozen=True)
class Target:
    """Arm, server and workload whose capacity is estimated."""

    arm: Arm
    server: str
    workload: str
    block: int | None  # the block that the estimate is for; None: the whole run
    is_scale: bool = False  # it only scales a ramp's steps, so that a lower bound is enough


def targets(spec: TrialSpec, resolved: Resolved) -> list[Target]:
    """The capacities that a trial's share refers to; none for a workload without shares."""
    workload = resolved.workloads[spec.scenario.workload]
    if isinstance(workload, MailWorkload) or workload.capacity is None:
        return []
    environments, block = list(resolved.environments), None
    match resolved.experiment.shares_of:
        case "own":
            arms, block = [spec.arm], spec.block
        case "baseline":
            arms = [resolved.experiment.baseline_arm]
        case "slowest":
            arms = [Arm(environment) for environment in environments]
    is_scale = isinstance(workload, RampWorkload)
    return [Target(arm, spec.scenario.server, spec.scenario.workload, block, is_scale) for arm in arms]


def trials_of(target: Target, records: Iterable[TrialRecord]) -> list[TrialRecord]:
    """The capacity trials of a target, in the order of `records`."""
    return [
        record
        for record in records
        if (record.arm, record.scenario.server, record.scenario.workload)
        == (target.arm, target.server, target.workload)
        and target.block in (None, record.block)
    ]


def is_good(record: TrialRecord) -> bool:
    """Return whether the server alone limited the rate of a capacity trial."""
    return _rate_rps(record) is not None and not record.codes & LIMITING


def _rate_rps(record: TrialRecord) -> float | None:
    primary = record.validity is not Validity.INVALID and record.primary
    return record.primary.throughput_rps if primary and record.primary else None


def is_settled(records: Sequence[TrialRecord], block: int) -> bool:
    """Return whether a target needs no more trials in this block: enough are good, or too many are bad."""
    bad = Counter(record.block for record in records if not is_good(record))
    if len(records) - bad.total() >= TRIALS or bad[block] > MOST_TRIALS - TRIALS:
        return True
    return sum(count > MOST_TRIALS - TRIALS for count in bad.values()) >= MOST_BLOCKS


def estimate(rates_rps: Sequence[float]) -> CapacityEstimate:
    """The geometric mean of a target's rates, with its 95% interval."""
    logs = [math.log(rate) for rate in rates_rps]
    mean, count = statistics.fmean(logs), len(logs)
    if count < 2:
        return CapacityEstimate(math.exp(mean), None, None, count)
    half_width = float(scipy.special.stdtrit(count - 1, 0.975)) * statistics.stdev(logs) / math.sqrt(count)
    return CapacityEstimate(math.exp(mean), math.exp(mean - half_width), math.exp(mean + half_width), count)


def smallest_capacity(candidates: Sequence[Target], records: Sequence[TrialRecord]) -> CapacityEstimate:
    """The smallest capacity of these targets.

    Without enough good trials a target has only a lower bound, which is enough if another target is smaller, or for a
    scale. Raises CapacityError if the smallest is such a bound, or a target has no rate at all.
    """
    estimates: list[tuple[float, CapacityEstimate | None, Target]] = []
    for target in candidates:
        trials = trials_of(target, records)
        good_rps = [rate for trial in trials if is_good(trial) and (rate := _rate_rps(trial))]
        rates_rps = [rate for trial in trials if (rate := _rate_rps(trial))]
        if not rates_rps:
            raise CapacityError(_refusal(target, trials))
        capacity = estimate(rates_rps) if target.is_scale else estimate(good_rps) if len(good_rps) >= TRIALS else None
        estimates.append((capacity.mean_rps if capacity else min(rates_rps), capacity, target))
    _, smallest, target = min(estimates, key=lambda entry: entry[0])
    if smallest is None:
        raise CapacityError(_refusal(target, trials_of(target, records)))
    return smallest


def _refusal(target: Target, trials: Sequence[TrialRecord]) -> str:
    """An error message such as `metal: client-saturated in 3 of 3 trials`."""
    codes = Counter(code for trial in trials for code in sorted(trial.codes) if code in LIMITING or _voids(code))
    return f"{target.arm}: " + ", ".join(f"{code} in {count} of {len(trials)} trials" for code, count in codes.items())


def _voids(code: Code) -> bool:
    return FINDINGS[code].severity is Validity.INVALID

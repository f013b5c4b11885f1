"""The capacity that shares are taken of, from the records of capacity trials: pure functions.

Every gate looks at such a trial, and what the client or the link limited is refused; but not for a ramp, whose steps
only have to lie around the knee.
"""

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from scipy.special import stdtrit

from vmtoll.model.capacity import CapacityEstimate
from vmtoll.model.errors import CapacityError
from vmtoll.model.finding import FINDINGS, PACE_LIMITS, Code, Validity
from vmtoll.model.trial import Arm, TrialRecord, TrialSpec
from vmtoll.model.workload import MailWorkload, RampWorkload
from vmtoll.spec.experiment import Resolved

# Trials whose mean is the capacity, how many are made at most in a block to have them, and in how many blocks: what
# spoils the first minute of a run is often gone a minute later.
TRIALS, MOST_TRIALS, MOST_BLOCKS = 3, 5, 3
# What made the rate that of the client or the link.
LIMITING = PACE_LIMITS | {Code.CLIENT_STARVED}


@dataclass(frozen=True)
class Target:
    """Target of a capacity estimate.

    `block`: that it holds for; None: the whole run. `is_scale`: of a ramp's steps, for which a limited one serves as
    well.
    """

    arm: Arm
    server: str
    workload: str
    block: int | None
    is_scale: bool = False


def targets(spec: TrialSpec, resolved: Resolved) -> list[Target]:
    """The capacities that a trial's share follows from; none for a load that is no share."""
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


def of_target(target: Target, records: Iterable[TrialRecord]) -> list[TrialRecord]:
    """The capacity trials of a target, in their order."""
    return [
        record
        for record in records
        if (record.arm, record.scenario.server, record.scenario.workload)
        == (target.arm, target.server, target.workload)
        and target.block in (None, record.block)
    ]


def is_good(record: TrialRecord) -> bool:
    """Return whether the server, and nothing else, decided the rate of a capacity trial."""
    return _rate_rps(record) is not None and not record.codes & LIMITING


def _rate_rps(record: TrialRecord) -> float | None:
    counts = record.validity is not Validity.INVALID and record.primary
    return record.primary.throughput_rps if counts and record.primary else None


def is_settled(records: Sequence[TrialRecord], block: int) -> bool:
    """Return whether enough trials of a target are good, or too few can be any more: in this block, or at all."""
    bad = Counter(record.block for record in records if not is_good(record))
    if len(records) - bad.total() >= TRIALS or bad[block] > MOST_TRIALS - TRIALS:
        return True
    return sum(count > MOST_TRIALS - TRIALS for count in bad.values()) >= MOST_BLOCKS


def estimate(rates_rps: Sequence[float]) -> CapacityEstimate:
    """The geometric mean of a target's rates, with its interval."""
    logs = [math.log(rate) for rate in rates_rps]
    mean, count = statistics.fmean(logs), len(logs)
    if count < 2:
        return CapacityEstimate(math.exp(mean), None, None, count)
    half = float(stdtrit(count - 1, 0.975)) * statistics.stdev(logs) / math.sqrt(count)
    return CapacityEstimate(math.exp(mean), math.exp(mean - half), math.exp(mean + half), count)


def whole(candidates: Sequence[Target], records: Sequence[TrialRecord]) -> CapacityEstimate:
    """The smallest capacity of these targets.

    One that was limited is a lower bound, which does no harm where another is smaller, or for a scale. Raises
    CapacityError where the smallest is a bound, or a target has no figure at all.
    """
    estimates: list[tuple[float, CapacityEstimate | None, Target]] = []
    for target in candidates:
        trials = of_target(target, records)
        good = [rate for trial in trials if is_good(trial) and (rate := _rate_rps(trial))]
        bounds = [rate for trial in trials if (rate := _rate_rps(trial))]
        if not bounds:
            raise CapacityError(_refusal(target, trials))
        settled = estimate(bounds) if target.is_scale else estimate(good) if len(good) >= TRIALS else None
        estimates.append((settled.mean_rps if settled else min(bounds), settled, target))
    _, smallest, target = min(estimates, key=lambda entry: entry[0])
    if smallest is None:
        raise CapacityError(_refusal(target, of_target(target, records)))
    return smallest


def _refusal(target: Target, trials: Sequence[TrialRecord]) -> str:
    """`metal: client-saturated in 3 of 3 trials`."""
    codes = Counter(code for trial in trials for code in sorted(trial.codes) if code in LIMITING or _voids(code))
    return f"{target.arm}: " + ", ".join(f"{code} in {count} of {len(trials)} trials" for code, count in codes.items())


def _voids(code: Code) -> bool:
    return FINDINGS[code].severity is Validity.INVALID

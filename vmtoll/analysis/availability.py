"""Availability: the share of planned requests that succeeded; reliability: the share of trials that gave figures."""

from collections.abc import Sequence

from vmtoll.analysis.run import Run
from vmtoll.model.finding import Role, Validity
from vmtoll.model.trial import Arm, Scenario, TrialRecord
from vmtoll.model.verdict import Reliability, Share, TrialShare
from vmtoll.statistics.proportions import clopper_pearson, mcnemar, wilson


def success_counts(trials: Sequence[TrialRecord], role: Role) -> list[tuple[int, int]]:
    """(requests that succeeded, requests planned) of each trial that has counts."""
    counts = []
    for trial in trials:
        measurement = trial.measurement(role)
        if measurement is None or measurement.requests is None:
            continue
        successful = measurement.successful
        if successful is None and measurement.failed is not None:
            successful = measurement.requests - measurement.failed
        if successful is not None:
            counts.append((successful, measurement.requests))
    return counts


def availability(trials: Sequence[TrialRecord], role: Role) -> Share | None:
    """The share of planned requests that succeeded, with Wilson's 95% interval; None without a count.

    It includes trials that the gates refused, because failed requests are a reason to refuse one. Wilson takes requests
    as independent; those of one trial fail together, so the interval is the narrowest possible.
    """
    counts = success_counts(trials, role)
    successful, total = (sum(column) for column in zip(*counts, strict=True)) if counts else (0, 0)
    if total == 0:
        return None
    interval = wilson(successful, total)
    return Share(successful, total, successful / total, interval.low, interval.high)


def reliability(run: Run, scenario: Scenario, arm: Arm) -> Reliability | None:
    """Count each side's trials that gave figures: at the first attempt, and in the end; None unless both have trials.

    The p-value is McNemar's, over the blocks in which the first attempt failed on one side only.
    """
    sides = [run.trials_of(scenario, side_arm) for side_arm in (run.baseline, arm)]
    if not all(sides):
        return None
    first_attempts = [
        {t.block: t.attempt == 1 and t.validity is not Validity.INVALID for t in trials} for trials in sides
    ]
    common_blocks = first_attempts[0].keys() & first_attempts[1].keys()
    discordant = [
        sum(first_attempts[a][block] and not first_attempts[b][block] for block in common_blocks)
        for a, b in ((0, 1), (1, 0))
    ]
    shares = []
    for trials, succeeded_at_first in zip(sides, first_attempts, strict=True):
        interval = clopper_pearson(sum(succeeded_at_first.values()), len(trials))
        shares.append(
            TrialShare(
                trials=len(trials),
                at_first=sum(succeeded_at_first.values()),
                valid=sum(trial.validity is not Validity.INVALID for trial in trials),
                low=interval.low,
                high=interval.high,
            )
        )
    return Reliability(baseline=shares[0], compared=shares[1], p=mcnemar(discordant[0], discordant[1]))

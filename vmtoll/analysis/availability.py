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
        measured = trial.measurement(role)
        if measured is None or measured.requests is None:
            continue
        successful = measured.successful
        if successful is None and measured.failed is not None:
            successful = measured.requests - measured.failed
        if successful is not None:
            counts.append((successful, measured.requests))
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
    sides = [run.trials_of(scenario, each) for each in (run.baseline, arm)]
    if not all(sides):
        return None
    first = [{t.block: t.attempt == 1 and t.validity is not Validity.INVALID for t in trials} for trials in sides]
    both = first[0].keys() & first[1].keys()
    only = [sum(first[a][block] and not first[b][block] for block in both) for a, b in ((0, 1), (1, 0))]
    shares = []
    for trials, at_first in zip(sides, first, strict=True):
        interval = clopper_pearson(sum(at_first.values()), len(trials))
        shares.append(
            TrialShare(
                trials=len(trials),
                at_first=sum(at_first.values()),
                valid=sum(trial.validity is not Validity.INVALID for trial in trials),
                low=interval.low,
                high=interval.high,
            )
        )
    return Reliability(baseline=shares[0], compared=shares[1], p=mcnemar(only[0], only[1]))

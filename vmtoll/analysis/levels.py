"""Context of a verdict's ratio: how well each side's percentile is known, and the sources of the variance."""

import math
from collections.abc import Sequence

import numpy as np

from vmtoll.analysis.pairs import Pairs, Side, requests_of
from vmtoll.analysis.run import Run
from vmtoll.analysis.statistics import half_width
from vmtoll.analysis.thinning import latencies, rank_interval
from vmtoll.model.metric import Metric
from vmtoll.model.verdict import PercentileLevel, VarianceShares

NORMAL = 1.959964  # the 97.5% quantile


def percentile_level(run: Run, pairs: Pairs, side: Side, metric: Metric) -> PercentileLevel | None:
    """A side's percentile over the blocks of the pairs; None for a metric that is none, and without a figure.

    Its interval is the wider of two: Student's over blocks, and that of order statistics within the trials, whose
    errors add up as independent ones do.
    """
    used = [trial for trial in side.used if trial.block in pairs.blocks]
    logs = [math.log(side.figures[block]) for block in pairs.blocks]
    if metric.percentile is None or not logs:
        return None
    mean, requests = float(np.mean(logs)), min(requests_of(trial, side.role) or 0 for trial in used)
    over = half_width(float(np.std(logs, ddof=1)), len(logs)) if len(logs) > 1 else None
    samples = [latencies(run.path, trial, side.role) for trial in used]
    ranks = [sample and rank_interval(*sample, metric.percentile) for sample in samples]
    errors = [math.log(ends[1] / ends[0]) / (2 * NORMAL) for ends in ranks if ends and ends[0] > 0]
    within = NORMAL * math.sqrt(math.fsum(e**2 for e in errors)) / len(errors) if len(errors) == len(used) else None
    half = max((width for width in (over, within) if width is not None), default=None)
    value = math.exp(mean)
    if half is None:
        return PercentileLevel(value, requests=requests)
    return PercentileLevel(value, math.exp(mean - half), math.exp(mean + half), requests, half == within)


def variance_shares(pairs: Pairs) -> VarianceShares | None:
    """Shares of a block's log ratio's variance by level (Kalibera and Jones 2013, section 4); None below two blocks.

    Each is the level's sample variance of means less what the level below explains, none below zero. `trial` is known
    from blocks in which the baseline has two replicates: half the variance of their difference, for each of the trials
    that a pair is made of.
    """
    groups = [np.asarray(logs) for logs in pairs.by_boot.values()]
    blocks = sum(group.size for group in groups)
    if blocks < 2:
        return None
    freedom = blocks - len(groups)
    within = sum(float(((group - group.mean()) ** 2).sum()) for group in groups) / freedom if freedom else 0.0
    boot = None
    if len(groups) > 1:
        means = np.array([group.mean() for group in groups])
        boot = max(0.0, float(means.var(ddof=1)) - within * float(np.mean([1 / group.size for group in groups])))
    trial = None if (of_trial := _trial_variance(pairs)) is None else min(of_trial, within)
    total = within + (boot or 0.0)
    if total == 0:
        return None
    return VarianceShares(
        sd=math.sqrt(total),
        block=(within - (trial or 0.0)) / total,
        boot=None if boot is None else boot / total,
        trial=None if trial is None else trial / total,
    )


def _trial_variance(pairs: Pairs) -> float | None:
    """The variance that the trials of a pair give to its log ratio; None without two blocks of two replicates."""
    differences, sizes = list[float](), list[float]()
    for block in pairs.blocks:
        logs = [_logs(side, block) for side in pairs.sides]
        differences += [pair[1] - pair[0] for pair in logs if len(pair) == 2]
        sizes.append(sum(1 / len(values) for values in logs))
    if len(differences) < 2:
        return None
    return float(np.mean(np.square(differences))) / 2 * float(np.mean(sizes))


def _logs(side: Side, block: int) -> Sequence[float]:
    return [math.log(value) for trial, value in zip(side.used, side.values, strict=True) if trial.block == block]

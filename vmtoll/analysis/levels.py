"""A side's percentile with its interval, as context of a verdict's ratio."""

import math

import numpy as np

from vmtoll.analysis.pairs import Pairs
from vmtoll.analysis.run import Run
from vmtoll.analysis.sides import Side, requests_of
from vmtoll.analysis.thinning import rank_interval
from vmtoll.model.metric import Metric
from vmtoll.model.verdict import PercentileLevel
from vmtoll.statistics.student import half_width

NORMAL_QUANTILE = 1.959964  # the 97.5% quantile


def percentile_level(run: Run, pairs: Pairs, side: Side, metric: Metric) -> PercentileLevel | None:
    """A side's percentile over the paired blocks; None for a metric that is not a percentile, or without a figure.

    Its interval is the wider of two: Student's over blocks, and that of order statistics within the trials, whose
    errors add up as independent.
    """
    used = [trial for trial in side.used if trial.block in pairs.blocks_of_pairs]
    logs = [math.log(side.figures[block]) for block in pairs.bounds.mid.blocks]
    if metric.percentile is None or not logs:
        return None
    mean, requests = float(np.mean(logs)), min(requests_of(trial, side.measure.role) or 0 for trial in used)
    half_over_blocks = half_width(float(np.std(logs, ddof=1)), len(logs)) if len(logs) > 1 else None
    samples = [run.latencies(trial, side.measure.role) for trial in used]
    ranks = [sample and rank_interval(*sample, metric.percentile) for sample in samples]
    errors = [math.log(ends[1] / ends[0]) / (2 * NORMAL_QUANTILE) for ends in ranks if ends and ends[0] > 0]
    half_within_trials = (
        NORMAL_QUANTILE * math.sqrt(math.fsum(e**2 for e in errors)) / len(errors) if len(errors) == len(used) else None
    )
    half = max((width for width in (half_over_blocks, half_within_trials) if width is not None), default=None)
    value = math.exp(mean)
    if half is None:
        return PercentileLevel(value, requests=requests)
    return PercentileLevel(value, math.exp(mean - half), math.exp(mean + half), requests, half == half_within_trials)

"""The percentile that fewer requests would have had, and the interval of a percentile by its number of requests.

A nearest-rank percentile of few requests is too low on average: of a hundred, p99 is the second largest. Only
percentiles of equally many requests compare fairly. Thinning at random would add noise, so this is its exact mean: if n
requests are drawn from N without replacement, the hypergeometric distribution gives the probability that the rank-th is
at most v.
"""

import math
from pathlib import Path

import numpy as np
import scipy
from scipy.special import gammaln

from vmtoll.analysis.histograms import Floats, buckets, read_histogram
from vmtoll.analysis.percentiles import connect
from vmtoll.model.finding import Role
from vmtoll.model.trial import TrialRecord
from vmtoll.statistics.ranks import rank_of

_ROWS = """
SELECT latency_us, "count" FROM read_parquet($1)
WHERE run_id = $2 AND block = $3 AND "order" = $4 AND attempt = $5
ORDER BY latency_us
"""


def latencies(run_dir: Path, trial: TrialRecord, role: Role) -> tuple[Floats, Floats] | None:
    """(latencies in µs, ascending; how many requests took each) of one measurement, from a run's histograms or a
    bundle's; None where they do not hold it. Raises LoadError.
    """
    measurement, table = trial.measurement(role), run_dir / "histograms.parquet"
    if measurement is None:
        return None
    if measurement.histogram is not None and (run_dir / measurement.histogram).exists():
        return _from_histogram(run_dir / measurement.histogram)
    return _from_bundle(table, trial) if table.exists() and role is _logged_role(trial) else None


def _logged_role(trial: TrialRecord) -> Role:
    """Role whose latencies a trial's histogram has: in closed loops the cross-check if it logs them, else primary."""
    crosscheck = trial.crosscheck
    closed = not trial.scenario.load.is_open
    return Role.CROSSCHECK if closed and crosscheck and crosscheck.logs_service_times else Role.PRIMARY


def _from_histogram(file: Path) -> tuple[Floats, Floats] | None:
    values, counts = buckets(read_histogram(file))
    return (values, counts) if values.size else None


def _from_bundle(table: Path, trial: TrialRecord) -> tuple[Floats, Floats] | None:
    with connect() as database:
        rows = database.execute(_ROWS, [str(table), trial.run_id, trial.block, trial.order, trial.attempt]).fetchnumpy()
    values, counts = (np.asarray(rows[name], dtype=float) for name in ("latency_us", "count"))
    return (values, counts) if values.size else None


def expected_percentile(values: Floats, cumulative_counts: Floats, requests: int, percentile: float) -> float:
    """The expected nearest-rank percentile of `requests` of these values drawn without replacement: exp of its mean
    logarithm; the percentile of all of them if there are no more. `cumulative_counts`: how many are at most each of the
    values.
    """
    total = int(cumulative_counts[-1])
    drawn = min(requests, total)
    rank = rank_of(percentile, drawn)
    # The chance that the rank-th drawn is the k-th of all is C(k − 1, rank − 1) · C(total − k, drawn − rank), up to a
    # factor. Forty standard deviations around its mean are as good as all k, and far fewer.
    mean, sd = rank / drawn * total, total * math.sqrt(max(percentile * (1 - percentile), 1 / drawn) / drawn)
    k = np.arange(max(rank, math.floor(mean - 40 * sd)), min(total - drawn + rank, math.ceil(mean + 40 * sd)) + 1)
    logs = gammaln(k) - gammaln(k - rank + 1) + gammaln(total - k + 1) - gammaln(total - k - drawn + rank + 1)
    chances = np.exp(logs - logs.max())
    at_most = np.interp(cumulative_counts, np.append(k[0] - 1, k), np.append(0.0, np.cumsum(chances) / chances.sum()))
    return float(np.exp(np.log(np.maximum(values, 1.0)) @ np.diff(at_most, prepend=0.0)))


def rank_interval(values: Floats, cumulative_counts: Floats, percentile: float) -> tuple[float, float] | None:
    """The 95% interval of a percentile by order statistics (Hahn and Meeker 1991, section 5.2), without any assumption
    about the distribution: ranks B⁻¹(0.025; n, q) and B⁻¹(0.975; n, q) + 1. None below ln 0.025 ÷ ln q values.

    `cumulative_counts`: how many are at most each of the values. The interval takes requests as independent; those
    behind one stall are not, so it is the narrowest possible.
    """
    total = int(cumulative_counts[-1])
    low, high = (int(scipy.stats.binom.ppf(p, total, percentile)) for p in (0.025, 0.975))
    if low < 1 or high + 1 > total:
        return None
    first, last = (values[np.searchsorted(cumulative_counts, rank, side="left")] for rank in (low, high + 1))
    return float(first), float(last)

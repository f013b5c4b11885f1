"""Latency percentiles from the trials' histograms: merged, never averaged."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
from hdrh.histogram import HdrHistogram

from vmtoll.model.errors import LoadError
from vmtoll.model.trial import TrialRecord
from vmtoll.statistics.overload import Growth, growth
from vmtoll.statistics.ranks import nearest_rank

Floats = npt.NDArray[np.float64]

PERCENTILES = (50.0, 90.0, 99.0, 99.9)
COLUMNS = ("service_time_p50_us", "service_time_p90_us", "service_time_p99_us", "service_time_p999_us")


def merged_percentiles(run_dir: Path, trials: pd.DataFrame) -> tuple[float, ...] | None:
    """p50, p90, p99, p99.9 in µs over all requests of these trials; None as for `distribution`."""
    merged_distribution = distribution(run_dir, trials)
    return (
        None if merged_distribution is None else tuple(nearest_rank(*merged_distribution, p / 100) for p in PERCENTILES)
    )


def distribution(run_dir: Path, trials: pd.DataFrame) -> tuple[Floats, Floats] | None:
    """(latencies in µs, ascending; how many requests took at most that long); None as for `merged_histogram`, or if
    empty.
    """
    histogram = merged_histogram(run_dir, trials)
    if histogram is None or not histogram.get_total_count():
        return None
    values, counts = buckets(histogram)
    return values, np.cumsum(counts)


def goodput_rps(run_dir: Path, trials: pd.DataFrame, deadlines_ms: Sequence[float]) -> Floats | None:
    """Correct responses within each deadline per second, over all of these open-loop trials together; shape
    (deadlines,). None as for `merged_histogram`.

    It uses the merged histogram, so any deadline will do, not only the experiment's own. The bins are 0.1% wide; one
    counts if it lies wholly within the deadline. The seconds are those in which the requests were to be sent.
    """
    merged_latencies = distribution(run_dir, trials)
    if merged_latencies is None:
        return None
    latencies_us, counts = merged_latencies
    within = np.searchsorted(latencies_us, np.asarray(deadlines_ms) * 1000, side="right")
    intended_s = float((trials["requests"] / trials["offered_rps"]).sum())
    return np.concatenate([[0.0], counts])[within] / intended_s


def growth_within(run_dir: Path, record: TrialRecord) -> Growth | None:
    """Growth of a trial's response times, from the counts by second that the run keeps.

    None without them, or with fewer than five seconds that hold requests.
    """
    name = record.primary.histogram if record.primary else None
    file = (run_dir / name).with_suffix(".csv") if name else None
    if file is None or not file.exists():
        return None
    rows = pd.read_csv(file)
    return growth(rows["second"], rows["latency_us"], rows["count"])


def merged_histogram(run_dir: Path, trials: pd.DataFrame) -> HdrHistogram | None:
    """One histogram, in µs, of all requests of these trials (rows of Run.frame); None unless each has its file.

    Raises LoadError with the file's name when a histogram cannot be read.
    """
    names = [name for record in trials["record"] for tool in record.measurements if (name := tool.histogram)]
    files = [run_dir / name for name in names]
    if not files or len(files) < len(trials) or not all(file.exists() for file in files):
        return None
    total = read_histogram(files[0])
    for file in files[1:]:
        total.add(read_histogram(file))
    return total


def buckets(histogram: HdrHistogram) -> tuple[Floats, Floats]:
    """(the highest latency of each non-empty bucket in µs, ascending; its count).

    The same as `get_recorded_iterator` gives, which makes a call for each of some 20,000 buckets.
    """
    counts = np.array(histogram.counts)
    used = np.flatnonzero(counts)
    values = [histogram.get_highest_equivalent_value(histogram.get_value_from_index(int(index))) for index in used]
    return np.array(values, dtype=float), counts[used].astype(float)


def read_histogram(file: Path) -> HdrHistogram:
    """One trial's histogram in µs, summed over its clients: the file has a line for each.

    Raises LoadError with the file's name when it cannot be read.
    """
    try:
        first, *others = [HdrHistogram.decode(line) for line in file.read_bytes().split()]
    except Exception as error:  # the decoder raises whatever zlib, base64 or struct do
        raise LoadError(f"{file}: not an HdrHistogram (V2, base64): {error}") from error
    for other in others:
        first.add(other)
    return first

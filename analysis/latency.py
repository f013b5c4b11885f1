"""Latency percentiles from the trials' histograms: merged, never averaged."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
from hdrh.histogram import HdrHistogram

from analysis.load import LoadError

Floats = npt.NDArray[np.float64]

PERCENTILES = (50.0, 90.0, 99.0, 99.9)
COLUMNS = ("service_time_p50_us", "service_time_p90_us", "service_time_p99_us", "service_time_p999_us")


def trial_name(block: int, order: int, attempt: int) -> str:
    """The name of a trial's files: `b001-o003-a1`."""
    return f"b{block:03d}-o{order:03d}-a{attempt}"


def merged_percentiles(run_dir: Path, trials: pd.DataFrame) -> tuple[float, ...] | None:
    """p50, p90, p99, p99.9 in µs over all requests of these trials; None as for `merged`."""
    histogram = merged(run_dir, trials)
    return None if histogram is None else tuple(float(histogram.get_value_at_percentile(p)) for p in PERCENTILES)


def distribution(run_dir: Path, trials: pd.DataFrame) -> tuple[Floats, Floats] | None:
    """(latencies in µs, ascending; how many requests took at most that long); None as for `merged`."""
    histogram = merged(run_dir, trials)
    if histogram is None or not histogram.get_total_count():
        return None
    steps = [(s.value_iterated_to, s.total_count_to_this_value) for s in histogram.get_recorded_iterator()]
    values, counts = np.array(steps, dtype=float).T
    return values, counts


def goodput_rps(run_dir: Path, trials: pd.DataFrame, deadlines_ms: Sequence[float]) -> Floats | None:
    """Correct responses within each deadline per second, over all of these open-loop trials together; shape
    (deadlines,). None as for `merged`.

    From the merged histogram, so for any deadline, not only the experiment's own. Its bins are 0.1% wide: a
    bin counts when all of it lies within. Seconds are those from the first intended send to the last answer.
    """
    found = distribution(run_dir, trials)
    if found is None:
        return None
    latencies_us, counts = found
    within = np.searchsorted(latencies_us, np.asarray(deadlines_ms) * 1000, side="right")
    elapsed_s = float((trials["transactions"] / trials["throughput_rps"]).sum())
    return np.concatenate([[0.0], counts])[within] / elapsed_s


def merged(run_dir: Path, trials: pd.DataFrame) -> HdrHistogram | None:
    """One histogram, in µs, of all requests of these trials; None unless every trial has its file.

    Raises ValueError with the file's name when a histogram cannot be read.
    """
    keys = zip(trials["block"], trials["order"], trials["attempt"], strict=True)
    files = [run_dir / "histograms" / f"{trial_name(*map(int, key))}.hdr" for key in keys]
    if not files or not all(file.exists() for file in files):
        return None
    return _merge(files)


def read_histogram(file: Path) -> HdrHistogram:
    """One trial's histogram, values in µs, of all its clients: a line each.

    Raises LoadError with the file's name when it cannot be read.
    """
    try:
        first, *others = [HdrHistogram.decode(line) for line in file.read_bytes().split()]
    except Exception as error:  # the decoder raises whatever zlib, base64 or struct do
        raise LoadError(f"{file}: not an HdrHistogram (V2, base64): {error}") from error
    for other in others:
        first.add(other)
    return first


def _merge(files: Iterable[Path]) -> HdrHistogram:
    total = None
    for file in files:
        histogram = read_histogram(file)
        if total is None:
            total = histogram
        else:
            total.add(histogram)
    return total

"""Latency percentiles from the trials' histograms: merged, never averaged."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pandas as pd
from hdrh.histogram import HdrHistogram

PERCENTILES = (50.0, 90.0, 99.0, 99.9)
COLUMNS = ("service_time_p50_us", "service_time_p90_us", "service_time_p99_us", "service_time_p999_us")


def trial_name(block: int, order: int, attempt: int) -> str:
    """The name of a trial's files: `b001-o003-a1`."""
    return f"b{block:03d}-o{order:03d}-a{attempt}"


def merged_percentiles(run_dir: Path, trials: pd.DataFrame) -> tuple[float, ...] | None:
    """p50, p90, p99, p99.9 in µs over all requests of these trials; None unless every trial has its file.

    Raises ValueError with the file's name when a histogram cannot be read.
    """
    keys = zip(trials["block"], trials["order"], trials["attempt"], strict=True)
    files = [run_dir / "histograms" / f"{trial_name(*map(int, key))}.hdr" for key in keys]
    if not files or not all(file.exists() for file in files):
        return None
    merged = _merge(files)
    return tuple(float(merged.get_value_at_percentile(p)) for p in PERCENTILES)


def _merge(files: Iterable[Path]) -> HdrHistogram:
    merged = None
    for file in files:
        try:
            histogram = HdrHistogram.decode(file.read_bytes().strip())
        except Exception as error:  # the decoder raises whatever zlib, base64 or struct do
            raise ValueError(f"{file}: not an HdrHistogram (V2, base64): {error}") from error
        if merged is None:
            merged = histogram
        else:
            merged.add(histogram)
    return merged

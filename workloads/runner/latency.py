"""Service times of one trial: percentiles and a mergeable histogram, in microseconds."""

from typing import Any

import numpy as np
from hdrh.histogram import HdrHistogram
from numpy.typing import NDArray

from workloads.tools import ToolError

HIGHEST_US = 3_600_000_000
PER_MILLE = {"p50": 500, "p90": 900, "p99": 990, "p999": 999}


def summary(latencies_us: NDArray[np.int64]) -> dict[str, float]:
    """`service_time_*_us` of the exact values; nearest rank, so every percentile is a value that was seen."""
    if len(latencies_us) == 0:
        return {}
    ordered = np.sort(latencies_us)
    ranks = {name: -(-len(ordered) * share // 1000) for name, share in PER_MILLE.items()}
    named = {f"service_time_{name}_us": float(ordered[rank - 1]) for name, rank in ranks.items()}
    return {"service_time_mean_us": float(np.mean(latencies_us)), **named}


def histogram(latencies_us: NDArray[np.int64]) -> bytes:
    """HdrHistogram V2, base64, three significant digits. Raises ToolError on a value it cannot hold."""
    made: Any = HdrHistogram(1, HIGHEST_US, 3)
    values, counts = np.unique(np.maximum(latencies_us, 1), return_counts=True)
    for value, count in zip(values.tolist(), counts.tolist(), strict=True):
        if not made.record_value(value, count):
            raise ToolError(f"a service time of {value} µs is beyond what the histogram holds")
    return bytes(made.encode())

"""Service times of one trial: percentiles and a mergeable histogram, in microseconds."""

from typing import Any

import numpy as np
from hdrh.histogram import HdrHistogram
from numpy.typing import NDArray

from workloads.tools import ToolError

HIGHEST_US = 3_600_000_000
PERCENTILES = {"p50": 50.0, "p90": 90.0, "p99": 99.0, "p999": 99.9}


def summary(latencies_us: NDArray[np.int64]) -> dict[str, float]:
    """`service_time_*_us` of the exact values; nearest rank, so every percentile is a value that was seen."""
    if len(latencies_us) == 0:
        return {}
    values = np.percentile(latencies_us, list(PERCENTILES.values()), method="inverted_cdf")
    named = {f"service_time_{name}_us": float(v) for name, v in zip(PERCENTILES, values, strict=True)}
    return {"service_time_mean_us": float(np.mean(latencies_us)), **named}


def histogram(latencies_us: NDArray[np.int64]) -> bytes:
    """HdrHistogram V2, base64, three significant digits. Raises ToolError on a value it cannot hold."""
    made: Any = HdrHistogram(1, HIGHEST_US, 3)
    values, counts = np.unique(np.maximum(latencies_us, 1), return_counts=True)
    for value, count in zip(values.tolist(), counts.tolist(), strict=True):
        if not made.record_value(value, count):
            raise ToolError(f"a service time of {value} µs is beyond what the histogram holds")
    return bytes(made.encode())

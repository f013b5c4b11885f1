"""The absolute skewness that 99% of normal samples do not exceed, for 3 to 199 blocks: python -m benchmarks.skewness.

Writes vmtoll/statistics/skewness-limits.csv, which the engine reads, and the same table in docs/statistics.md.
"""

import csv
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor

import numpy as np

from benchmarks import write_measured
from vmtoll.paths import PROJECT
from vmtoll.statistics.series import SKEWNESS_LIMITS, skewness, skewness_limits
from vmtoll.statistics.thresholds import SKEWED

BLOCKS = range(3, 200)
SAMPLES, AT_ONCE = 400_000, 20_000
PAGE = PROJECT / "docs" / "statistics.md"
_A_ROW = 10


def limit(blocks: int, samples: int = SAMPLES) -> float:
    """The limit for this number of blocks, by simulation with a fixed seed."""
    rng = np.random.default_rng(blocks)
    batches = [skewness(rng.normal(size=(AT_ONCE, blocks))) for _ in range(samples // AT_ONCE)]
    return float(np.quantile(np.abs(np.concatenate(batches)), 1 - SKEWED))


def table(limits: Mapping[int, float]) -> str:
    """The limits as Markdown, ten to a row."""
    head = [f"| blocks | {' | '.join(f'+{i}' for i in range(_A_ROW))} |", "|---" * (_A_ROW + 1) + "|"]
    rows = []
    for first in range(0, max(limits) + 1, _A_ROW):
        cells = [f"{limits[n]:.4f}" if n in limits else "" for n in range(first, first + _A_ROW)]
        rows.append(f"| {first} | {' | '.join(cells)} |")
    return "\n".join([*head, *rows])


def main() -> None:
    """Write both tables."""
    with ProcessPoolExecutor(2) as pool:
        limits = dict(zip(BLOCKS, pool.map(limit, BLOCKS, chunksize=4), strict=True))
    with SKEWNESS_LIMITS.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(["blocks", "limit"])
        writer.writerows((n, f"{value:.4f}") for n, value in limits.items())
    skewness_limits.cache_clear()
    write_measured(PAGE, "skewness limits", table(skewness_limits()))


if __name__ == "__main__":
    main()

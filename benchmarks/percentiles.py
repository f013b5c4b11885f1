"""Time and memory that grouped exact percentiles take: `python -m benchmarks.percentiles [ROWS]`.

Makes ROWS samples (default: 100 million) in eight groups as Parquet in a temporary folder, lognormal and
the same each time; then measures analysis.percentiles in a fresh process. The files are in the page
cache by then.
"""

import sys
from pathlib import Path

import duckdb

from benchmarks import fresh_process, timed
from vmtoll.analysis.percentiles import grouped_percentiles

ROWS = 100_000_000
PART = 10_000_000

# Box–Muller from two hashes of the row's number; the four servers differ in their median.
_MAKE = """
COPY (
    WITH uniform AS (
        SELECT i, (hash(i) >> 11) / 9007199254740992 AS a, (hash(-1 - i) >> 11) / 9007199254740992 AS b
        FROM range($first, $last) AS numbers(i)
    )
    SELECT ['apache-prefork', 'lighttpd', 'lighttz', 'nginx'][1 + i % 4] AS server,
           if(i // 4 % 2 = 0, 'metal', 'kvm-default') AS environment,
           CAST(exp(6.5 + 0.2 * (i % 4) + 0.6 * sqrt(-2 * ln(1 - a)) * cos(2 * pi() * b)) AS INTEGER) AS latency_us
    FROM uniform
) TO '{file}' (FORMAT parquet, COMPRESSION zstd)
"""


def make(folder: Path, rows: int) -> list[Path]:
    """Write the samples in parts of ten million; return the files."""
    files = []
    with duckdb.connect() as database:
        database.execute("SET enable_progress_bar = false")
        for first in range(0, rows, PART):
            file = folder / f"part-{first // PART:03d}.parquet"
            database.execute(_MAKE.format(file=file), {"first": first, "last": min(first + PART, rows)})
            files.append(file)
    return files


def measure(files: list[Path]) -> tuple[float, float, float, str]:
    """Seconds, seconds of CPU, this process's peak memory in MB (10⁶ bytes), and the table."""
    seconds, cpu_s, peak_mb, table = timed(grouped_percentiles, files, ["server", "environment"])
    pivoted = table.pivot(index=["server", "environment", "samples"], columns="percentile", values="value_us")
    return seconds, cpu_s, peak_mb, pivoted.to_string()


def main() -> None:
    """Make, measure, print."""
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else ROWS
    with fresh_process() as (folder, call):
        files = call(make, folder, rows)
        size_mb = sum(file.stat().st_size for file in files) / 1e6
        seconds, cpu_s, peak_mb, table = call(measure, files)
    took = f"{seconds:.2f} s ({cpu_s:.2f} s of CPU), peak {peak_mb:.0f} MB"
    print(f"{table}\n{rows:,} samples, {size_mb:.0f} MB of Parquet: {took}")


if __name__ == "__main__":
    main()

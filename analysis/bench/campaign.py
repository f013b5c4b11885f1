"""How long and how much memory the analysis of a large campaign takes: `python -m analysis.bench.campaign [ROWS]`.

Makes a dataset of fifty cells in a temporary folder, the same each time: ROWS rows of histograms (200 million unless
told), 2,000 buckets to a trial, and samples of three machines for a minute each; then measures analysis.campaign in a
process of its own. The files are in the page cache by then, as far as it holds them.
"""

from __future__ import annotations

import sys
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb

from analysis.bench import peak_mb
from analysis.campaign import MEMORY_MB, campaign
from analysis.publish.parquet import TYPES
from analysis.schema import fields

ROWS = 200_000_000
CELLS, BLOCKS, SCENARIOS, BUCKETS, SECONDS = 50, 10, 8, 2000, 60
TRIALS = BLOCKS * SCENARIOS  # of a run: four servers on metal and in a guest
RUN_ROWS = TRIALS * BUCKETS

# The guest takes 20% longer, and each cell has a level of its own.
_TRIALS = """
SELECT $run AS run_id, 1 + n // 8 AS block, 1 + n % 8 AS "order", 1 AS attempt,
       if(n % 2 = 0, 'metal', 'kvm-default') AS environment, if(n % 2 = 0, 'none', 'kvm') AS accelerator,
       ['apache-prefork', 'lighttpd', 'lighttz', 'nginx'][1 + n % 8 // 2] AS server, 'site' AS workload,
       'vegeta' AS tool, 'rate:1000' AS offered_load, 'valid' AS verdict,
       (1000 + 10 * $cell) * if(n % 2 = 0, 1, 1.2) * (1 + (hash(n, $run) % 1000) / 1e5) AS response_time_p99_us,
       (40 + n % 8 // 2) * if(n % 2 = 0, 1, 1.1) AS server_cpu_us_per_request
FROM range({trials}) AS numbers(n)
"""
_HISTOGRAMS = """
SELECT $run AS run_id, 1 + n // 8 AS block, 1 + n % 8 AS "order", 1 AS attempt, 'response time' AS latency,
       (200 * exp(bucket / 300) * if(n % 2 = 0, 1, 1.2))::BIGINT + bucket AS latency_us,
       1 + (1000 * exp(-pow((bucket - 500) / 300, 2)))::BIGINT + 0 * $cell AS "count"
FROM range({trials}) AS numbers(n), range({buckets}) AS buckets(bucket)
"""
_SAMPLES = """
SELECT $run AS run_id, 1 + n // 8 AS block, 1 + n % 8 AS "order", 1 AS attempt, 60.0 * n + second AS time_s,
       role || $cell AS host, role, (hash(n, second, role) % 9000) / 100 AS cpu_user_pct, 5 AS cpu_system_pct,
       if(role = 'kvm_guest', (hash(second, n) % 100) / 100, 0) AS steal_pct, 0.5 AS pressure_cpu_pct
FROM range({trials}) AS numbers(n), range({seconds}) AS seconds(second),
     (SELECT unnest(['client', 'metal', 'kvm_guest']) AS role)
"""
_TABLES = {"trials": _TRIALS, "histograms": _HISTOGRAMS, "samples": _SAMPLES}


def make(folder: Path, rows: int) -> int:
    """Write runs, spread over the cells, until there are so many rows of histograms; the bytes of all files."""
    runs = max(1, round(rows / RUN_ROWS))
    with duckdb.connect() as database:
        database.execute("SET enable_progress_bar = false; SET threads = 2")
        for run in range(runs):
            values = {"run": f"run-{run:05d}", "cell": run % CELLS}
            for table, query in _TABLES.items():
                place = folder / table / "campaign=bench" / f"cell=c{values['cell']:02d}" / "experiment=bench"
                place.mkdir(parents=True, exist_ok=True)
                _write(database, table, query, values, place / f"{values['run']}.parquet")
    return sum(file.stat().st_size for file in folder.rglob("*.parquet"))


def _write(database: duckdb.DuckDBPyConnection, table: str, query: str, values: dict[str, Any], file: Path) -> None:
    """The query's rows with all columns of the schema, in its order; what it does not make is empty."""
    made = query.format(trials=TRIALS, buckets=BUCKETS, seconds=SECONDS)
    none = ", ".join(f'NULL::{TYPES[field["type"]]} AS "{field["name"]}"' for field in fields(table))
    rows = f"SELECT * FROM (SELECT {none} WHERE false) UNION ALL BY NAME ({made})"
    database.execute(f"COPY ({rows}) TO '{file}' (FORMAT parquet, COMPRESSION zstd)", values)


def measure(folder: Path, memory_mb: int = MEMORY_MB) -> tuple[float, float, float, dict[str, Any]]:
    """Seconds, seconds of CPU, this process's peak memory in MB (10⁶ bytes), and the figures."""
    begin, cpu_begin = time.monotonic(), time.process_time()
    figures = campaign(str(folder), memory_mb=memory_mb)
    return time.monotonic() - begin, time.process_time() - cpu_begin, peak_mb(), figures


def main() -> None:
    """Make, measure, print."""
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else ROWS
    with (
        TemporaryDirectory(prefix="vmtoll-bench-") as folder,
        ProcessPoolExecutor(1, mp_context=get_context("spawn"), max_tasks_per_child=1) as fresh,
    ):
        size = fresh.submit(make, Path(folder), rows).result()
        seconds, cpu_s, peak, figures = fresh.submit(measure, Path(folder)).result()
    trials = sum(row["valid"] for row in figures["cells"])
    for one in figures["effects"]:
        print(f"{one['server']:16} {one['label']:30} {one['text']}, {one['cells']} cells")
    print(
        f"{trials * BUCKETS:,} rows of histograms, {trials * SECONDS * 3:,} of samples, {trials:,} trials, "
        f"{size / 1e6:.0f} MB of Parquet: {seconds:.1f} s ({cpu_s:.1f} s of CPU), peak {peak:.0f} MB"
    )


if __name__ == "__main__":
    main()

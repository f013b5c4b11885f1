"""Time and memory that the analysis of a large campaign takes: `python -m benchmarks.campaign [ROWS]`.

Makes a dataset of fifty test beds in a temporary folder, the same each time: ROWS rows of histograms (default: 200
million), 2,000 buckets to a trial, samples of three machines for a minute each, and each run's verdicts; then measures
campaign_figures in a process of its own. The files are in the page cache by then, as far as it holds them.
"""

import sys
from pathlib import Path

import duckdb

from benchmarks import fresh_process, timed
from vmtoll.analysis.schema import fields
from vmtoll.campaign.effects import MEMORY_MB, Figures, campaign_figures
from vmtoll.publish.tables import TYPES

ROWS = 200_000_000
TESTBEDS, BLOCKS, SCENARIOS, BUCKETS, SECONDS = 50, 10, 8, 2000, 60
TRIALS = BLOCKS * SCENARIOS  # of a run: four servers on metal and in a guest
RUN_ROWS = TRIALS * BUCKETS

# The guest takes 20% longer, and each test bed has a level of its own.
_TRIALS = """
SELECT $run AS run_id, 1 + n // 8 AS block, 1 + n % 8 AS "order", 1 AS attempt,
       if(n % 2 = 0, 'metal', 'kvm-default') AS environment, 1 AS replicate,
       if(n % 2 = 0, 'none', 'kvm') AS accelerator, 'native' AS hardware,
       ['apache-prefork', 'lighttpd', 'lighttz', 'nginx'][1 + n % 8 // 2] AS server, 'site' AS workload,
       'vegeta' AS tool, 'rate' AS load_kind, 1000 AS load_value, 'valid' AS validity,
       (1000 + 10 * $testbed) * if(n % 2 = 0, 1, 1.2) * (1 + (hash(n, $run) % 1000) / 1e5) AS response_time_p99_us,
       (40 + n % 8 // 2) * if(n % 2 = 0, 1, 1.1) AS server_cpu_us_per_request
FROM range({trials}) AS numbers(n)
"""
_HISTOGRAMS = """
SELECT $run AS run_id, 1 + n // 8 AS block, 1 + n % 8 AS "order", 1 AS attempt, 'response-time' AS latency,
       (200 * exp(bucket / 300) * if(n % 2 = 0, 1, 1.2))::BIGINT + bucket AS latency_us,
       1 + (1000 * exp(-pow((bucket - 500) / 300, 2)))::BIGINT + 0 * $testbed AS "count"
FROM range({trials}) AS numbers(n), range({buckets}) AS buckets(bucket)
"""
_SAMPLES = """
SELECT $run AS run_id, 1 + n // 8 AS block, 1 + n % 8 AS "order", 1 AS attempt, 60.0 * n + second AS time_s,
       role || $testbed AS host, role, (hash(n, second, role) % 9000) / 100 AS cpu_user_pct, 5 AS cpu_system_pct,
       if(role = 'kvm_guest', (hash(second, n) % 100) / 100, 0) AS steal_pct, 0.5 AS pressure_cpu_pct
FROM range({trials}) AS numbers(n), range({seconds}) AS seconds(second),
     (SELECT unnest(['client', 'metal', 'kvm_guest']) AS role)
"""
_COMPARED = """
SELECT $run AS run_id, server, 'site' AS workload, 'rate' AS load_kind, 1000 AS load_value, 'vegeta' AS tool,
       'metal' AS baseline, 'kvm-default' AS compared, 'kvm' AS accelerator, 'native' AS hardware, metric,
       'primary' AS role, 'vegeta' AS measured_by, 1.2 * (1 + (hash(server, metric, $run) % 1000) / 1e5) AS ratio,
       0.0001 * $testbed AS own
FROM (SELECT unnest(['apache-prefork', 'lighttpd', 'lighttz', 'nginx']) AS server),
     (SELECT unnest(['tail', 'cpu']) AS metric)
"""
_VERDICTS = f"""
SELECT * EXCLUDE (ratio, own), ratio + own AS ratio, ratio + own - 0.01 AS mean_low, ratio + own + 0.01 AS mean_high,
       'slower' AS kind, 0.9 * ratio AS low, 1.1 * ratio AS high, 0.01 AS level, 0.005 AS standard_error, 0 AS widened,
       false AS open_low, false AS open_high, {{blocks}} AS blocks, {{blocks}} AS baseline_used,
       {{blocks}} AS compared_used, 0 AS baseline_limited, 0 AS compared_limited
FROM ({_COMPARED})
"""
_EFFECTS = f"""
SELECT * EXCLUDE (ratio, own, number), 1 + number AS block, 1 AS boot, ratio + own AS mid, ratio + own - 0.01 AS low,
       ratio + own + 0.01 AS high, 2 AS n
FROM ({_COMPARED}), range({{blocks}}) AS blocks(number)
"""
_TABLES = {
    "trials": _TRIALS, "histograms": _HISTOGRAMS, "samples": _SAMPLES, "verdicts": _VERDICTS, "effects": _EFFECTS,
}  # fmt: skip


def make(folder: Path, rows: int) -> int:
    """Write runs, spread over the test beds, with `rows` rows of histograms in all; return the bytes of all files."""
    runs = max(1, round(rows / RUN_ROWS))
    with duckdb.connect() as database:
        database.execute("SET enable_progress_bar = false; SET threads = 2")
        for run in range(runs):
            values: dict[str, object] = {"run": f"run-{run:05d}", "testbed": run % TESTBEDS}
            for table, query in _TABLES.items():
                part = folder / table / "campaign=bench" / f"testbed=c{values['testbed']:02d}" / "experiment=bench"
                part.mkdir(parents=True, exist_ok=True)
                _write(database, table, query, values, part / f"{values['run']}.parquet")
    return sum(file.stat().st_size for file in folder.rglob("*.parquet"))


def _write(database: duckdb.DuckDBPyConnection, table: str, query: str, values: dict[str, object], file: Path) -> None:
    """Write the query's rows with all columns of the schema, in its order; columns that it lacks are empty."""
    table_query = query.format(trials=TRIALS, buckets=BUCKETS, seconds=SECONDS, blocks=BLOCKS)
    empty_columns = ", ".join(f'NULL::{TYPES[field["type"]]} AS "{field["name"]}"' for field in fields(table))
    rows = f"SELECT * FROM (SELECT {empty_columns} WHERE false) UNION ALL BY NAME ({table_query})"
    database.execute(f"COPY ({rows}) TO '{file}' (FORMAT parquet, COMPRESSION zstd)", values)


def measure(folder: Path, memory_mb: int = MEMORY_MB) -> tuple[float, float, float, Figures]:
    """Seconds, seconds of CPU, this process's peak memory in MB (10⁶ bytes), and the figures."""
    return timed(campaign_figures, str(folder), memory_mb=memory_mb)


def main() -> None:
    """Make, measure, print."""
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else ROWS
    with fresh_process() as (folder, call):
        size = call(make, folder, rows)
        seconds, cpu_s, peak, figures = call(measure, folder)
    trials = sum(row.valid for row in figures.testbeds)
    for effect in figures.effects:
        verdict = effect.verdict
        print(f"{effect.scenario.server:16} {verdict.metric.name:12} {verdict.kind} {verdict.estimate}")
    print(
        f"{trials * BUCKETS:,} rows of histograms, {trials * SECONDS * 3:,} of samples, {trials:,} trials, "
        f"{size / 1e6:.0f} MB of Parquet: {seconds:.1f} s ({cpu_s:.1f} s of CPU), peak {peak:.0f} MB"
    )


if __name__ == "__main__":
    main()

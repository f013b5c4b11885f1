"""Exact percentiles of very many samples, by group: DuckDB counts each whole-µs value, then the counts are ranked.

Memory grows with the number of distinct values per group, not with the number of samples.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd

PERCENTILES = (50.0, 90.0, 99.0, 99.9)
MEMORY_LIMIT_MB = 150  # of DuckDB, which writes the rest to the temporary folder
THREADS = 2

_COUNT_QUERY = """
SELECT {groups}, {value} AS value, {total} AS n
FROM read_parquet($files)
WHERE {value} IS NOT NULL
GROUP BY {groups}, value
"""
_RANK_QUERY = """
WITH counted AS ({counted}),
ranked AS (
    SELECT {groups}, value,
           sum(n) OVER (PARTITION BY {groups} ORDER BY value) AS rank,
           sum(n) OVER (PARTITION BY {groups}) AS samples
    FROM counted
)
SELECT {groups}, CAST(percentile AS DOUBLE) AS percentile, CAST(min(value) AS BIGINT) AS value_us,
       CAST(any_value(samples) AS BIGINT) AS samples
FROM ranked, (SELECT CAST(unnest($percentiles) AS DECIMAL(9, 6)) AS percentile)
WHERE 100 * rank >= percentile * samples
GROUP BY {groups}, percentile
ORDER BY {groups}, percentile
"""


def grouped_percentiles(
    files: Path | Sequence[Path],
    groups: Sequence[str],
    value: str = "latency_us",
    percentiles: Sequence[float] = PERCENTILES,
    count: str | None = None,
) -> pd.DataFrame:
    """Exact percentiles of the whole-number column `value` (µs) of Parquet files, for each group.

    A row is one sample, or as many as its column `count` says, as in a bundle's histograms.parquet.

    Nearest rank: the smallest value that at least p percent of the samples do not exceed, so it is always an observed
    value. `percentiles` lie above 0 and at most at 100, with up to six decimals. Returns one row per group and
    percentile: the group columns, `percentile`, `value_us`, `samples`. Empty cells are not samples. Raises duckdb.Error
    for a missing file or column, and ValueError for an impossible percentile, no group, or a column of fractions.
    """
    if not groups or not all(0 < p <= 100 for p in percentiles):
        raise ValueError(f"expected at least one group and percentiles above 0 up to 100, got {groups}, {percentiles}")
    paths = [str(file) for file in ([files] if isinstance(files, Path) else files)]
    with connect() as database:
        columns = database.execute("DESCRIBE SELECT * FROM read_parquet($files)", {"files": paths}).fetchall()
        kinds = {str(column[0]): str(column[1]) for column in columns}
        if "INT" not in kinds.get(value, "INT"):
            raise ValueError(f"{paths[0]}: column {value} is {kinds[value]}, not whole microseconds")
        total = f"sum({_quoted(count)})" if count else "count(*)"
        group_columns = ", ".join(_quoted(name) for name in groups)
        count_query = _COUNT_QUERY.format(groups=group_columns, value=_quoted(value), total=total)
        return percentiles_of_counts(database, count_query, groups, percentiles, {"files": paths})


def percentiles_of_counts(
    database: duckdb.DuckDBPyConnection,
    count_query: str,
    groups: Sequence[str],
    percentiles: Sequence[float] = PERCENTILES,
    parameters: Mapping[str, Any] | None = None,
) -> pd.DataFrame:
    """The same from a query that counts: the group columns, each `value` (µs) once, and its count `n`."""
    group_columns = ", ".join(_quoted(name) for name in groups)
    query = _RANK_QUERY.format(counted=count_query, groups=group_columns)
    shares = [f"{p:.6f}" for p in percentiles]
    return database.execute(query, {**(parameters or {}), "percentiles": shares}).df()


def connect(memory_mb: int = MEMORY_LIMIT_MB, threads: int = THREADS) -> duckdb.DuckDBPyConnection:
    """Open a database in memory that holds at most `memory_mb` and writes the rest to the temporary folder."""
    settings: dict[str, str | bool | int | float | list[str]] = {
        "threads": threads,
        "memory_limit": f"{memory_mb}MB",
        "temp_directory": tempfile.gettempdir(),
        "preserve_insertion_order": False,
    }
    database = duckdb.connect(config=settings)
    database.execute("SET enable_progress_bar = false")
    return database


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'

"""The bundle's tables as CSV and Parquet, sorted and written by one thread: the same run gives the same bytes."""

import csv
import errno
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
from hdrh.histogram import HdrHistogram

from vmtoll.analysis.histograms import buckets, read_histogram
from vmtoll.analysis.run import Run
from vmtoll.analysis.schema import fields, names
from vmtoll.files import first_line
from vmtoll.model.columns import flat
from vmtoll.model.errors import LoadError, ResultsError
from vmtoll.model.percentiles import fewest_requests
from vmtoll.model.table import Cell
from vmtoll.model.trial import TrialRecord
from vmtoll.statistics.ranks import nearest_rank

PERCENTILES = (1, 5, 10, 25, 50, 75, 90, 95, 99, 99.5, 99.9, 99.99, 100)
_WRITE_ERRNOS = (
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EROFS,
    errno.EACCES,
    errno.ENOENT,
)  # DuckDB reports these as text only
TRIAL = ("run_id", "block", "order", "attempt")


def write(path: Path, table: str, rows: Iterable[Mapping[str, object]]) -> None:
    """Write the columns of a table's schema, in its order; missing values stay empty."""
    columns = names(table)
    with path.open("w", encoding="utf-8", newline="") as handle:
        writer = csv.DictWriter(handle, columns, restval="", extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows({key: _cell(row[key]) for key in columns if key in row} for row in rows)


def percentiles(run: Run) -> Iterator[dict[str, Cell]]:
    """One row for each attempt with a histogram, and each percentile that it has enough requests for."""
    for row, histogram in histograms(run):
        values, counts = buckets(histogram)
        cumulative = np.cumsum(counts)
        requests = int(cumulative[-1]) if len(values) else 0
        for percentile in (each for each in PERCENTILES if requests >= fewest_requests(each / 100)):
            yield row | {
                "percentile": percentile,
                "latency_us": int(nearest_rank(values, cumulative, percentile / 100)),
            }


def histograms(run: Run) -> Iterator[tuple[dict[str, Cell], HdrHistogram]]:
    """Yield (the trial's key and kind of latency, histogram) for every measurement that has one."""
    for record in run.records:
        for measurement in record.measurements:
            if measurement.histogram and (run.path / measurement.histogram).exists():
                yield _key(record), read_histogram(run.path / measurement.histogram)


def _key(record: TrialRecord) -> dict[str, Cell]:
    return {
        "run_id": record.run_id, "block": record.block, "order": record.order, "attempt": record.attempt,
        "latency": "response-time" if record.scenario.load.is_open else "service-time",
    }  # fmt: skip


def _cell(value: object) -> object:
    """Missing values as empty cells."""
    return "" if value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value)) else value


TYPES = {
    "string": "VARCHAR", "integer": "BIGINT", "number": "DOUBLE", "datetime": "TIMESTAMP", "boolean": "BOOLEAN",
}  # fmt: skip
_DTYPES = {"string": "object", "integer": "Int64", "number": "float64", "datetime": "object", "boolean": "boolean"}
_TRIAL_FILE = re.compile(r"b\d{3,}-o\d{3,}-a\d+\.csv")


def write_trials(run: Run, path: Path) -> None:
    """One row per attempt, as trials.csv has them; times are UTC, an empty cell is NULL."""
    write_rows((flat(record) for record in run.records), "trials", path)


def write_rows(rows: Iterable[Mapping[str, Cell]], table: str, path: Path) -> None:
    """Write rows as Parquet, with the columns of a table's schema; an empty text is NULL."""
    row_list = list(rows)
    types = {str(field["name"]): _DTYPES[field["type"]] for field in fields(table)}
    columns = {
        name: pd.Series([None if row[name] == "" else row[name] for row in row_list], dtype=dtype)
        for name, dtype in types.items()
    }
    _write(pd.DataFrame(columns), table, path)


def write_histograms(run: Run, path: Path) -> None:
    """One row per attempt and bucket that is not empty."""
    counts = [
        row | {"latency_us": int(value_us), "count": int(count)}
        for row, histogram in histograms(run)
        for value_us, count in zip(*buckets(histogram), strict=True)
    ]
    _write(pd.DataFrame(counts, columns=names("histograms")), "histograms", path)


def _write(frame: pd.DataFrame, table: str, path: Path) -> None:
    with duckdb.connect() as database:
        database.register("rows", frame)
        _copy(database, table, "rows", path)


def write_seconds(run: Run, path: Path) -> None:
    """One row per attempt, second and latency bin, for tools that log send times. Raises LoadError."""
    with duckdb.connect() as database:
        database.execute(_view("seconds", run, "seconds", run.path / "histograms"))
        _copy(database, "seconds", "seconds", path)


def write_samples(run: Run, roles: Mapping[str, str], path: Path) -> None:
    """One row per attempt, machine and second; `roles`: inventory name → published name.

    Raises LoadError for a column that results/schema/samples.json does not name, or a host that hosts.json does not.
    """
    with duckdb.connect() as database:
        database.register("roles", pd.DataFrame({"host": list(roles), "published": list(roles.values())}))
        database.execute(_view("raw", run, "samples", run.path / "samples"))
        unknown = database.execute("SELECT host, file FROM raw ANTI JOIN roles USING (host) LIMIT 1").fetchone()
        if unknown:
            raise LoadError(f"{unknown[1]}: host {unknown[0]!r} is not in {run.path / 'hosts.json'}")
        database.execute(
            "CREATE VIEW samples AS SELECT raw.* REPLACE (roles.published AS host) FROM raw JOIN roles USING (host)"
        )
        _copy(database, "samples", "samples", path)


def _view(name: str, run: Run, table: str, folder: Path) -> str:
    """SQL of a view of all lines of the folder's CSV files, with trial keys; columns that the files lack are empty."""
    columns = [field for field in fields(table) if field["name"] not in TRIAL]
    files = sorted(file for file in folder.glob("*.csv") if _TRIAL_FILE.fullmatch(file.name))
    if not files:
        empty = ", ".join(f'NULL::{TYPES[f["type"]]} AS "{f["name"]}"' for f in fields(table))
        return f"CREATE VIEW {name} AS SELECT {empty}, NULL AS file WHERE false"
    heading = files[0].read_text(encoding="utf-8").partition("\n")[0].split(",")
    if unknown := sorted(set(heading) - {str(field["name"]) for field in columns}):
        raise LoadError(f"{files[0]}: column {unknown[0]} is not in results/schema/{table}.json: describe it there")
    kinds = {str(field["name"]): TYPES[field["type"]] for field in columns}
    types = {column: kinds[column] for column in heading}
    absent = "".join(f', NULL::{kind} AS "{column}"' for column, kind in kinds.items() if column not in heading)
    quoted = ", ".join("'" + str(file).replace("'", "''") + "'" for file in files)
    key = "regexp_extract(file, 'b(\\d+)-o(\\d+)-a(\\d+)\\.csv$', ['block', 'order', 'attempt'])"
    return (
        f"CREATE VIEW {name} AS SELECT '{run.manifest.run_id}' AS run_id, {key}.block::BIGINT AS block, "
        f'{key}."order"::BIGINT AS "order", {key}.attempt::BIGINT AS attempt, *{absent} '
        f"FROM read_csv([{quoted}], header=true, columns={types}, filename='file')"
    )


def _copy(database: duckdb.DuckDBPyConnection, table: str, source: str, path: Path) -> None:
    columns = ", ".join(f'"{f["name"]}"::{TYPES[f["type"]]} AS "{f["name"]}"' for f in fields(table))
    quoted = str(path).replace("'", "''")
    database.execute("SET threads = 1")
    copy = f"COPY (SELECT {columns} FROM {source} ORDER BY ALL) TO '{quoted}' (FORMAT parquet, COMPRESSION zstd)"
    try:
        database.execute(copy)
    except duckdb.IOException as error:
        text = str(error)
        code = next((code for code in _WRITE_ERRNOS if os.strerror(code) in text), None)
        if code is None:
            raise ResultsError(f"{path}: DuckDB cannot write it: {first_line(error)}") from error
        raise OSError(code, os.strerror(code), str(path)) from error

"""The bundle's large tables as Parquet, sorted and written by one thread: the same run gives the same bytes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import duckdb
import pandas as pd

from analysis.load import LoadError, Run
from analysis.publish.tables import TRIAL, histograms
from analysis.schema import fields, names

TYPES = {"string": "VARCHAR", "integer": "BIGINT", "number": "DOUBLE", "datetime": "TIMESTAMP"}
_TRIAL_FILE = re.compile(r"b\d{3,}-o\d{3,}-a\d+\.csv")


def write_trials(run: Run, path: Path) -> None:
    """One row per attempt, as trials.csv has them; times are UTC, an empty cell is NULL."""
    frame = run.attempts.drop(columns="codes")
    texts = [field["name"] for field in fields("trials") if field["type"] in ("string", "datetime")]
    frame[texts] = frame[texts].mask(frame[texts] == "")
    with duckdb.connect() as database:
        database.register("found", frame)
        _copy(database, "trials", "found", path)


def write_histograms(run: Run, path: Path) -> None:
    """One row per attempt and bucket that is not empty."""
    counts = [
        row | {"latency_us": bucket.value_iterated_to, "count": bucket.count_at_value_iterated_to}
        for row, histogram in histograms(run)
        for bucket in histogram.get_recorded_iterator()
    ]
    frame = pd.DataFrame(counts, columns=names("histograms"))
    with duckdb.connect() as database:
        database.register("found", frame)
        _copy(database, "histograms", "found", path)


def write_seconds(run: Run, path: Path) -> None:
    """One row per attempt, second and latency bin, for the tools that log when they sent. Raises LoadError."""
    with duckdb.connect() as database:
        database.execute(_view("found", run, "seconds", run.path / "histograms"))
        _copy(database, "seconds", "found", path)


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
            "CREATE VIEW found AS SELECT raw.* REPLACE (roles.published AS host) FROM raw JOIN roles USING (host)"
        )
        _copy(database, "samples", "found", path)


def _view(name: str, run: Run, table: str, folder: Path) -> str:
    """A view of every line of the folder's CSV files with its trial's key; columns that the files lack are empty."""
    own = [field for field in fields(table) if field["name"] not in TRIAL]
    files = sorted(file for file in folder.glob("*.csv") if _TRIAL_FILE.fullmatch(file.name))
    if not files:
        empty = ", ".join(f'NULL::{TYPES[f["type"]]} AS "{f["name"]}"' for f in fields(table))
        return f"CREATE VIEW {name} AS SELECT {empty}, NULL AS file WHERE false"
    heading = files[0].read_text(encoding="utf-8").partition("\n")[0].split(",")
    if strange := sorted(set(heading) - {str(field["name"]) for field in own}):
        raise LoadError(f"{files[0]}: column {strange[0]} is not in results/schema/{table}.json: say there what it is")
    kinds = {str(field["name"]): TYPES[field["type"]] for field in own}
    types = {column: kinds[column] for column in heading}
    absent = "".join(f', NULL::{kind} AS "{column}"' for column, kind in kinds.items() if column not in heading)
    quoted = ", ".join("'" + str(file).replace("'", "''") + "'" for file in files)
    key = "regexp_extract(file, 'b(\\d+)-o(\\d+)-a(\\d+)\\.csv$', ['block', 'order', 'attempt'])"
    return (
        f"CREATE VIEW {name} AS SELECT '{run.meta['run_id']}' AS run_id, {key}.block::BIGINT AS block, "
        f'{key}."order"::BIGINT AS "order", {key}.attempt::BIGINT AS attempt, *{absent} '
        f"FROM read_csv([{quoted}], header=true, columns={types}, filename='file')"
    )


def _copy(database: duckdb.DuckDBPyConnection, table: str, source: str, path: Path) -> None:
    columns = ", ".join(f'"{f["name"]}"::{TYPES[f["type"]]} AS "{f["name"]}"' for f in fields(table))
    quoted = str(path).replace("'", "''")
    database.execute("SET threads = 1")
    database.execute(
        f"COPY (SELECT {columns} FROM {source} ORDER BY ALL) TO '{quoted}' (FORMAT parquet, COMPRESSION zstd)"
    )

"""Merge the small files of a campaign, one of each run and table, into few. Readers may read while it runs.

First it puts merged files of all runs in place, those of the trials last. Then it removes the runs' own files, those of
the trials first. As long as a run has its own files, readers take it from these (`vmtoll.campaign.files`). So they
find each row once, or get an error where they open a file that has been removed since they listed it. A compaction that
is killed leaves a dataset that reads the same, and the next one completes it.
"""

import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import duckdb

from vmtoll.analysis.percentiles import connect
from vmtoll.campaign.files import RUN, Run, merged_files, merged_runs, quoted, read_merged, read_runs, run_files
from vmtoll.files import first_line, locked, replacing, sync_folder
from vmtoll.model.errors import LoadError, UserError

RUNS = 500  # of a merged file: 25,000 runs of eight tables become 400 files
TRIALS = "trials"
_DRAFT = re.compile(r"\.merged-[0-9a-f]+\.parquet\.partial")
RunFiles = Mapping[str, Mapping[Run, str]]  # table → run → file


@dataclass(frozen=True)
class Compaction:
    """What a compaction did. `files_…`: Parquet files of the campaign."""

    runs: int
    files_before: int
    files_after: int


def compact(dataset: Path, campaign: str, memory_mb: int, runs_per_file: int = RUNS) -> Compaction:
    """Merge the files of the runs that the dataset holds now. Raises LoadError, UserError and OSError.

    The rows stay the same, with the folders' names in the columns `testbed` and `experiment`. A run that was merged and
    then written again replaces its rows in the merged files.
    """
    if not (folders := _folders(dataset, campaign)):
        raise LoadError(f"{dataset}: no campaign {campaign} here; choose another --campaign")
    busy = UserError(f"{dataset}: another process is compacting campaign {campaign}; wait for it")
    with locked(dataset / f".{campaign}.lock", busy), connect(memory_mb, threads=1) as database:
        before = _count(folders)
        _remove_remains(folders)
        try:
            files = {table: run_files(database, str(dataset), table, campaign) for table in folders}
            _require_all_tables(dataset, files)
            done = _merged_unchanged(database, folders, files)
            runs = [run for run in files[TRIALS] if run not in done]
            written = {
                _merge(database, folders, files, runs[first : first + runs_per_file])
                for first in range(0, len(runs), runs_per_file)
            }
            _drop_from_others(database, folders, set(runs), written)
            _remove(files, merged_runs(database, merged_files(database, str(dataset), campaign)))
            _remove_empty(folders)
        except duckdb.Error as error:
            raise LoadError(f"{dataset}: {first_line(error)}") from error
        return Compaction(len(runs), before, _count(folders))


def _folders(dataset: Path, campaign: str) -> dict[str, Path]:
    """Table → its folder of the campaign, the trials last; empty without trials."""
    folders = {folder.parent.name: folder for folder in sorted(dataset.glob(f"*/campaign={campaign}"))}
    return folders | {TRIALS: folders.pop(TRIALS)} if TRIALS in folders else {}


def _count(folders: Mapping[str, Path]) -> int:
    return sum(1 for folder in folders.values() for _ in folder.rglob("*.parquet"))


def _remove_remains(folders: Mapping[str, Path]) -> None:
    """Remove what a killed compaction left: drafts, and merged files without their trials, which no reader reads."""
    complete = {file.name for file in folders[TRIALS].glob("merged-*.parquet")}
    for folder in folders.values():
        for file in folder.iterdir():
            is_merged = file.name.startswith("merged-") and file.suffix == ".parquet"
            if _DRAFT.fullmatch(file.name) or (is_merged and file.name not in complete):
                file.unlink()


def _require_all_tables(dataset: Path, files: RunFiles) -> None:
    for run, file in files[TRIALS].items():
        if absent := next((table for table in files if run not in files[table]), None):
            name = file.removeprefix(f"{dataset}/")
            raise LoadError(f"{dataset}: {name} has no table {absent}; write that run again with `vmtoll partition`")


def _merged_unchanged(database: duckdb.DuckDBPyConnection, folders: Mapping[str, Path], files: RunFiles) -> set[Run]:
    """The runs with separate files whose rows one merged file has already, from a compaction that was killed."""
    seen, unchanged = set[Run](), set[Run]()
    for trials in folders[TRIALS].glob("merged-*.parquet"):
        if runs := files[TRIALS].keys() & merged_runs(database, [str(trials)]):
            changed = set[Run]().union(
                *(
                    _changed(database, files[table], sorted(runs), folder / trials.name)
                    for table, folder in folders.items()
                )
            )
            unchanged = (unchanged | (runs - changed)) - (runs & seen)
            seen |= runs
    return unchanged


def _changed(
    database: duckdb.DuckDBPyConnection, files: Mapping[Run, str], runs: Sequence[Run], merged: Path
) -> set[Run]:
    """The runs whose rows in a merged file differ from those in the run's own."""
    key = ", ".join(RUN)
    rows = database.execute(f"""
        SELECT {key} FROM (
            SELECT {key}, is_own, hash(*COLUMNS(* EXCLUDE (campaign, is_own))) AS row_hash FROM (
                SELECT *, true AS is_own FROM {read_runs(files[run] for run in runs)}
                UNION ALL BY NAME
                SELECT *, false AS is_own FROM {read_merged([str(merged)])} WHERE ({key}) IN ({_values(runs)})
            )
        )
        GROUP BY {key}
        HAVING count_if(is_own) <> count_if(NOT is_own)
            OR sum(row_hash) FILTER (WHERE is_own) <> sum(row_hash) FILTER (WHERE NOT is_own)
    """).fetchall()
    return {(testbed, experiment, run_id) for testbed, experiment, run_id in rows}


def _values(runs: Sequence[Run]) -> str:
    return "VALUES " + ", ".join(f"({', '.join(map(quoted, run))})" for run in runs)


def _merge(
    database: duckdb.DuckDBPyConnection, folders: Mapping[str, Path], files: RunFiles, runs: Sequence[Run]
) -> str:
    """Write these runs into one merged file for each table, and return its name: the same for the same runs."""
    digest = hashlib.sha256("\n".join(map("/".join, runs)).encode()).hexdigest()
    name = f"merged-{digest[:16]}.parquet"
    for table, folder in folders.items():
        _write(database, f"FROM {read_runs(files[table][run] for run in runs)}", folder / name)
    return name


def _write(database: duckdb.DuckDBPyConnection, rows: str, file: Path) -> None:
    """Replace a merged file by rows, durably."""
    database.execute("SET preserve_insertion_order = true")
    with replacing(file) as draft:
        database.execute(
            f"COPY (SELECT * EXCLUDE (campaign) FROM ({rows})) TO {quoted(str(draft))} (FORMAT parquet, "
            "COMPRESSION zstd)"
        )
        with draft.open("rb") as stream:
            os.fsync(stream.fileno())
    sync_folder(file.parent)


def _drop_from_others(
    database: duckdb.DuckDBPyConnection, folders: Mapping[str, Path], runs: set[Run], written: set[str]
) -> None:
    """Drop runs that were written again from the merged files of an earlier compaction."""
    key = ", ".join(RUN)
    for trials in folders[TRIALS].glob("merged-*.parquet"):
        if trials.name in written or not (again := runs & (merged := merged_runs(database, [str(trials)]))):
            continue
        if again == merged:
            for folder in reversed(list(folders.values())):
                (folder / trials.name).unlink()
            continue
        for folder in folders.values():
            file = folder / trials.name
            rows = f"FROM {read_merged([str(file)])} WHERE ({key}) NOT IN ({_values(sorted(again))})"
            _write(database, rows, file)


def _remove(files: RunFiles, runs: set[Run]) -> None:
    """Remove the files of these runs, the trials first."""
    for table in reversed(list(files)):
        for run in runs & files[table].keys():
            Path(files[table][run]).unlink(missing_ok=True)


def _remove_empty(folders: Mapping[str, Path]) -> None:
    for folder in folders.values():
        for testbed in folder.glob("testbed=*"):
            for empty in (*testbed.iterdir(), testbed):
                with suppress(OSError):
                    empty.rmdir()

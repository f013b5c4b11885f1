"""The files of a campaign in a dataset: three folders down those of one run, and merged files of many runs.

    <table>/campaign=…/testbed=…/experiment=…/<run-id>.parquet
    <table>/campaign=…/merged-<digest>.parquet, with the columns testbed and experiment

A run is read from its own file where it has one, else from a merged file. `vmtoll.campaign.compaction` removes the
files of a run after it has put the merged ones in place. So a reader that lists the runs' files first and the merged
ones second finds every run, and knows which ones it finds twice. A merged file counts once that of the trials is there.
"""

import re
from collections.abc import Iterable, Sequence

import duckdb

HIVE = ("campaign", "testbed", "experiment")  # the keys in the folders' names, in order
RUN = ("testbed", "experiment", "run_id")  # the columns that tell runs apart
Run = tuple[str, str, str]
_RUN_FILE = re.compile(r"/testbed=([^/]+)/experiment=([^/]+)/([^/]+)\.parquet$")


def run_files(
    database: duckdb.DuckDBPyConnection, location: str, table: str, campaign: str, testbed: str = "*"
) -> dict[Run, str]:
    """Run → its own file of a table, sorted by run."""
    files = matching(database, f"{location}/{table}/campaign={campaign}/testbed={testbed}/experiment=*/*.parquet")
    return {run: file for file in files if (run := run_of_file(file))}


def run_of_file(path: str) -> Run | None:
    """The run that a file or an object has a table of; None for any other path."""
    match = _RUN_FILE.search(path)
    return (match[1], match[2], match[3]) if match else None


def merged_files(database: duckdb.DuckDBPyConnection, location: str, campaign: str, table: str = "trials") -> list[str]:
    """The merged files of a table."""
    return matching(database, f"{location}/{table}/campaign={campaign}/merged-*.parquet")


def merged_runs(
    database: duckdb.DuckDBPyConnection, trials_files: Sequence[str], testbed: str | None = None
) -> set[Run]:
    """The runs in merged files of the table `trials`; `testbed`: those of one."""
    if not trials_files:
        return set()
    only = "" if testbed is None else f" WHERE testbed = {quoted(testbed)}"
    rows = database.execute(f"SELECT DISTINCT {', '.join(RUN)} FROM {read_merged(trials_files)}{only}").fetchall()
    return {(testbed, experiment, run_id) for testbed, experiment, run_id in rows}


def matching(database: duckdb.DuckDBPyConnection, pattern: str) -> list[str]:
    """The files of a pattern, sorted."""
    return [str(file) for (file,) in database.execute("SELECT file FROM glob(?) ORDER BY file", [pattern]).fetchall()]


def read_runs(files: Iterable[str]) -> str:
    """The SQL that reads files of runs; a test bed named 07 stays text, a column that a file lacks is null there."""
    return _read(files, HIVE)


def read_merged(files: Iterable[str]) -> str:
    """The SQL that reads merged files."""
    return _read(files, HIVE[:1])


def quoted(text: str) -> str:
    """A text in SQL."""
    return "'" + text.replace("'", "''") + "'"


def _read(files: Iterable[str], keys: Sequence[str]) -> str:
    types = ", ".join(f"'{key}': VARCHAR" for key in keys)
    return (
        f"read_parquet([{', '.join(map(quoted, files))}], hive_partitioning = true, hive_types = {{{types}}}, "
        "union_by_name = true)"
    )

"""A dataset of many runs, asked in SQL. DuckDB reads the files where they lie and keeps to its memory limit.

The pairing is that of analysis/compare.py: last attempts, within a block of a run, metal with the guest.
"""

from __future__ import annotations

import json
from types import TracebackType
from typing import Any, Self

import duckdb
import pandas as pd

from analysis.load import AA_ARM, BASELINE, SCENARIO, LoadError
from analysis.metrics import CLOSED, METRICS, OPEN, Metric
from analysis.percentiles import connect

HIVE = ("campaign", "cell", "experiment")  # the folders' names, in order
SCENARIOS = ["experiment", *SCENARIO]  # what tells a scenario apart within a campaign
_WHERE = ", ".join(SCENARIOS)

BATCH = 200  # files of trials read at once: DuckDB keeps what each says of its hundred columns
_TRIALS = """
SELECT cell, {where}, run_id, block, "order", attempt, environment, accelerator, verdict, {columns},
       list_transform(string_split(coalesce(reasons, ''), ' | '), lambda r: trim(split_part(r, ':', 1))) AS codes
FROM (SELECT * FROM {source} UNION ALL BY NAME SELECT {none} WHERE false)
QUALIFY row_number() OVER (
    PARTITION BY cell, {where}, run_id, block, environment
    ORDER BY attempt DESC
) = 1
"""
_FIGURES = """
SELECT cell, {where}, run_id, block, environment, accelerator, '{metric}' AS metric, '{source}' AS source,
       {sign} * ln(if(environment IN ('{metal}', '{again}'), "{column}", "{guest_column}")) AS advantage,
       list_has_any(codes, {limits}) AS limited
FROM trials
WHERE verdict <> 'invalid' AND {loops} AND if(environment IN ('{metal}', '{again}'), "{column}", "{guest_column}") > 0
"""
# ln is taken of each figure, so that the difference of two logs is the log of their ratio.
_EFFECTS = """
WITH figures AS ({figures})
SELECT cell, {where}, guest.environment, guest.accelerator, metric, source, count(*) AS blocks,
       avg(metal.advantage - guest.advantage) AS mean, stddev_samp(metal.advantage - guest.advantage) AS sd,
       count(*) FILTER (WHERE metal.limited) AS limited_metal, count(*) FILTER (WHERE guest.limited) AS limited_guest
FROM figures AS metal JOIN figures AS guest USING (cell, {where}, run_id, block, metric, source)
WHERE metal.environment = '{metal}' AND guest.environment <> '{metal}'
GROUP BY ALL
ORDER BY ALL
"""
_LOOPS = {
    (CLOSED,): "offered_load LIKE 'closed:%'",
    (OPEN,): "offered_load NOT LIKE 'closed:%'",
    (CLOSED, OPEN): "true",
}
_CELLS = """
SELECT cell, experiment, count(DISTINCT run_id) AS runs, count(DISTINCT run_id || ' ' || block) AS blocks,
       count(*) FILTER (WHERE verdict = 'valid') AS valid, count(*) FILTER (WHERE verdict = 'suspect') AS suspect,
       count(*) FILTER (WHERE verdict = 'invalid') AS invalid
FROM trials
GROUP BY ALL
ORDER BY ALL
"""
_MACHINES = """
SELECT cell, role, count(DISTINCT host) AS machines, count(*) AS seconds,
       avg(cpu_user_pct + cpu_system_pct) AS cpu_pct, max(cpu_user_pct + cpu_system_pct) AS cpu_max_pct,
       avg(steal_pct) AS steal_pct, max(steal_pct) AS steal_max_pct, max(pressure_cpu_pct) AS pressure_max_pct
FROM {source}
GROUP BY ALL
ORDER BY ALL
"""


class Dataset:
    """One campaign of a dataset at a folder or a URL; `database` holds its last attempts as `trials`."""

    def __init__(self, location: str, campaign: str | None, memory_mb: int) -> None:
        """Find the campaign and read its trials. Raises LoadError."""
        self.location = location.rstrip("/")
        self.database = connect(memory_mb)
        try:
            self.campaign = campaign or self._only()
            self._read_trials()
        except (duckdb.Error, LoadError) as error:
            self.database.close()
            raise LoadError(f"{location}: {error}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.database.close()

    def table(self, name: str) -> str:
        """The SQL that reads a table of the campaign; files written before a column was added have it empty."""
        return _read(self._files(name, self.campaign))

    def _read_trials(self) -> None:
        """Make the table `trials`: last attempts. All attempts of a trial are in one file. Raises LoadError."""
        found = self.database.execute(f"SELECT file FROM glob({self._files('trials', self.campaign)}) ORDER BY file")
        files = [_quoted(str(file)) for (file,) in found.fetchall()]
        if not files:
            raise LoadError(f"it holds no campaign {self.campaign}")
        figures = sorted({m.column(s, guest=side) for m in METRICS for s in m.columns for side in (True, False)})
        none = ", ".join(f'NULL::DOUBLE AS "{name}"' for name in figures)  # for a file older than a column
        columns = ", ".join(f'"{name}"' for name in figures)
        for first in range(0, len(files), BATCH):
            source = _read("[" + ", ".join(files[first : first + BATCH]) + "]")
            query = _TRIALS.format(source=source, where=_WHERE, columns=columns, none=none)
            self.database.execute(("INSERT INTO trials " if first else "CREATE TEMP TABLE trials AS ") + query)

    def effects(self) -> pd.DataFrame:
        """One row per cell, scenario, guest (the A/A arm too), metric and source: blocks, mean and sd of the paired
        log advantages of metal, as analysis.compare has them, and how many trials of each side were limited."""
        figures = " UNION ALL ".join(self._figures(m, source) for m in METRICS for source in m.columns)
        return self.database.execute(_EFFECTS.format(figures=figures, where=_WHERE, metal=BASELINE)).df()

    def cells(self) -> list[dict[str, Any]]:
        """Per cell and experiment: runs, blocks, and trials by verdict."""
        return _records(self.database.execute(_CELLS).df())

    def machines(self) -> list[dict[str, Any]]:
        """Per cell and role: how many machines, over how many seconds, at what CPU time and steal, in percent."""
        return _records(self.database.execute(_MACHINES.format(source=self.table("samples"))).df())

    def _only(self) -> str:
        """The campaign of a dataset that holds one. Raises LoadError."""
        files = self._files("trials", "*")
        found = self.database.execute(
            f"SELECT DISTINCT regexp_extract(file, 'campaign=([^/]+)', 1) FROM glob({files}) ORDER BY ALL"
        ).fetchall()
        there = [str(name) for (name,) in found]
        if not there:
            raise LoadError("no campaign: no file trials/campaign=…/cell=…/experiment=…/*.parquet (`vmtoll partition`)")
        if len(there) > 1:
            raise LoadError(f"it holds the campaigns {', '.join(there)}: name one (--campaign)")
        return there[0]

    def _files(self, table: str, campaign: str) -> str:
        """The files of a table, as a text in SQL."""
        parts = [self.location, table, f"campaign={campaign}", "cell=*", "experiment=*", "*.parquet"]
        return _quoted("/".join(parts))

    def _figures(self, metric: Metric, source: str) -> str:
        limits = ", ".join(f"'{code}'" for code in sorted(metric.limits.get(source, frozenset())))
        return _FIGURES.format(
            where=_WHERE,
            metric=metric.name,
            source=source,
            sign=1 if metric.higher_is_better else -1,
            column=metric.column(source, guest=False),
            guest_column=metric.column(source, guest=True),
            limits=f"[{limits}]::VARCHAR[]",
            loops=_LOOPS[metric.loops],
            metal=BASELINE,
            again=AA_ARM,
        )


def _read(files: str) -> str:
    """The SQL that reads these files, a text or a list of texts; a cell named 07 is no number."""
    types = ", ".join(f"'{key}': VARCHAR" for key in HIVE)
    return f"read_parquet({files}, hive_partitioning = true, hive_types = {{{types}}}, union_by_name = true)"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows as JSON has them: None for what is missing."""
    rows: list[dict[str, Any]] = json.loads(frame.to_json(orient="records", double_precision=15))
    return rows

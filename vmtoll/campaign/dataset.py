"""A dataset of many runs, asked in SQL. DuckDB reads the files in place and keeps to its memory limit.

SQL adds up and does not judge. The pairing is that of vmtoll.analysis.pairs: last attempts, within a block of a run.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

import duckdb
import pandas as pd

from vmtoll.analysis.percentiles import connect, ranked
from vmtoll.analysis.statistics import fewest_requests
from vmtoll.files import first_line
from vmtoll.model.columns import CROSSCHECK
from vmtoll.model.errors import LoadError
from vmtoll.model.finding import Code, Role
from vmtoll.model.hardware import Hardware
from vmtoll.model.load import Load, LoadKind, NeighbourLoad
from vmtoll.model.metric import METRICS, Loop, Metric
from vmtoll.model.trial import METAL, Accelerator, Arm, Scenario

HIVE = ("campaign", "testbed", "experiment")  # the folders' names, in order
BATCH = 200  # files of trials read at once: DuckDB keeps what each says of its hundred columns
PREFIX = {Role.PRIMARY: "", Role.CROSSCHECK: CROSSCHECK}
FIELDS = sorted(
    prefix + name
    for name in {name for metric in METRICS.values() for name in (metric.field, metric.guest_field) if name}
    | {"transactions", "requests"}
    for prefix in PREFIX.values()
)

# A struct, because nulls within one are equal to each other: a load without guests is a load.
_SCENARIO = (
    "struct_pack(server := server, workload := workload, load_kind := load_kind, load_value := load_value, "
    "load_guests := load_guests, neighbour_kind := neighbour_kind, neighbour_value := neighbour_value)"
)
_TRIALS = """
SELECT testbed, experiment, {scenario} AS scenario, run_id, block, "order", attempt, environment, replicate,
       accelerator, coalesce(hardware, 'unknown') AS hardware, validity, tool, crosscheck_tool, {figures},
       string_split(coalesce(findings, ''), ' ') AS codes
FROM (SELECT * FROM {source} UNION ALL BY NAME SELECT {none} WHERE false)
QUALIFY row_number() OVER (PARTITION BY testbed, experiment, run_id, block, "order" ORDER BY attempt DESC) = 1
"""
_FIGURES = """
SELECT testbed, experiment, scenario, run_id, block, environment, replicate, accelerator, hardware,
       '{metric}' AS metric, '{role}' AS role, "{tool}" AS tool, ln({value}) AS log,
       list_has_any(codes, {client}) AS client,
       list_has_any(codes, {link}) AS link
FROM trials
WHERE validity <> 'invalid' AND {loops} AND {value} > 0 AND coalesce({requests}, {fewest}) >= {fewest}
"""
# ln is taken of each figure, so that the difference of two logs is the log of their ratio.
# A control is compared with the first replicate of its own environment; between environments replicates are averaged.
_EFFECTS = """
WITH figures AS ({figures}),
sides AS (
    SELECT *, replicate AS measured FROM figures
    UNION ALL BY NAME
    SELECT testbed, experiment, scenario, run_id, block, environment, 1 AS replicate, 0 AS measured, accelerator,
           hardware, metric, role, any_value(tool) AS tool, avg(log) AS log, bool_or(client) AS client,
           bool_or(link) AS link
    FROM figures GROUP BY ALL
)
SELECT testbed, experiment, scenario, other.environment, other.replicate, other.accelerator, other.hardware,
       metric, role, any_value(other.tool) AS tool, count(*) AS blocks,
       avg(other.log - base.log) AS mean, stddev_samp(other.log - base.log) AS sd,
       count(*) FILTER (WHERE base.client OR base.link) AS limited_baseline,
       count(*) FILTER (WHERE other.client OR other.link) AS limited_compared,
       bool_or(base.client OR other.client) AS by_client, bool_or(base.link OR other.link) AS by_link
FROM sides AS base JOIN sides AS other USING (testbed, experiment, scenario, run_id, block, metric, role)
WHERE (base.measured = 0 AND other.measured = 0 AND base.environment = '{metal}' AND other.environment <> '{metal}')
      OR (base.measured = 1 AND other.measured > 1 AND base.environment = other.environment)
GROUP BY ALL
ORDER BY ALL
"""
_LOOPS = {
    (Loop.CLOSED,): "scenario.load_kind = 'closed'",
    (Loop.OPEN,): "scenario.load_kind <> 'closed'",
    (Loop.CLOSED, Loop.OPEN): "true",
}
_COUNTS = """
SELECT testbed, experiment, count(DISTINCT run_id) AS runs, count(DISTINCT run_id || ' ' || block) AS blocks,
       count(*) FILTER (WHERE validity = 'valid') AS valid, count(*) FILTER (WHERE validity = 'suspect') AS suspect,
       count(*) FILTER (WHERE validity = 'invalid') AS invalid
FROM trials
GROUP BY ALL
ORDER BY ALL
"""
_MACHINES = """
SELECT testbed, role, count(DISTINCT host) AS machines, count(*) AS seconds,
       avg(cpu_user_pct + cpu_system_pct) AS cpu_pct, max(cpu_user_pct + cpu_system_pct) AS cpu_max_pct,
       avg(steal_pct) AS steal_pct, max(steal_pct) AS steal_max_pct, max(pressure_cpu_pct) AS pressure_max_pct
FROM {source}
GROUP BY ALL
ORDER BY ALL
"""


@dataclass(frozen=True)
class BedFigures:
    """One metric of an arm on one test bed, by one measurement: sums over its blocks.

    `mean`, `sd`: of the log ratios compared ÷ baseline; a control's baseline is the first replicate of its own
    environment. `limited_…`: client-limited or link-limited trials of each side; `by_…`: which of them did.
    """

    testbed: str
    experiment: str
    scenario: Scenario
    arm: Arm
    accelerator: Accelerator
    hardware: Hardware
    metric: Metric
    role: Role
    tool: str
    blocks: int
    mean: float
    sd: float | None
    limited_baseline: int
    limited_compared: int
    by_client: bool
    by_link: bool


@dataclass(frozen=True)
class BedTrials:
    """Amount that a test bed measured of an experiment; trials by validity."""

    testbed: str
    experiment: str
    runs: int
    blocks: int
    valid: int
    suspect: int
    invalid: int


@dataclass(frozen=True)
class Machines:
    """Load on a test bed's machines of a role during the trials, in percent of their CPU time."""

    testbed: str
    role: str
    machines: int
    seconds: int
    cpu_pct: float | None
    cpu_max_pct: float | None
    steal_pct: float | None
    steal_max_pct: float | None
    pressure_max_pct: float | None


@dataclass(frozen=True)
class Percentile:
    """A percentile over all test beds, and the least and the greatest of the test beds' own; µs."""

    percentile: float
    value_us: int
    least_us: int
    greatest_us: int


@dataclass(frozen=True)
class Latency:
    """Percentiles of all requests of a scenario on an arm: response times of an open loop, else service times."""

    experiment: str
    scenario: Scenario
    arm: Arm
    accelerator: Accelerator
    hardware: Hardware
    requests: int
    testbeds: int
    percentiles: tuple[Percentile, ...]


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
            raise LoadError(f"{location}: {first_line(error)}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.database.close()

    def effects(self) -> list[BedFigures]:
        """Figures of each test bed for each arm, by metric and role."""
        figures = " UNION ALL ".join(_figures(metric, role) for metric in METRICS.values() for role in Role)
        return [
            BedFigures(
                scenario=_scenario(row.pop("scenario")),
                arm=Arm(row.pop("environment"), row.pop("replicate")),
                accelerator=Accelerator(row.pop("accelerator")),
                hardware=Hardware(row.pop("hardware")),
                metric=METRICS[row.pop("metric")],
                role=Role(row.pop("role")),
                **row,
            )
            for row in self._rows(_EFFECTS.format(figures=figures, metal=METAL))
        ]

    def counts(self) -> list[BedTrials]:
        return [BedTrials(**row) for row in self._rows(_COUNTS)]

    def machines(self) -> list[Machines]:
        return [Machines(**row) for row in self._rows(_MACHINES.format(source=self._table("samples")))]

    def latencies(self) -> list[Latency]:
        """The percentiles of the added histograms, by scenario and arm."""
        self.database.execute(_SIDES)
        self.database.execute(_BUCKETS.format(source=self._table("histograms")))
        sides = {row.pop("side"): row for row in self._rows("FROM sides")}
        merged = ranked(self.database, "SELECT side, value, sum(n) AS n FROM buckets GROUP BY side, value", ["side"])
        of_bed = ranked(self.database, "FROM buckets", ["testbed", "side"])
        spread = of_bed.groupby(["side", "percentile"])["value_us"].agg(["min", "max", "size"]).reset_index()
        table = merged.merge(spread, on=["side", "percentile"])
        latencies = [_latency(sides[side], rows) for side, rows in table.groupby("side")]
        return sorted(latencies, key=_latency_order)

    def _table(self, name: str) -> str:
        """The SQL that reads a table of the campaign; files written before a column was added have it empty."""
        return _read(self._files(name, self.campaign))

    def _rows(self, query: str) -> Iterator[dict[str, Any]]:
        result = self.database.execute(query)
        columns = [column[0] for column in result.description or ()]
        yield from (dict(zip(columns, row, strict=True)) for row in result.fetchall())

    def _read_trials(self) -> None:
        """Make the table `trials`: last attempts. All attempts of a trial are in one file. Raises LoadError."""
        listed = self.database.execute(f"SELECT file FROM glob({self._files('trials', self.campaign)}) ORDER BY file")
        files = [_quoted(str(file)) for (file,) in listed.fetchall()]
        if not files:
            raise LoadError(f"no campaign {self.campaign} here; choose another --campaign")
        # For a file older than a column.
        none = ", ".join(["NULL::VARCHAR AS hardware", *(f'NULL::DOUBLE AS "{name}"' for name in FIELDS)])
        figures = ", ".join(f'"{name}"' for name in FIELDS)
        for first in range(0, len(files), BATCH):
            source = _read("[" + ", ".join(files[first : first + BATCH]) + "]")
            query = _TRIALS.format(scenario=_SCENARIO, source=source, figures=figures, none=none)
            self.database.execute(("INSERT INTO trials " if first else "CREATE TEMP TABLE trials AS ") + query)

    def _only(self) -> str:
        """The campaign of a dataset that holds one. Raises LoadError."""
        names = f"regexp_extract(file, 'campaign=([^/]+)', 1) FROM glob({self._files('trials', '*')})"
        listed = self.database.execute(f"SELECT DISTINCT {names} ORDER BY ALL").fetchall()
        campaigns = [str(name) for (name,) in listed]
        if not campaigns:
            raise LoadError(
                "no campaign here (trials/campaign=…/testbed=…/experiment=…/*.parquet); "
                "write one with `vmtoll partition`"
            )
        if len(campaigns) > 1:
            raise LoadError(f"holds the campaigns {', '.join(campaigns)}; choose one with --campaign")
        return campaigns[0]

    def _files(self, table: str, campaign: str) -> str:
        """The files of a table, as a text in SQL."""
        return _quoted(f"{self.location}/{table}/campaign={campaign}/testbed=*/experiment=*/*.parquet")


def _figures(metric: Metric, role: Role) -> str:
    prefix, guest_field = PREFIX[role], metric.guest_field or metric.field
    link = metric.limits & {Code.LINK_BOUND}  # of both measurements: the column `findings` does not say whose
    client = [code if role is Role.PRIMARY else f"{code}@{role}" for code in sorted(metric.limits - link)]
    return _FIGURES.format(
        metric=metric.name,
        role=role.value,
        tool=f"{prefix}tool",
        value=f'if(environment = \'{METAL}\', "{prefix}{metric.field}", "{prefix}{guest_field}")',
        client=_texts(client),
        link=_texts(sorted(link)),
        loops=_LOOPS[metric.loops],
        requests=f'coalesce("{prefix}transactions", "{prefix}requests")',
        fewest=fewest_requests(metric.percentile) if metric.percentile else 0,
    )


def _texts(texts: Sequence[str]) -> str:
    return f"[{', '.join(_quoted(text) for text in texts)}]::VARCHAR[]"


def _scenario(row: dict[str, Any]) -> Scenario:
    kind = row["neighbour_kind"]
    neighbour = NeighbourLoad(LoadKind(kind), row["neighbour_value"]) if kind else None
    load = Load(LoadKind(row["load_kind"]), row["load_value"], row["load_guests"], neighbour)
    return Scenario(row["server"], row["workload"], load)


def _latency_order(latency: Latency) -> tuple[Any, ...]:
    return latency.experiment, latency.scenario.sort_key, str(latency.arm), latency.accelerator, latency.hardware


def _latency(side: dict[str, Any], rows: pd.DataFrame) -> Latency:
    return Latency(
        side["experiment"], _scenario(side["scenario"]), Arm(side["environment"], side["replicate"]),
        Accelerator(side["accelerator"]), Hardware(side["hardware"]),
        int(rows["samples"].iloc[0]), int(rows["size"].iloc[0]),
        tuple(
            Percentile(float(row["percentile"]), int(row["value_us"]), int(row["min"]), int(row["max"]))
            for row in rows.to_dict("records")
        ),
    )  # fmt: skip


def _read(files: str) -> str:
    """The SQL that reads these files, a text or a list of texts; a test bed named 07 is no number."""
    types = ", ".join(f"'{key}': VARCHAR" for key in HIVE)
    return f"read_parquet({files}, hive_partitioning = true, hive_types = {{{types}}}, union_by_name = true)"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


# Billions of rows meet a number for each scenario and arm instead of its names.
_SIDES = """
CREATE TEMP TABLE sides AS
SELECT row_number() OVER () AS side, * FROM (
    SELECT DISTINCT experiment, scenario, environment, replicate, accelerator, hardware FROM trials
)
"""
# The filter looks at the trial and not at the row, which keeps DuckDB from summing up each trial before the join: there
# is nothing to sum within one.
_BUCKETS = """
CREATE TEMP TABLE buckets AS
WITH placed AS (
    SELECT run_id, block, "order", attempt, testbed, side, validity <> 'invalid' AS usable
    FROM trials JOIN sides USING (experiment, scenario, environment, replicate, accelerator, hardware)
)
SELECT testbed, side, value, n FROM (
    SELECT placed.testbed, side, latency_us AS value, sum("count") FILTER (WHERE usable)::BIGINT AS n
    FROM {source} AS histograms JOIN placed USING (run_id, block, "order", attempt)
    GROUP BY ALL
) WHERE n > 0
"""

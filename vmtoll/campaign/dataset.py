"""Query a dataset of many runs in SQL. DuckDB reads the files in place and keeps to its memory limit.

SQL adds up but does not judge: each run's own analysis has put its results in the tables `verdicts` and `effects`. Sums
are in the order of the runs, or of whole numbers, so that the same rows in other files give the same last digit.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, Self, TypeVar

import duckdb
import pandas as pd

from vmtoll.analysis.percentiles import connect, percentiles_of_counts
from vmtoll.analysis.schema import names
from vmtoll.campaign.files import (
    RUN,
    Run,
    matching,
    merged_files,
    merged_runs,
    quoted,
    read_merged,
    read_runs,
    run_files,
)
from vmtoll.files import first_line
from vmtoll.model.errors import LoadError
from vmtoll.model.finding import Role
from vmtoll.model.hardware import Hardware
from vmtoll.model.host_columns import FACETS
from vmtoll.model.load import Load, LoadKind, NeighbourLoad
from vmtoll.model.metric import METRICS, Metric
from vmtoll.model.trial import Accelerator, Arm, Scenario
from vmtoll.model.verdict import Doubt, Kind, NamedMetric, VerdictReason, doubts_of

COLUMNS = 30_000  # of all files that a query reads: DuckDB holds metadata on each column of each file
Result = TypeVar("Result")
ATTEMPTS = 3  # at reading files that a compaction removes in the meantime
# A struct, because nulls inside structs equal each other: a load without guests matches itself.
_SCENARIO = (
    "struct_pack(server := server, workload := workload, load_kind := load_kind, load_value := load_value, "
    "load_guests := load_guests, neighbour_kind := neighbour_kind, neighbour_value := neighbour_value)"
)
# The part of each table that is kept in memory. One file has all attempts of a trial, so batches of files suffice.
_TABLE_QUERIES = {
    "trials": """
SELECT testbed, experiment, {scenario} AS scenario, run_id, block, "order", attempt, environment, replicate,
       accelerator, hardware, validity, findings
FROM {source}
QUALIFY row_number() OVER (PARTITION BY testbed, experiment, run_id, block, "order" ORDER BY attempt DESC) = 1
""",
    "verdicts": """
SELECT testbed, experiment, run_id, {scenario} AS scenario, baseline, compared AS environment, accelerator, hardware,
       metric, role, measured_by, kind, because, ratio, low, high, level, mean_low, mean_high, standard_error, widened,
       noise_floor, open_low, open_high, doubts, blocks, baseline_used, baseline_limited, compared_used,
       compared_limited
FROM {source} WHERE step IS NULL
""",
    "effects": """
SELECT testbed, experiment, run_id, {scenario} AS scenario, baseline AS environment, accelerator, hardware, metric,
       block, mid
FROM {source} WHERE compared = baseline || '#2'
""",
}
# Several runs on one test bed are weighted by their blocks; there is no interval over all of them.
_BEDS = """
SELECT testbed, experiment, scenario, baseline, environment, accelerator, hardware, metric,
       if(count(DISTINCT role) = 1, any_value(role), NULL) AS role,
       coalesce(string_agg(DISTINCT measured_by, ', ' ORDER BY measured_by), '') AS tool,
       sum(blocks)::BIGINT AS blocks,
       sum(blocks * ln(ratio) ORDER BY run_id) / sum(blocks) AS mid,
       sum(weight * ln(mean_low) ORDER BY run_id) / sum(weight) FILTER (mean_low IS NOT NULL) AS low,
       sum(weight * ln(mean_high) ORDER BY run_id) / sum(weight) FILTER (mean_high IS NOT NULL) AS high,
       if(bool_or(blocks > 0 AND standard_error IS NULL), NULL,
          sqrt(sum(pow(blocks * standard_error, 2) ORDER BY run_id)) / sum(blocks)) AS error,
       sum(weight * ln(1 + widened) ORDER BY run_id) / sum(weight) AS widened, ln(1 + max(noise_floor)) AS noise,
       bool_or(open_low) AS open_low, bool_or(open_high) AS open_high,
       sum(baseline_limited)::BIGINT AS limited_baseline, sum(compared_limited)::BIGINT AS limited_compared,
       coalesce(string_agg(doubts, ' ' ORDER BY run_id), '') AS doubts, count(*) AS runs,
       bool_and(baseline_used = baseline_limited OR compared_used = compared_limited) AS all_limited,
       if(count(*) = 1, any_value(kind), NULL) AS kind, min(because) AS because,
       if(count(*) = 1, any_value(verdicts.low), NULL) AS interval_low,
       if(count(*) = 1, any_value(verdicts.high), NULL) AS interval_high,
       if(count(*) = 1, any_value(level), NULL) AS level
FROM (SELECT *, greatest(blocks, 1) AS weight FROM verdicts) AS verdicts
GROUP BY ALL
ORDER BY ALL
"""
_CONTROLS = """
SELECT testbed, experiment, scenario, environment, accelerator, hardware, metric,
       avg(ln(mid) ORDER BY run_id, block) AS mid
FROM effects
GROUP BY ALL
ORDER BY ALL
"""
_COUNTS = """
SELECT testbed, experiment, count(DISTINCT run_id) AS runs, count(DISTINCT run_id || ' ' || block) AS blocks,
       count(*) FILTER (WHERE validity = 'valid') AS valid, count(*) FILTER (WHERE validity = 'suspect') AS suspect,
       count(*) FILTER (WHERE validity = 'invalid') AS invalid
FROM trials
GROUP BY ALL
ORDER BY ALL
"""
_FAILURES = """
SELECT experiment, environment, cause, count(*) AS trials, count(DISTINCT testbed) AS testbeds
FROM (
    SELECT experiment, environment, testbed, unnest(list_distinct(string_split(findings, ' '))) AS cause
    FROM trials WHERE validity = 'invalid' AND findings IS NOT NULL
)
WHERE cause NOT LIKE '%@%'
GROUP BY ALL
ORDER BY trials DESC, experiment, environment, cause
"""
# Each source has a part of the sums.
_MACHINE_SUMS = """
SELECT testbed, role, host, count(*) AS seconds,
       sum((cpu_user_pct + cpu_system_pct)::DECIMAL(38, 12)) AS cpu, count(cpu_user_pct + cpu_system_pct) AS cpu_n,
       max(cpu_user_pct + cpu_system_pct) AS cpu_max, sum(steal_pct::DECIMAL(38, 12)) AS steal,
       count(steal_pct) AS steal_n, max(steal_pct) AS steal_max, max(pressure_cpu_pct) AS pressure_max
FROM {source}
GROUP BY ALL
"""
_MACHINES = """
SELECT testbed, role, count(DISTINCT host) AS machines, sum(seconds)::BIGINT AS seconds,
       sum(cpu)::DOUBLE / nullif(sum(cpu_n), 0) AS cpu_pct, max(cpu_max) AS cpu_max_pct,
       sum(steal)::DOUBLE / nullif(sum(steal_n), 0) AS steal_pct, max(steal_max) AS steal_max_pct,
       max(pressure_max) AS pressure_max_pct
FROM machines
GROUP BY ALL
ORDER BY ALL
"""


# A test bed's host: that of its guests, else metal or another machine under test that is not virtual; of several, the
# first by name.
_FACETS = ", ".join(f"{name}::VARCHAR AS {name}" for name in FACETS)
_HOST_ROWS = f"""
SELECT testbed, role, environment, virtualization, run_id, host, {_FACETS}
FROM {{source}} WHERE role IN ('kvm_host', 'sut')
"""
_HOSTS = f"""
SELECT testbed, {", ".join(FACETS)} FROM hosts
QUALIFY row_number() OVER (
    PARTITION BY testbed
    ORDER BY role <> 'kvm_host', environment <> 'metal', coalesce(virtualization, 'none') <> 'none', run_id DESC, host
) = 1
"""


@dataclass(frozen=True, kw_only=True)
class Pairing:
    """An arm against its baseline in one scenario of an experiment, on guests of one accelerator and hardware."""

    experiment: str
    scenario: Scenario
    baseline: Arm
    arm: Arm
    accelerator: Accelerator
    hardware: Hardware


@dataclass(frozen=True, kw_only=True)
class Subject(Pairing):
    """One metric of a pairing."""

    metric: NamedMetric


@dataclass(frozen=True, kw_only=True)
class BedComparison(Subject):
    """One metric of an arm on one test bed against the experiment's baseline, from the verdicts of its runs."""

    testbed: str
    role: Role | None
    tool: str
    blocks: int
    mid: float | None  # the mean log ratio, compared ÷ baseline; None where no block has one
    low: float | None  # the same as far as findings and lost trials allow
    high: float | None
    error: float | None  # the standard error of `mid`
    widened: float = 0.0  # the part of `low` and `high` that is due to the test bed's own A/A controls
    noise: float | None = None  # the largest log ratio of two of the controls' trials in a block
    open_low: bool = False  # a natural limit made that end
    open_high: bool = False
    limited_baseline: int = 0  # client-limited or link-limited trials
    limited_compared: int = 0
    all_limited: bool = False  # in every run, these are all used trials of one side
    doubts: tuple[Doubt, ...] = ()  # of all `runs`
    runs: int = 1
    kind: Kind | None = None  # of the only run, as all below; None where the test bed has several
    because: VerdictReason | None = None
    interval_low: float | None = None  # a ratio
    interval_high: float | None = None
    level: float | None = None  # 1 − confidence

    @property
    def subject(self) -> Subject:
        """What is compared."""
        return Subject(**{field.name: getattr(self, field.name) for field in fields(Subject)})


@dataclass(frozen=True)
class BedControl:
    """One A/A control of a test bed in one metric."""

    testbed: str
    experiment: str
    scenario: Scenario
    arm: Arm
    accelerator: Accelerator
    hardware: Hardware
    metric: Metric
    mid: float  # the mean log ratio, second trial ÷ first


@dataclass(frozen=True)
class BedTrials:
    """The runs, blocks and trials by validity of an experiment on one test bed."""

    testbed: str
    experiment: str
    runs: int
    blocks: int
    valid: int
    suspect: int
    invalid: int


@dataclass(frozen=True)
class Failure:
    """Trials of an environment that are invalid for one cause, the code of a finding."""

    experiment: str
    environment: str
    cause: str
    trials: int
    testbeds: int  # on how many


@dataclass(frozen=True)
class MachineLoad:
    """The load on a test bed's machines in one role in the trials, in percent."""

    testbed: str
    role: str
    machines: int
    seconds: int  # summed over machines
    cpu_pct: float | None
    cpu_max_pct: float | None
    steal_pct: float | None
    steal_max_pct: float | None
    pressure_max_pct: float | None


@dataclass(frozen=True)
class Percentile:
    """A percentile over all test beds, with the least and the greatest of any single test bed; µs."""

    percentile: float
    value_us: int
    least_us: int
    greatest_us: int


@dataclass(frozen=True)
class Latency:
    """Percentiles of all requests of a scenario on an arm: response times in an open loop, else service times."""

    experiment: str
    scenario: Scenario
    arm: Arm
    accelerator: Accelerator
    hardware: Hardware
    requests: int
    testbeds: int
    percentiles: tuple[Percentile, ...]


class Dataset:
    """One campaign of a dataset at a folder or a URL; `database` holds its tables as _TABLE_QUERIES select them."""

    def __init__(self, location: str, campaign: str | None, memory_mb: int) -> None:
        """Find the campaign and read its tables. Raises LoadError."""
        self.location = location.rstrip("/")
        self.database = connect(memory_mb)
        try:
            self.campaign = campaign or self._only_campaign()
            self._runs = self._reading(self._load_runs)
            for table, query in _TABLE_QUERIES.items():
                self._reading(partial(self._load, table, table, query))
        except (duckdb.Error, LoadError) as error:
            self.database.close()
            raise LoadError(f"{location}: {first_line(error)}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.database.close()

    def effects(self) -> list[BedComparison]:
        """Figures of each test bed for each arm and metric."""
        return [
            BedComparison(
                role=Role(role) if (role := row.pop("role")) else None,
                kind=Kind(kind) if (kind := row.pop("kind")) else None,
                doubts=tuple(doubts_of(row.pop("doubts"))),
                because=VerdictReason(because) if (because := row.pop("because")) else None,
                baseline=Arm(row.pop("baseline")),
                **_with_model_types(row),
            )
            for row in self._rows(_BEDS)
        ]

    def controls(self) -> list[BedControl]:
        """Figures of each test bed's A/A controls."""
        return [BedControl(**_with_model_types(row)) for row in self._rows(_CONTROLS)]

    def hosts(self) -> dict[str, dict[str, str | None]]:
        """Test bed → facet → its value on the host, as text; without those that were written before hosts were a table.

        Raises LoadError.
        """
        if not self._sources("hosts", required=False):
            return {}
        self._reading(partial(self._load, "hosts", "hosts", _HOST_ROWS, required=False))
        return {row.pop("testbed"): row for row in self._rows(_HOSTS)}

    def counts(self) -> list[BedTrials]:
        return [BedTrials(**row) for row in self._rows(_COUNTS)]

    def failures(self) -> list[Failure]:
        """The causes of invalid trials, the most frequent first; a trial counts for each of its codes."""
        return [Failure(**row) for row in self._rows(_FAILURES)]

    def machines(self) -> list[MachineLoad]:
        self._reading(partial(self._load, "machines", "samples", _MACHINE_SUMS))
        return [MachineLoad(**row) for row in self._rows(_MACHINES)]

    def latencies(self) -> list[Latency]:
        """The percentiles of the summed histograms, by scenario and arm."""
        self.database.execute(_SIDES)
        self.database.execute(_PLACED)
        self._reading(partial(self._load, "buckets", "histograms", _BUCKETS))
        sides = {row.pop("side"): row for row in self._rows("FROM sides")}
        merged = percentiles_of_counts(
            self.database, "SELECT side, value, sum(n) AS n FROM buckets GROUP BY side, value", ["side"]
        )
        bed_percentiles = percentiles_of_counts(self.database, "FROM buckets", ["testbed", "side"])
        spread = bed_percentiles.groupby(["side", "percentile"])["value_us"].agg(["min", "max", "size"]).reset_index()
        table = merged.merge(spread, on=["side", "percentile"])
        latencies = [_latency(sides[side], rows) for side, rows in table.groupby("side")]
        return sorted(latencies, key=_latency_order)

    def _rows(self, query: str) -> Iterator[dict[str, Any]]:
        result = self.database.execute(query)
        columns = [column[0] for column in result.description or ()]
        yield from (dict(zip(columns, row, strict=True)) for row in result.fetchall())

    def _load_runs(self) -> set[Run]:
        """The campaign's runs: those whose trials are there. Raises LoadError when there are none."""
        own = run_files(self.database, self.location, "trials", self.campaign)
        merged = merged_files(self.database, self.location, self.campaign)
        if not own and not merged:
            raise LoadError(f"no campaign {self.campaign} here; choose another --campaign")
        return set(own) | merged_runs(self.database, merged)

    def _reading(self, read: Callable[[], Result]) -> Result:
        """Call `read`; again, if it fails, because a compaction may have removed files that it was about to read."""
        for _ in range(ATTEMPTS - 1):
            with suppress(duckdb.IOException):
                return read()
        return read()

    def _sources(self, table: str, *, required: bool = True) -> list[str]:
        """SQL sources that have each row of the campaign's runs once. Raises LoadError when a run lacks a `required`
        table.
        """
        own = run_files(self.database, self.location, table, self.campaign)  # before the merged ones
        own = {run: file for run, file in own.items() if run in self._runs}
        trials = merged_files(self.database, self.location, self.campaign)
        in_merged = merged_runs(self.database, trials)
        if required and (absent := min(self._runs - own.keys() - in_merged, default=None)):
            testbed, experiment, run_id = absent
            raise LoadError(
                f"trials/campaign={self.campaign}/testbed={testbed}/experiment={experiment}/{run_id}.parquet has no "
                f"table {table}; write that run again with `vmtoll partition`"
            )
        files = [*own.values()]
        batch = max(1, COLUMNS // len(names(table)))
        sources = [read_runs(files[first : first + batch]) for first in range(0, len(files), batch)]
        from_merged = self._runs - own.keys() if required else (self._runs - own.keys()) & in_merged
        if from_merged:
            merged = [file.replace("/trials/campaign=", f"/{table}/campaign=") for file in trials]
            there = set(merged_files(self.database, self.location, self.campaign, table))
            if not required and not there:
                return sources
            if without := set(merged) - there:
                name = min(without).removeprefix(f"{self.location}/")
                raise LoadError(f"no {name} here; write its runs again with `vmtoll partition`")
            sources.append(self._of_runs(read_merged(merged), from_merged, in_merged))
        return sources

    def _of_runs(self, source: str, runs: set[Run], available: set[Run]) -> str:
        """A source without the runs that a compaction has merged but not yet removed, or has merged since."""
        if not (others := available - runs):
            return source
        values = ", ".join(f"({', '.join(map(quoted, run))})" for run in sorted(others))
        return f"(FROM {source} WHERE ({', '.join(RUN)}) NOT IN (VALUES {values}))"

    def _load(self, name: str, table: str, query: str, *, required: bool = True) -> None:
        """Create a table in memory from what `query` selects in each source of a table of the dataset."""
        for number, source in enumerate(self._sources(table, required=required)):
            rows = query.format(scenario=_SCENARIO, source=source)
            begin = f"INSERT INTO {name} " if number else f"CREATE OR REPLACE TEMP TABLE {name} AS "
            self.database.execute(begin + rows)

    def _only_campaign(self) -> str:
        """The name of the dataset's only campaign. Raises LoadError when it has none or several."""
        files = [
            *matching(self.database, f"{self.location}/trials/campaign=*/testbed=*/experiment=*/*.parquet"),
            *merged_files(self.database, self.location, "*"),
        ]
        campaigns = sorted({file.split("/campaign=")[-1].split("/")[0] for file in files})
        if not campaigns:
            raise LoadError(
                "no campaign here (trials/campaign=…/testbed=…/experiment=…/*.parquet); "
                "write one with `vmtoll partition`"
            )
        if len(campaigns) > 1:
            raise LoadError(f"holds the campaigns {', '.join(campaigns)}; choose one with --campaign")
        return campaigns[0]


def _with_model_types(row: dict[str, Any]) -> dict[str, Any]:
    """The row of a comparison, with the model's types for scenario, arm, accelerator, hardware and metric."""
    return row | {
        "scenario": _scenario(row["scenario"]),
        "arm": Arm(row.pop("environment")),
        "accelerator": Accelerator(row["accelerator"]),
        "hardware": Hardware(row["hardware"]),
        "metric": METRICS[row["metric"]],
    }


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


# One number for each scenario and arm: billions of rows are grouped by it instead of by names.
_SIDES = """
CREATE TEMP TABLE sides AS
SELECT row_number() OVER () AS side, * FROM (
    SELECT DISTINCT experiment, scenario, environment, replicate, accelerator, hardware FROM trials
)
"""
_PLACED = """
CREATE TEMP TABLE placed AS
SELECT run_id, block, "order", attempt, testbed, side, validity <> 'invalid' AS usable
FROM trials JOIN sides USING (experiment, scenario, environment, replicate, accelerator, hardware)
"""
# The filter depends on the trial, not on the row. This keeps DuckDB from summing up each trial before the join, where
# there is nothing to sum. Values may occur several times in a group, from several sources.
_BUCKETS = """
SELECT testbed, side, value, n FROM (
    SELECT placed.testbed, side, latency_us AS value, sum("count") FILTER (WHERE usable)::BIGINT AS n
    FROM {source} AS histograms JOIN placed USING (run_id, block, "order", attempt)
    GROUP BY ALL
) WHERE n > 0
"""

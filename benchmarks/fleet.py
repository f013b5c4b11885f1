"""What a fleet of test beds takes: `python -m benchmarks.fleet [BEDS …]` (default: 50 500 10000).

First it has Ansible read an inventory of 10,000 hosts, and cuts it into test beds. Then, for each number of test beds,
it makes a dataset in a temporary folder, the same each time, with eight tables and three runs to a test bed, and
measures the analysis and the page. A CPU model is slow in it, and so are three hosts. Then it compacts the last dataset
and measures again, and has DuckDB and Spark read the tables `verdicts` and `effects`. Each measurement has a process of
its own. The files are in the page cache by then, as far as it holds them.

It fails if the analysis of the largest does not name the slow ones, and these alone, if compaction changes a figure, if
the engines differ, if time grows faster than the number of test beds, or if the analysis needs 2 GB. It writes the
table in docs/campaigns.md.
"""

import hashlib
import resource
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import duckdb
import yaml

from benchmarks import fresh_process, peak_mb, timed, write_measured
from vmtoll.analysis.schema import fields
from vmtoll.campaign.compaction import Compaction, compact
from vmtoll.campaign.dataset import Subject
from vmtoll.campaign.effects import MEMORY_MB, Figures, campaign_figures
from vmtoll.campaign.facets import Fleet
from vmtoll.campaign.page import write_page
from vmtoll.campaign.slices import write_slices
from vmtoll.campaign.testbeds import testbeds_in
from vmtoll.paths import PROJECT
from vmtoll.publish.tables import TYPES
from vmtoll.spec.inventory_faults import read_valid_inventory
from vmtoll.statistics.thresholds import MIN_FLEET

BEDS = (50, 500, 10_000)
HOSTS = 10_000  # of the inventory, four to a test bed
CAMPAIGN = "bench"
RUNS, BLOCKS, SERVERS, BUCKETS, SECONDS = 3, 10, 2, 100, 5
TRIALS = BLOCKS * SERVERS * 2  # of a run: each server on metal and in a guest
CHUNK = 250  # test beds that are made at once
MAX_MB = 2000
MAX_GROWTH = 1.25  # of the CPU time for each test bed, for the noise of the machine
MAX_DIFFERENCE = 1e-13  # between engines, of a mean of logs: they add up in different orders

METRICS = ("tail", "cpu")
MODELS = ("Xeon 6230", "Xeon 6338", "EPYC 7543", "EPYC 9354")
SLOW_MODEL, SLOW_BEDS = MODELS[2], (17, 1234, 7777)
# One row for each run: test bed, experiment, run id, the host's CPU model, and a level of the test bed's own.
_RUNS_OF = f"""
(SELECT *, {list(MODELS)}[1 + bed % {len(MODELS)}] AS model,
        (hash(bed) % 1000) / 1e4 + if(model = '{SLOW_MODEL}', 0.08, 0) + if(bed IN {SLOW_BEDS}, 0.4, 0) AS level
 FROM (SELECT bed, 'b' || lpad(bed::VARCHAR, 5, '0') AS testbed, 'bench-' || run AS experiment,
              'run-' || lpad(bed::VARCHAR, 5, '0') || '-' || run AS run_id
       FROM range({{first}}, {{last}}) AS beds(bed), range(1, {{runs}} + 1) AS runs(run))) AS runs
"""
_TRIAL = """1 + n // {in_block} AS block, 1 + n % {in_block} AS "order", 1 AS attempt"""
_TABLES = {
    "trials": f"""
SELECT runs.*, {_TRIAL}, if(n % 2 = 0, 'metal', 'kvm-default') AS environment, 1 AS replicate,
       if(n % 2 = 0, 'none', 'kvm') AS accelerator, 'native' AS hardware,
       ['lighttpd', 'nginx'][1 + n % {{in_block}} // 2] AS server, 'site' AS workload, 'vegeta' AS tool,
       'rate' AS load_kind, 1000 AS load_value, if(hash(n, run_id) % 97 = 0, 'suspect', 'valid') AS validity,
       1000 * (1 + level) * if(n % 2 = 0, 1, 1.2) * (1 + (hash(n, run_id) % 1000) / 1e5) AS response_time_p99_us,
       (40 + n % {{in_block}} // 2) * if(n % 2 = 0, 1, 1.1) AS server_cpu_us_per_request
FROM {{runs}}, range({{trials}}) AS numbers(n)
""",
    "histograms": f"""
SELECT runs.*, {_TRIAL}, 'response-time' AS latency,
       (200 * exp(bucket / 15) * if(n % 2 = 0, 1, 1.2))::BIGINT + bucket AS latency_us,
       1 + (1000 * exp(-pow((bucket - 25) / 15, 2)))::BIGINT AS "count"
FROM {{runs}}, range({{trials}}) AS numbers(n), range({{buckets}}) AS buckets(bucket)
""",
    "samples": f"""
SELECT runs.*, {_TRIAL}, 60.0 * n + second AS time_s, role || '-' || testbed AS host, role,
       (hash(n, second, role) % 9000) / 100 AS cpu_user_pct, 5 AS cpu_system_pct,
       if(role = 'kvm_guest', (hash(second, n) % 100) / 100, 0) AS steal_pct, 0.5 AS pressure_cpu_pct
FROM {{runs}}, range({{trials}}) AS numbers(n), range({{seconds}}) AS seconds(second),
     (SELECT unnest(['client', 'metal', 'kvm_guest']) AS role)
""",
}
_TABLES["hosts"] = """
SELECT runs.*, role || '-' || testbed AS host, role, 'Debian 13' AS release, '6.12.48+deb13-amd64' AS kernel,
       model AS cpu_model, 'native' AS hardware, 32 AS cpus_allowed, 2 AS sockets, 'vmtoll' AS firmware
FROM {runs}, (SELECT unnest(['client', 'sut', 'kvm_host']) AS role)
"""
_EMPTY = ("seconds", "claims")  # without a published claim, and of a tool that logs no send times
_COMPARED = """
SELECT runs.*, server, 'site' AS workload, 'rate' AS load_kind, 1000 AS load_value, 'vegeta' AS tool,
       'metal' AS baseline, compared, 'kvm' AS accelerator, 'native' AS hardware, metric, 'primary' AS role,
       'vegeta' AS measured_by
FROM {runs}, (SELECT unnest(['lighttpd', 'nginx']) AS server), (SELECT unnest({metrics}) AS metric),
     (SELECT unnest(['kvm-default', 'metal#2']) AS compared)
"""
_TABLES |= {
    "verdicts": f"""
SELECT * EXCLUDE (level), 1.2 * (1 + level) * (1 + (hash(server, metric, run_id) % 1000) / 1e5) AS ratio,
       ratio - 0.01 AS mean_low, ratio + 0.01 AS mean_high, 'slower' AS kind, 0.9 * ratio AS low, 1.1 * ratio AS high,
       0.01 AS level, 0.005 AS standard_error, 0 AS widened, false AS open_low, false AS open_high,
       {{blocks}} AS blocks, {{blocks}} AS baseline_used, {{blocks}} AS compared_used, 0 AS baseline_limited,
       0 AS compared_limited
FROM ({_COMPARED}) WHERE compared <> 'metal#2'
""",
    "effects": f"""
SELECT * EXCLUDE (level, number), 1 + number AS block, 1 AS boot,
       if(compared = 'metal#2', 1, 1.2 * (1 + level)) * (0.995 + (hash(server, metric, run_id, number) % 1000) / 1e5)
       AS mid, mid - 0.01 AS low, mid + 0.01 AS high, 2 AS n
FROM ({_COMPARED}), range({{blocks}}) AS blocks(number)
""",
}


def make(folder: Path, beds: int, runs: int = RUNS, tables: Sequence[str] = (*_TABLES, *_EMPTY)) -> int:
    """Write the dataset of this many test beds; return the number of its files. `tables`: with the trials first."""
    with duckdb.connect(config={"threads": 1}) as database:
        database.execute("SET enable_progress_bar = false; SET partitioned_write_max_open_files = 2000")
        for first in range(0, beds, CHUNK):
            rows = _RUNS_OF.format(first=first, last=min(beds, first + CHUNK), runs=runs)
            for table in (table for table in tables if table in _TABLES):
                _write(database, table, _TABLES[table], rows, folder / table / f"campaign={CAMPAIGN}")
        for table in (table for table in tables if table in _EMPTY):
            _write_empty(database, table, folder)
    return len(parquet_files(folder))


def _write(database: duckdb.DuckDBPyConnection, table: str, query: str, runs: str, folder: Path) -> None:
    """Write a table's rows with all columns of its schema, in its order, those that the query lacks empty: a file for
    each run, which DuckDB writes into a new folder.
    """
    values: dict[str, object] = {
        "metrics": list(METRICS),
        "trials": TRIALS,
        "in_block": SERVERS * 2,
        "buckets": BUCKETS,
        "seconds": SECONDS,
        "blocks": BLOCKS,
    }
    rows = query.format(runs=runs, **values)
    columns = ", ".join(f'"{field["name"]}"::{TYPES[field["type"]]} AS "{field["name"]}"' for field in fields(table))
    with tempfile.TemporaryDirectory(dir=folder.parents[1]) as draft:
        database.execute(f"""
COPY (SELECT {columns}, testbed, experiment, run_id AS file FROM ({_no_rows(table)} UNION ALL BY NAME ({rows})))
TO '{draft}' (FORMAT parquet, COMPRESSION zstd, PARTITION_BY (testbed, experiment, file), OVERWRITE_OR_IGNORE)
""")
        for part in Path(draft).glob("testbed=*/experiment=*/file=*"):
            (file,) = part.glob("*.parquet")
            run = folder / part.relative_to(draft).parent / f"{part.name.removeprefix('file=')}.parquet"
            run.parent.mkdir(parents=True, exist_ok=True)
            file.rename(run)


def _write_empty(database: duckdb.DuckDBPyConnection, table: str, folder: Path) -> None:
    """Write a table without rows: the same file for each run."""
    with tempfile.TemporaryDirectory(dir=folder) as draft:
        file = Path(draft) / "empty"
        database.execute(f"COPY ({_no_rows(table)}) TO '{file}' (FORMAT parquet)")
        for trials in parquet_files(folder / "trials"):
            run = folder / table / trials.relative_to(folder / "trials")
            run.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, run)


def _no_rows(table: str) -> str:
    columns = (f'NULL::{TYPES[field["type"]]} AS "{field["name"]}"' for field in fields(table))
    return f"SELECT {', '.join(columns)} WHERE false"


def parquet_files(folder: Path) -> list[Path]:
    return list(folder.rglob("*.parquet"))


# ---- the same figures by two engines: SQL that both understand; sums of whole numbers tell the last digit

_KEY = "experiment, server, workload, load_kind, load_value, load_guests, neighbour_value, compared, metric"
BY_ENGINES = {
    "verdicts": f"""
SELECT testbed, {_KEY}, count(*) AS n, sum(blocks) AS blocks,
       sum(blocks * ln(ratio)) / sum(blocks) AS mid, sum(blocks * ln(mean_low)) / sum(blocks) AS low,
       sum(blocks * ln(mean_high)) / sum(blocks) AS high,
       sum(CAST(floor(ratio * 1099511627776) AS DECIMAL(38, 0))) AS exact
FROM verdicts WHERE step IS NULL GROUP BY testbed, {_KEY}
""",
    "effects": f"""
SELECT testbed, {_KEY}, count(mid) AS n, count(*) AS blocks,
       avg(ln(mid)) AS mid, avg(ln(low)) AS low, avg(ln(high)) AS high,
       sum(CAST(floor(mid * 1099511627776) AS DECIMAL(38, 0))) AS exact
FROM effects WHERE step IS NULL GROUP BY testbed, {_KEY}
""",
}


def by_duckdb(dataset: Path, output: Path) -> float:
    """Write the figures of BY_ENGINES as <output>/<table>.parquet; return the peak of memory in MB."""
    with duckdb.connect(config={"threads": 2}) as database:
        for table, query in BY_ENGINES.items():
            source = f"read_parquet('{dataset}/{table}/**/*.parquet', hive_types_autocast = false)"
            database.execute(f"CREATE VIEW {table} AS FROM {source}")
            database.execute(f"COPY ({query}) TO '{output}/{table}.parquet' (FORMAT parquet)")
    return peak_mb()


def by_spark(dataset: Path, output: Path) -> float:
    """The same with Spark, in folders <output>/<table>; the memory is that of its Java process and this one."""
    from pyspark.sql import SparkSession  # noqa: PLC0415

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.memory", "1g").config("spark.sql.shuffle.partitions", "4")
    spark = builder.config("spark.sql.sources.partitionColumnTypeInference.enabled", "false").getOrCreate()
    try:
        spark.sparkContext.setLogLevel("ERROR")
        for table, query in BY_ENGINES.items():
            spark.read.option("mergeSchema", "true").parquet(f"{dataset}/{table}").createOrReplaceTempView(table)
            spark.sql(query).write.parquet(f"{output}/{table}")
        java = spark.sparkContext._gateway
        assert java is not None
        return peak_mb() + peak_mb(java.proc.pid)
    finally:
        spark.stop()


def differences(ours: Path, theirs: Path) -> dict[str, tuple[int, float]]:
    """For each table, the number of figures, and the largest difference of the engines' means, in logs.

    Raises AssertionError where groups, counts or sums of whole numbers differ.
    """
    found = dict[str, tuple[int, float]]()
    for table in BY_ENGINES:
        with duckdb.connect() as database:
            database.execute(f"CREATE VIEW ours AS FROM '{ours}/{table}.parquet'")
            database.execute(f"CREATE VIEW theirs AS FROM '{theirs}/{table}/*.parquet'")
            names = f"testbed, {_KEY}, n, blocks, exact::VARCHAR"
            for one, other in (("ours", "theirs"), ("theirs", "ours")):
                odd = database.execute(f"SELECT {names} FROM {one} EXCEPT ALL SELECT {names} FROM {other}").fetchone()
                assert odd is None, f"{table}: only {one} has {odd}"
            keys = f"testbed, {_KEY}".split(", ")
            same = " AND ".join(f"ours.{key} IS NOT DISTINCT FROM theirs.{key}" for key in keys)
            largest = ", ".join(f"max(abs(ours.{name} - theirs.{name}))" for name in ("low", "mid", "high"))
            row = database.execute(f"SELECT count(*), greatest({largest}) FROM ours JOIN theirs ON {same}").fetchone()
            assert row is not None
            found[table] = (int(row[0]), float(row[1]))
    return found


# ---- measurements


@dataclass(frozen=True)
class Measured:
    """Seconds, seconds of CPU, and the peak of memory in MB (10⁶ bytes)."""

    seconds: float
    cpu_s: float
    mb: float

    def __str__(self) -> str:
        return f"{self.seconds:.1f} s ({self.cpu_s:.1f} s of CPU), {self.mb:.0f} MB"


def measure_figures(dataset: Path, memory_mb: int = MEMORY_MB) -> tuple[Measured, str, Figures]:
    """Measure the campaign's figures; with a digest of all of them."""
    seconds, cpu_s, mb, figures = timed(campaign_figures, str(dataset), memory_mb=memory_mb)
    return Measured(seconds, cpu_s, mb), hashlib.sha256(figures.to_json()).hexdigest(), figures


def _measure_figures(dataset: Path) -> tuple[Measured, str, Fleet]:
    measured, digest, figures = measure_figures(dataset)
    return measured, digest, figures.fleet


def check_fleet(fleet: Fleet, beds: int) -> None:
    """Raise AssertionError unless the slow CPU model and hosts were found, in each effect, and nothing else."""
    if beds < MIN_FLEET:
        return
    names = {f"b{bed:05}" for bed in SLOW_BEDS if bed < beds}
    by_effect: dict[Subject, set[str]] = {facet.comparison: set() for facet in fleet.facets}
    assert len(by_effect) == RUNS * SERVERS * len(METRICS), f"a property in {len(by_effect)} effects"
    for facet in fleet.facets:
        assert facet.column == "cpu_model" and facet.values[-1].value == SLOW_MODEL, f"found {facet}"
    for host in fleet.odd:
        by_effect.setdefault(host.comparison, set()).add(host.testbed)
    for comparison, odd in by_effect.items():
        assert odd == names, f"{comparison}: odd hosts {sorted(odd)}, not {sorted(names)}"


def write_inventory(file: Path, hosts: int) -> None:
    """Write an inventory of test beds of four machines each."""
    roles = {"clients": "client", "metal_hosts": "metal", "kvm_hosts": "host", "kvm_guests": "guest"}
    beds = [f"b{bed:05}" for bed in range(hosts // len(roles))]
    groups: dict[str, object] = {
        group: {"hosts": {f"{name}-{bed}": _variables(name, bed) for bed in beds}} for group, name in roles.items()
    }
    groups["cells"] = {"children": {bed: {"hosts": {f"{name}-{bed}": None for name in roles.values()}} for bed in beds}}
    file.write_text(yaml.safe_dump({"all": {"vars": {"ansible_user": "lab"}, "children": groups}}))


def _variables(name: str, bed: str) -> dict[str, object]:
    variables: dict[str, object] = {"ansible_host": f"{name}.{bed}.example"}
    if name == "client":
        return variables | {"vmtoll_link_mbit": 10000}
    if name == "host":
        return variables
    guest = {"vmtoll_environment": "kvm-default", "vmtoll_kvm_host": f"host-{bed}", "vmtoll_domain": "guest"}
    return variables | (guest if name == "guest" else {"vmtoll_environment": "metal"})


def _slice_inventory(file: Path, folder: Path) -> tuple[Measured, int]:
    """Read an inventory and write its slices, as `campaign submit` does; with their number. The memory is that of the
    larger process, Ansible's or this one.
    """

    def slice_it() -> int:
        data = read_valid_inventory(file)
        return len(write_slices(data, testbeds_in(data, file), folder))

    seconds, cpu_s, mb, slices = timed(slice_it)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s += children.ru_utime + children.ru_stime
    return Measured(seconds, cpu_s, max(mb, children.ru_maxrss * 1024 / 1e6)), slices


def _page(dataset: Path, output: Path) -> tuple[Measured, float]:
    """Measure the figures and their page; with the size of the page in MB."""
    seconds, cpu_s, mb, page = timed(lambda: write_page(campaign_figures(str(dataset)), output))
    return Measured(seconds, cpu_s, mb), page.stat().st_size / 1e6


def _compact(dataset: Path) -> tuple[Measured, Compaction]:
    seconds, cpu_s, mb, compaction = timed(compact, dataset, CAMPAIGN, MEMORY_MB)
    return Measured(seconds, cpu_s, mb), compaction


def _by_engine(name: str, dataset: Path, output: Path) -> Measured:
    output.mkdir()
    seconds, cpu_s, _, mb = timed({"DuckDB": by_duckdb, "Spark": by_spark}[name], dataset, output)
    return Measured(seconds, cpu_s, mb)


def main() -> None:
    """Make, measure, check, print, and write the table in the documents."""
    numbers = [int(word) for word in sys.argv[1:]] or list(BEDS)
    lines = ["| measured | test beds | files | time | memory |", "|---|---|---|---|---|"]

    def add(what: str, beds: int, files: int, measured: Measured) -> None:
        lines.append(f"| {what} | {beds:,} | {files:,} | {measured.seconds:.1f} s | {measured.mb:.0f} MB |")
        print(f"{what}, {beds:,} test beds in {files:,} files: {measured}", flush=True)

    with fresh_process() as (folder, call):
        write_inventory(folder / "hosts.yml", HOSTS)
        slicing, slices = call(_slice_inventory, folder / "hosts.yml", folder / "slices")
        add(f"inventory of {HOSTS:,} hosts, read and sliced", slices, slices, slicing)
        analyses = dict[int, Measured]()
        for beds in numbers:
            dataset = folder / f"{beds}"
            dataset.mkdir()
            files = call(make, dataset, beds)
            analyses[beds], figures, fleet = call(_measure_figures, dataset)
            add("figures of the campaign", beds, files, analyses[beds])
        check_fleet(fleet, beds)
        merging, compaction = call(_compact, dataset)
        add(f"compaction into {compaction.files_after:,} files", beds, compaction.files_before, merging)
        after, figures_after, _ = call(_measure_figures, dataset)
        add("figures of the campaign, compacted", beds, compaction.files_after, after)
        assert figures_after == figures, "the figures differ after compaction"
        report, page_mb = call(_page, dataset, folder / "campaign.html")
        add(f"figures and page ({page_mb:.1f} MB), compacted", beds, compaction.files_after, report)
        for engine in ("DuckDB", "Spark"):
            measured = call(_by_engine, engine, dataset, folder / engine)
            add(f"`verdicts` and `effects` by {engine}", beds, compaction.files_after, measured)
        for table, (rows, difference) in differences(folder / "DuckDB", folder / "Spark").items():
            assert difference <= MAX_DIFFERENCE, f"{table}: the engines differ by {difference}"
            print(f"{table}: {rows:,} figures by both engines, means within {difference:.1e}")
    write_measured(PROJECT / "docs" / "campaigns.md", "fleet", "\n".join(lines))
    check(analyses, [merging, after, report])


def check(analyses: dict[int, Measured], others: list[Measured]) -> None:
    """Raise AssertionError if time grows faster than the number of test beds, or if anything needs too much memory."""
    for (beds, less), (more_beds, more) in pairwise(sorted(analyses.items())):
        growth, limit = more.cpu_s / less.cpu_s, MAX_GROWTH * more_beds / beds
        assert growth <= limit, f"{more_beds / beds:.0f} times the test beds take {growth:.1f} times the time"
    largest = max(measured.mb for measured in (*analyses.values(), *others))
    assert largest < MAX_MB, f"{largest:.0f} MB"


if __name__ == "__main__":
    main()

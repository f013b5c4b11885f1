"""The tables that the documents make by Spark: their SQL, asked of DuckDB, has the figures of the runs' own analysis.

Spark itself is not a part of the project; what its SQL spells otherwise is said here.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from synthetic_run import Row, Truth, failed, make_run

from analysis.campaign.partition import partition
from analysis.compare import compare
from analysis.load import Run, load_run
from analysis.metrics import THROUGHPUT
from workloads.runner.registry import PROJECT

SPELLED = {"struct(verdict, throughput_rps AS rps)": "struct_pack(verdict := verdict, rps := throughput_rps)"}


def refuse_one(row: Row) -> list[Row]:
    """One trial is invalid, one was tried twice."""
    place = row["block"], row["environment"], row["server"], row["offered_load"]
    if place == (2, "kvm-default", "nginx", "closed:10"):
        return [failed(row, "fingerprint: nginx: config_sha256 differ")]
    if place == (3, "metal", "nginx", "closed:10"):
        return [failed(row, "host-lost: metal"), row | {"attempt": 2}]
    return [row]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """Cell → its run; the cells' names would be numbers to who guesses types."""
    folder = tmp_path_factory.mktemp("runs")
    loads = ("closed:10", "rate:1000")
    truths = {cell: Truth({"nginx": 0.9}, loads=loads, change=refuse_one, seed=int(cell)) for cell in ("07", "08")}
    return {cell: load_run(make_run(folder / cell, truth)) for cell, truth in truths.items()}


@pytest.fixture(scope="module")
def dataset(runs: dict[str, Run], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    for cell, run in runs.items():
        partition(run.path, folder, "spring", cell)
    return folder


def table(document: str, dataset: Path) -> list[dict[str, Any]]:
    """The table of a document's snippet, which has to be Python."""
    text = (PROJECT / document).read_text(encoding="utf-8")
    (snippet,) = re.findall(r"```python\n(from pyspark.*?)```", text, re.DOTALL)
    compile(snippet, document, "exec")
    (path,) = re.findall(r'parquet\("[^"]*/data/(.*?)"\)', snippet)
    (view,) = re.findall(r'createTempView\("(\w+)"\)', snippet)
    (sql,) = re.findall(r'spark\.sql\("""(.*?)"""\)', snippet, re.DOTALL)
    for spark, duck in SPELLED.items():
        sql = sql.replace(spark, duck)
    source = f"read_parquet('{dataset}/{path}/**/*.parquet', hive_partitioning = true, hive_types_autocast = false)"
    with duckdb.connect() as database:
        database.execute(f"CREATE VIEW {view} AS FROM {source}")
        found = database.execute(sql)
        columns = [column[0] for column in found.description or ()]
        return [dict(zip(columns, row, strict=True)) for row in found.fetchall()]


def test_the_means_of_the_readme_are_those_of_the_trials(runs: dict[str, Run], dataset: Path) -> None:
    rows = table("README.md", dataset)
    assert len(rows) == 2 * 2 * 3, "cells, loads, environments with the A/A arm"
    for row in rows:
        trials = runs[row["cell"]].attempts
        where = (trials["environment"] == row["environment"]) & (trials["offered_load"] == row["offered_load"])
        valid = trials[where & (trials["verdict"] != "invalid")]
        assert row["trials"] == len(valid) > 0
        assert row["rps"] == pytest.approx(np.exp(np.log(valid["throughput_rps"].astype(float)).mean()))
        assert row["cpu_us"] == pytest.approx(valid["server_cpu_us_per_request"].astype(float).mean())
        assert row["accelerator"] == {"kvm-default": "kvm"}.get(row["environment"], "none")


def test_the_pairs_of_the_campaigns_page_are_those_of_the_report(runs: dict[str, Run], dataset: Path) -> None:
    rows = table("docs/campaigns.md", dataset)
    assert len(rows) == 2 * 2, "cells, guests with the A/A arm"
    for row in rows:
        scenario = row["server"], row["workload"], row["tool"], row["offered_load"]
        theirs = compare(runs[row["cell"]], scenario, row["environment"], THROUGHPUT, "tool")
        assert theirs.effect is not None
        assert (row["mean"], row["blocks"]) == (pytest.approx(theirs.effect.mean, abs=1e-12), theirs.pairs)

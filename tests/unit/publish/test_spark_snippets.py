"""The tables that the documents make by Spark: their SQL, asked of DuckDB, has the figures of the runs' own analysis.

Spark itself is not a part of the project.
"""

import re
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

from tests.support.records import BASELINE
from tests.support.synthetic_run import Row, Truth, closed_load, failed_trial, make_run, rate_load
from vmtoll.analysis.run import Run, load_run
from vmtoll.analysis.verdict import analyse
from vmtoll.campaign.store import partition
from vmtoll.model.finding import Code, Validity
from vmtoll.model.trial import Accelerator, Arm
from vmtoll.paths import PROJECT

GUEST = Arm("kvm-default")


def refuse_one(row: Row) -> list[Row]:
    """One trial is invalid, one was tried twice."""
    place = row["block"], row["arm"], row["server"], row["load"]
    if place == (2, GUEST, "nginx", closed_load()):
        return [failed_trial(row, Code.FINGERPRINT)]
    if place == (3, BASELINE, "nginx", closed_load()):
        return [failed_trial(row, Code.HOST_LOST), row | {"attempt": 2}]
    return [row]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """Test bed → its run; the test beds' names would be numbers to who guesses types."""
    folder = tmp_path_factory.mktemp("runs")
    loads = (closed_load(), rate_load(1000))
    truths = {bed: Truth({"nginx": 0.9}, loads=loads, change=refuse_one, seed=int(bed)) for bed in ("07", "08")}
    return {bed: load_run(make_run(folder / bed, truth)) for bed, truth in truths.items()}


@pytest.fixture(scope="module")
def dataset(runs: dict[str, Run], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    for testbed, run in runs.items():
        partition(run.path, folder, "spring", testbed)
    return folder


def table(view: str, dataset: Path) -> list[dict[str, Any]]:
    """The table of the snippet in the page on campaigns that makes this view; it has to be Python."""
    text = (PROJECT / "docs" / "campaigns.md").read_text(encoding="utf-8")
    snippets = re.findall(r"```python\n(from pyspark.*?)```", text, re.DOTALL)
    (snippet,) = (snippet for snippet in snippets if f'createTempView("{view}")' in snippet)
    compile(snippet, "campaigns.md", "exec")
    (path,) = re.findall(r'parquet\("[^"]*/data/(.*?)"\)', snippet)
    (sql,) = re.findall(r'spark\.sql\("""(.*?)"""\)', snippet, re.DOTALL)
    source = f"read_parquet('{dataset}/{path}/**/*.parquet', hive_partitioning = true, hive_types_autocast = false)"
    with duckdb.connect() as database:
        database.execute(f"CREATE VIEW {view} AS FROM {source}")
        found = database.execute(sql)
        columns = [column[0] for column in found.description or ()]
        return [dict(zip(columns, row, strict=True)) for row in found.fetchall()]


def test_the_means_are_those_of_the_trials(runs: dict[str, Run], dataset: Path) -> None:
    rows = table("trials", dataset)
    assert len(rows) == 2 * 2 * 3, "test beds, loads, arms with the control"
    for row in rows:
        arm = Arm(row["environment"], row["replicate"])
        measured = [
            record.primary
            for record in runs[row["testbed"]].records
            if (record.arm, record.scenario.load.kind, record.scenario.load.value)
            == (arm, row["load_kind"], row["load_value"])
            and record.validity is not Validity.INVALID
        ]
        assert row["trials"] == len(measured) > 0
        rates = [one.throughput_rps for one in measured if one]
        assert row["rps"] == pytest.approx(np.exp(np.log(np.array(rates, dtype=float)).mean()))
        costs = [one.server_cpu_us_per_request for one in measured if one]
        assert row["cpu_us"] == pytest.approx(np.array(costs, dtype=float).mean())
        assert row["accelerator"] == (Accelerator.KVM if arm == GUEST else Accelerator.NONE)


def test_the_effects_of_the_campaigns_page_are_those_of_the_report(runs: dict[str, Run], dataset: Path) -> None:
    rows = table("effects", dataset)
    assert len(rows) == 2 * (4 + 3), "test beds; the metrics of closed and of open loops"
    for row in rows:
        (comparison,) = [
            one
            for one in analyse(runs[row["testbed"]]).comparisons
            if (one.scenario.load.kind, str(one.arm)) == (row["load_kind"], row["compared"])
        ]
        theirs = comparison.verdicts[row["metric"]].effects
        for column, name in (("low", "low"), ("mean", "mid"), ("high", "high")):
            values = [value for effect in theirs if (value := getattr(effect, name)) is not None]
            assert row[column] == pytest.approx(np.log(values).mean(), abs=1e-12)
        assert row["blocks"] == sum(effect.mid is not None for effect in theirs)

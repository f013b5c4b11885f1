"""The tables of a dataset as Spark reads them: the figures of DuckDB, over 10,000 test beds.

Needs Java 17 or newer, and PySpark: .venv/bin/pip install --require-hashes -r tests/spark.txt
"""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from benchmarks.fleet import BY_ENGINES, CAMPAIGN, MAX_DIFFERENCE, by_duckdb, differences, make
from tests.support.synthetic_run import Truth, make_run
from vmtoll.campaign.compaction import compact
from vmtoll.campaign.store import partition
from vmtoll.paths import PROJECT

pytest.importorskip("pyspark", reason="needs tests/spark.txt")
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not shutil.which("java"), reason="needs the Debian package openjdk-17-jre-headless"),
]
BEDS = 10_000
BY_SPARK = (
    "import sys; from pathlib import Path; from benchmarks import fleet; fleet.by_spark(*map(Path, sys.argv[1:]))"
)


def spark(code: str, *arguments: Path) -> str:
    """What a script with Spark prints, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=PROJECT, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_both_engines_have_the_same_figures_of_ten_thousand_test_beds(tmp_path: Path) -> None:
    dataset, ours, theirs = tmp_path / "data", tmp_path / "duckdb", tmp_path / "spark"
    for folder in (dataset, ours, theirs):
        folder.mkdir()
    make(dataset, BEDS, runs=1, tables=("trials", *BY_ENGINES))
    compact(dataset, CAMPAIGN, memory_mb=1000)
    by_duckdb(dataset, ours)
    spark(BY_SPARK, dataset, theirs)
    compared = differences(ours, theirs)
    assert {table: rows for table, (rows, _) in compared.items()} == {"verdicts": 4 * BEDS, "effects": 8 * BEDS}
    assert max(difference for _, difference in compared.values()) <= MAX_DIFFERENCE


@pytest.mark.parametrize("is_compact", [False, True])
def test_the_scripts_in_the_documents_run(tmp_path: Path, is_compact: bool) -> None:
    """They print the rows that DuckDB finds by their SQL."""
    data = tmp_path / "data"
    for number, testbed in enumerate(("07", "08")):
        partition(make_run(tmp_path / testbed, Truth({"nginx": 0.9}, seed=number)), data, "spring", testbed)
    if is_compact:
        compact(data, "spring", memory_mb=200)
    text = (PROJECT / "docs" / "campaigns.md").read_text(encoding="utf-8")
    scripts = re.findall(r"```python\n(from pyspark.*?)```", text, re.DOTALL)
    assert len(scripts) == 2
    for script in scripts:
        (query,) = re.findall(r'"""(.*?)"""', script, re.DOTALL)
        (path,) = re.findall(r'parquet\("[^"]*/data/(.*?)"\)', script)
        view = path.split("/")[0]
        local = re.sub(r'parquet\("[^"]*/data/', f'parquet("{data}/', script)
        collected = local.replace("spark.sql(", "rows = spark.sql(").replace(".show()", ".toJSON().collect()")
        printed = spark(f"{collected}\nimport json\nprint(json.dumps(rows))")
        rows = [json.loads(row) for row in json.loads(printed.splitlines()[-1])]
        with duckdb.connect() as database:
            source = f"read_parquet('{data}/{view}/**/*.parquet', hive_types_autocast = false)"
            database.execute(f"CREATE VIEW {view} AS FROM {source}")
            expected = database.execute(query).df().to_dict("records")
        assert len(rows) == len(expected) > 0
        for row, other in zip(rows, expected, strict=True):
            for name, value in row.items():
                assert value == (pytest.approx(other[name], rel=1e-12) if isinstance(value, float) else other[name])

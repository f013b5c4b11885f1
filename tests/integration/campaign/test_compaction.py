"""Small files become few: the same figures before and after, for those who read meanwhile, and after a kill."""

import fcntl
import json
import re
import subprocess
import sys
from pathlib import Path
from shutil import copytree

import duckdb
import pytest
from typer.testing import CliRunner

from benchmarks.fleet import CAMPAIGN, RUNS, make, parquet_files
from tests.support.synthetic_run import Truth, make_run
from vmtoll.analysis.run import Run
from vmtoll.campaign.compaction import Compaction, compact
from vmtoll.campaign.effects import campaign_figures
from vmtoll.campaign.store import _WRITERS, add_run, has_run, partition
from vmtoll.cli import app
from vmtoll.model.analysis import RunAnalysis
from vmtoll.model.errors import LoadError, UserError
from vmtoll.paths import PROJECT

BEDS, TABLES, MEMORY_MB = 6, 8, 300
# A compaction of three runs to a file in a process of its own; argument: the dataset.
COMPACT = f"""
import os, signal, sys
from pathlib import Path
from vmtoll.campaign import compaction
{{before}}
compaction.compact(Path(sys.argv[1]), "{CAMPAIGN}", {MEMORY_MB}, 3)
"""
# Kills its process at call number {number} of Path.{name}.
KILL = """
calls, original = 0, Path.{name}
def counted(*arguments, **options):
    global calls
    calls += 1
    if calls == {number}:
        os.kill(os.getpid(), signal.SIGKILL)
    return original(*arguments, **options)
Path.{name} = counted
"""
SUMS = """
SELECT count(*), sum(floor(ratio * 1099511627776)::HUGEINT), count(DISTINCT testbed || experiment || run_id)
FROM verdicts
"""


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of small files."""
    folder = tmp_path_factory.mktemp("small") / "data"
    folder.mkdir()
    assert make(folder, BEDS) == BEDS * RUNS * TABLES
    return folder


@pytest.fixture(scope="module")
def figures(small: Path) -> bytes:
    return campaign_figures(str(small)).to_json()


@pytest.fixture
def dataset(small: Path, tmp_path: Path) -> Path:
    return copytree(small, tmp_path / "data")


def figures_of(dataset: Path) -> bytes:
    return campaign_figures(str(dataset)).to_json()


def merged(dataset: Path, runs_per_file: int = 500) -> Compaction:
    return compact(dataset, CAMPAIGN, MEMORY_MB, runs_per_file)


def started(dataset: Path, before: str = "") -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", COMPACT.format(before=before), dataset], cwd=PROJECT)


def copy(file: Path, to: Path, columns: str) -> None:
    """Copy the rows of a file, with other values in some columns."""
    with duckdb.connect() as database:
        source = f"read_parquet('{file}', hive_partitioning = false)"
        database.execute(f"COPY (SELECT {columns} FROM {source}) TO '{to}' (FORMAT parquet)")


def documented(dataset: Path) -> str:
    """The view in the page on campaigns, of this dataset."""
    text = (PROJECT / "docs" / "campaigns.md").read_text(encoding="utf-8")
    (sql,) = re.findall(r"```sql\n(CREATE .*?VIEW verdicts AS.*?)```", text, re.DOTALL)
    return str(sql).replace("'data/", f"'{dataset}/")


def sums_by_the_documents(dataset: Path) -> tuple[object, ...]:
    with duckdb.connect() as database:
        database.execute(documented(dataset))
        (row,) = database.execute(SUMS).fetchall()
        return row


def test_the_figures_are_the_same_to_the_last_digit(dataset: Path, figures: bytes) -> None:
    assert merged(dataset, 4) == Compaction(BEDS * RUNS, BEDS * RUNS * TABLES, 5 * TABLES)
    assert len(parquet_files(dataset)) == 5 * TABLES
    assert {path.parent.name for path in parquet_files(dataset)} == {f"campaign={CAMPAIGN}"}
    assert not list(dataset.rglob("testbed=*"))
    assert figures_of(dataset) == figures


def test_a_table_has_the_same_rows(small: Path, dataset: Path) -> None:
    merged(dataset)
    for table in (folder.name for folder in small.iterdir()):
        with duckdb.connect() as database:
            for name, folder in (("before", small), ("after", dataset)):
                source = f"read_parquet('{folder}/{table}/**/*.parquet', hive_types_autocast = false)"
                database.execute(f"CREATE TABLE {name} AS FROM {source} SELECT campaign, * EXCLUDE (campaign)")
            for one, other in (("before", "after"), ("after", "before")):
                assert database.execute(f"FROM {one} EXCEPT ALL FROM {other}").fetchall() == [], table


def test_runs_that_are_added_later_are_read_with_the_others_and_merged_again(dataset: Path, small: Path) -> None:
    merged(dataset)
    for file in parquet_files(small):
        later = dataset / file.relative_to(small).with_name(file.name.replace("run-", "new-"))
        later.parent.mkdir(parents=True, exist_ok=True)
        copy(file, later, "* REPLACE (replace(run_id, 'run-', 'new-') AS run_id)")
    before = figures_of(dataset)
    assert {bed.runs for bed in campaign_figures(str(dataset)).testbeds} == {2}
    sums = sums_by_the_documents(dataset)
    assert sums[2] == 2 * BEDS * RUNS
    assert merged(dataset).files_after == 2 * TABLES
    assert figures_of(dataset) == before
    assert sums_by_the_documents(dataset) == sums


@pytest.mark.parametrize("is_alone", [True, False])
def test_a_run_that_is_written_again_replaces_its_merged_rows(dataset: Path, small: Path, is_alone: bool) -> None:
    """Also where it is the only run of a merged file."""
    before = campaign_figures(str(dataset))
    merged(dataset, 1 if is_alone else 4)
    place = f"campaign={CAMPAIGN}/testbed=b00002/experiment=bench-1/run-00002-1.parquet"
    for table in (path.name for path in small.iterdir()):
        (dataset / table / place).parent.mkdir(parents=True)
        (dataset / table / place).write_bytes((small / table / place).read_bytes())
    copy(small / "verdicts" / place, dataset / "verdicts" / place, "* REPLACE (2 * ratio AS ratio)")
    once = campaign_figures(str(dataset))
    for old, new in zip(before.effects, once.effects, strict=True):
        for old_bed, new_bed in zip(old.by_testbed, new.by_testbed, strict=True):
            factor = 2 if (old.experiment, old_bed.testbed) == ("bench-1", "b00002") else 1
            assert old_bed.estimate and new_bed.estimate
            assert new_bed.estimate.value == pytest.approx(factor * old_bed.estimate.value)
    assert merged(dataset, 4).runs == 1
    assert figures_of(dataset) == once.to_json()
    assert sums_by_the_documents(dataset)[2] == BEDS * RUNS


def test_readers_meanwhile_see_each_row_once(dataset: Path, figures: bytes) -> None:
    """The report never fails. The view may find that a file has gone, which is an error, never other figures."""
    sums = sums_by_the_documents(dataset)
    process, reads, errors, mixed = started(dataset), 0, 0, 0
    while process.poll() is None:
        assert figures_of(dataset) == figures
        for _ in range(5):
            try:
                assert sums_by_the_documents(dataset) == sums
                reads += 1
            except duckdb.IOException:
                errors += 1
            mixed += bool(list(dataset.glob("verdicts/*/merged-*")) and list(dataset.glob("verdicts/*/testbed=*")))
    assert process.returncode == 0
    assert mixed > 1, "they read while both kinds of files were there"
    assert reads > errors
    assert figures_of(dataset) == figures


# It renames a draft for each file: kill in the first table, in the last (trials), in the next three runs. It removes
# files (one of a draft for each file, then the runs' own): kill at the first of a run, at one of the trials, at one of
# another table. Then it removes empty folders.
@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("replace", 1),
        pytest.param("replace", TABLES, marks=pytest.mark.long),
        ("replace", TABLES + 2),
        pytest.param("unlink", BEDS * TABLES + 1, marks=pytest.mark.long),
        ("unlink", BEDS * TABLES + 7),
        pytest.param("unlink", BEDS * TABLES + 60, marks=pytest.mark.long),
        ("rmdir", 20),
    ],
)
def test_a_compaction_that_is_killed_loses_nothing(dataset: Path, figures: bytes, name: str, number: int) -> None:
    assert started(dataset, KILL.format(name=name, number=number)).wait() == -9
    assert len(parquet_files(dataset)) >= BEDS * TABLES
    assert figures_of(dataset) == figures
    sums = sums_by_the_documents(dataset)
    assert merged(dataset, 4).files_after <= BEDS * TABLES
    assert figures_of(dataset) == figures
    assert sums_by_the_documents(dataset) == sums
    assert not list(dataset.rglob("*.partial*"))
    assert not list(dataset.rglob("testbed=*"))


def test_a_merged_run_is_in_the_dataset(tmp_path: Path) -> None:
    """It is not added a second time."""
    run, data = make_run(tmp_path, Truth({"nginx": 0.9})), tmp_path / "data"
    files = partition(run, data, "spring", "one")
    compact(data, "spring", MEMORY_MB)
    assert has_run(data, "spring", "one", run)
    assert not has_run(data, "spring", "two", run)
    add_run(run, data, "spring", "one")
    assert not any(file.exists() for file in files)


def test_a_run_is_written_where_a_compaction_just_removed_the_empty_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, data, original, removed = (
        make_run(tmp_path, Truth({"nginx": 0.9})),
        tmp_path / "data",
        _WRITERS["trials"],
        list[Path](),
    )

    def write(loaded: Run, analysis: RunAnalysis, path: Path) -> None:
        if not removed:
            removed.append(path.parent)
            path.parent.rmdir()
        original(loaded, analysis, path)

    monkeypatch.setitem(_WRITERS, "trials", write)
    assert all(file.exists() for file in partition(run, data, "spring", "one"))
    assert removed


def test_what_cannot_be_merged_is_reported(dataset: Path, figures: bytes) -> None:
    with pytest.raises(LoadError, match=r"data: .*campaign autumn .*--campaign"):
        compact(dataset, "autumn", MEMORY_MB)
    file = next((dataset / "effects").rglob("run-00003-2.parquet"))
    content = file.read_bytes()
    file.unlink()
    with pytest.raises(LoadError, match=r"trials/.*/run-00003-2\.parquet .*table effects; "):
        merged(dataset)
    file.write_bytes(content)
    assert figures_of(dataset) == figures


def test_one_compaction_at_a_time(dataset: Path) -> None:
    with (dataset / f".{CAMPAIGN}.lock").open("a") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        with pytest.raises(UserError, match=f"another process .*{CAMPAIGN}; wait"):
            merged(dataset)
    assert merged(dataset).runs == BEDS * RUNS


def test_the_command(dataset: Path) -> None:
    runner = CliRunner()
    words = ["partition", "--output", str(dataset), "--campaign", CAMPAIGN]
    assert "no run given" in str(runner.invoke(app, words).exception)
    done = json.loads(runner.invoke(app, [*words, "--compact", "--json"]).stdout)
    assert done["compaction"] == {
        "runs": BEDS * RUNS, "files_before": BEDS * RUNS * TABLES, "files_after": TABLES,
    }  # fmt: skip

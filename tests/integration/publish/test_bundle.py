"""A bundle validates, agrees with itself and with its run, is the same bytes each time, and is never half there."""

import json
import math
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import frictionless
import numpy as np
import pandas as pd
import pytest
import python_calamine
import yaml

from tests.support.committed_run import DEMO
from tests.support.published_run import claim, make_published
from tests.support.synthetic_run import Row, Truth, closed_load, failed_trial, make_run, rate_load
from vmtoll.analysis.run import load_run
from vmtoll.analysis.schema import FOLDER, names
from vmtoll.analysis.verdict import analyse
from vmtoll.model.errors import LoadError
from vmtoll.model.finding import Code
from vmtoll.publish.bundle import publish
from vmtoll.publish.intervals import recompute
from vmtoll.publish.package import LARGE_TABLES, TABLES
from vmtoll.publish.schema import generated_files
from vmtoll.publish.seal import verify
from vmtoll.publish.tables import TRIAL
from vmtoll.report.tables import numbers
from vmtoll.report.words import sentence
from vmtoll.trial import observation

PROJECT = Path(__file__).parents[3]
PUBLISH = """
import os, signal, sys
from pathlib import Path
from vmtoll.publish.bundle import publish
os.umask(int(sys.argv[4], 8))
def say(message):
    if message == sys.argv[3]:
        os.kill(os.getpid(), signal.SIGKILL)
publish(Path(sys.argv[1]), Path(sys.argv[2]), ["A. Author"], say)
"""


def publish_in_a_child(
    run_dir: Path, output: Path, *, die_at: str = "", umask: str = "022", **environment: str
) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-c", PUBLISH, str(run_dir), str(output), die_at, umask]
    return subprocess.run(words, cwd=PROJECT, env=os.environ | environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real run, the committed one."""
    return publish(DEMO, tmp_path_factory.mktemp("real") / "bundle", ["A. Author"])


@pytest.fixture(scope="module")
def synthetic(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `run` and its `bundle`."""

    def change(row: Row) -> list[Row]:
        return [failed_trial(row, Code.TOOL_FAILED, "killed")] if row["order"] == 2 else [row]

    folder = tmp_path_factory.mktemp("synthetic")
    run_dir = make_run(folder, Truth(histograms=True, change=change, loads=(closed_load(), rate_load(2000)))).rename(
        folder / "run"
    )
    publish(run_dir, folder / "bundle")
    return folder


@pytest.fixture
def copy(synthetic: Path, tmp_path: Path) -> Path:
    """A bundle to spoil."""
    return shutil.copytree(synthetic / "bundle", tmp_path / "bundle")


def _package(bundle: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((bundle / "datapackage.json").read_text(encoding="utf-8"))
    return content


def test_the_package_validates_without_a_network(bundle: Path) -> None:
    words = [sys.executable, "-m", "frictionless", "validate", str(bundle / "datapackage.json"), "--json"]
    if os.geteuid() == 0:
        words = ["unshare", "--net", *words]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    report = json.loads(done.stdout)
    assert {task["name"] for task in report["tasks"]} == {
        *TABLES, *LARGE_TABLES, "records", "tables", "run", "hosts", "intervals"
    }  # fmt: skip


def test_every_column_has_a_description(bundle: Path) -> None:
    described = [r for r in _package(bundle)["resources"] if "schema" in r]
    assert len(described) == len(TABLES) + len(LARGE_TABLES)
    for resource in described:
        for field in resource["schema"]["fields"]:
            assert all(field[key] for key in ("name", "type", "unit", "description", "constraints")), field


def test_a_run_with_claims_is_published(tmp_path: Path) -> None:
    """Its claims name columns, which are no metrics of verdicts."""
    run = make_published(tmp_path / "run", Truth({"nginx": 0.5, "lighttpd": 0.5}), [claim(), claim(at_least=1.0)])
    bundle = publish(run.path, tmp_path / "bundle", ["A. Author"])
    rows = pd.read_csv(bundle / "claims.csv")
    assert list(rows.metric) == ["throughput_rps", "throughput_rps"]
    assert (rows.low < rows.value).all() and (rows.value < rows.high).all()


def test_the_large_tables_keep_their_schemas(bundle: Path, copy: Path) -> None:
    for name, folder in (("samples", bundle), ("histograms", bundle), ("seconds", copy)):
        (resource,) = [r for r in _package(folder)["resources"] if r["name"] == name]
        rows = duckdb.read_parquet(str(folder / resource["path"])).limit(400)
        schema = frictionless.Schema.from_descriptor(resource["schema"] | {"foreignKeys": []})
        lines = [rows.columns, *map(list, rows.fetchall())]
        report = frictionless.Resource(data=lines, schema=schema).validate()
        assert report.valid, report.to_summary()
        assert report.tasks[0].stats["rows"] == len(lines) - 1 > 300


def test_the_spreadsheet_holds_the_csv_tables(bundle: Path) -> None:
    book = python_calamine.CalamineWorkbook.from_path(str(bundle / "tables.ods"))
    assert book.sheet_names == list(TABLES)
    for name in TABLES:
        heading, *rows = book.get_sheet_by_name(name).to_python()
        written = pd.read_csv(bundle / f"{name}.csv", dtype=str, keep_default_na=False)
        assert heading == list(written.columns)
        assert len(rows) == len(written)
        assert bool(rows) == (name != "claims"), "this experiment repeats no published one"
        for row, texts in zip(rows, written.itertuples(index=False), strict=True):
            for cell, text in zip(row, texts, strict=True):
                assert (cell == float(text)) if isinstance(cell, float) else (cell == text)


def test_libreoffice_opens_the_spreadsheet(bundle: Path, tmp_path: Path) -> None:
    office = shutil.which("soffice")
    if office is None:
        pytest.skip("LibreOffice is not installed")
    every_sheet = "csv:Text - txt - csv (StarCalc):44,34,76,1,,0,false,true,false,false,false,-1"
    words = [office, f"-env:UserInstallation=file://{tmp_path}/profile", "--headless", "--convert-to", every_sheet]
    done = subprocess.run([*words, "--outdir", tmp_path, bundle / "tables.ods"], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    for name in TABLES:
        files = (tmp_path / f"tables-{name}.csv", bundle / f"{name}.csv")
        opened, written = (pd.read_csv(file, keep_default_na=False, na_values=[""]) for file in files)
        pd.testing.assert_frame_equal(opened, written, check_dtype=False, rtol=1e-14)  # it shows 15 digits


def test_the_trials_are_those_of_the_run(bundle: Path) -> None:
    published, run = load_run(bundle), load_run(DEMO)
    objects = ["record", "arm", "scenario"]
    pd.testing.assert_frame_equal(published.frame.drop(columns=objects), run.frame.drop(columns=objects))
    theirs, ours = dict(vars(published.manifest)), dict(vars(run.manifest))
    scrubbed, disclosed = theirs.pop("disclosure"), ours.pop("disclosure")
    assert theirs == ours
    assert scrubbed.operator == "A. Author"
    assert sorted(map(str, scrubbed.machines.values())) == sorted(map(str, disclosed.machines.values()))
    analysis = analyse(run)
    assert analyse(published).comparisons == analysis.comparisons
    verdicts = pd.read_csv(bundle / "verdicts.csv")
    applying = [v for comparison in analysis.comparisons for v in comparison.verdicts.values() if v.applies]
    assert len(verdicts) == len(applying)
    assert verdicts["kind"].tolist() == [verdict.kind.value for verdict in applying]
    ratios = [verdict.estimate.value if verdict.estimate else math.nan for verdict in applying]
    assert verdicts["ratio"].tolist() == pytest.approx(ratios, nan_ok=True)


def test_a_reader_recomputes_every_interval(bundle: Path) -> None:
    """By a program in the bundle, which imports nothing of vmtoll."""
    program = bundle / "intervals.py"
    assert "vmtoll" not in program.read_text()
    done = subprocess.run([sys.executable, "-I", program, bundle], capture_output=True, text=True, check=True)
    assert len(done.stdout.splitlines()) > 10
    verdicts = pd.read_csv(bundle / "verdicts.csv").dropna(subset=["low"])
    recomputed = [(low, high) for _, low, high in recompute(bundle)]
    assert np.array(recomputed) == pytest.approx(verdicts[["low", "high"]].to_numpy(), rel=1e-9)
    assert len(recomputed) > 10


def test_the_table_is_an_export_of_the_records(bundle: Path) -> None:
    records = load_run(bundle).records
    table = pd.read_csv(bundle / "trials.csv")
    assert len(table) == len(records) > 0
    assert table["validity"].tolist() == [record.validity.value for record in records]
    assert [set(text.split()) for text in table["findings"].fillna("")] == [
        {f"{f.code}@crosscheck" if f.role == "crosscheck" else f.code.value for f in record.findings}
        for record in records
    ]


def test_the_schemas_that_follow_from_the_model_are_up_to_date() -> None:
    for name, content in generated_files().items():
        assert (FOLDER / name).read_bytes() == content, f"{name}: regenerate it, python -m vmtoll.publish.schema"


def test_percentiles_and_counts_agree(bundle: Path) -> None:
    """Nearest rank over the counts gives the percentile; all requests that were timed are there."""
    trials = pd.read_csv(bundle / "trials.csv").set_index(["block", "order", "attempt"])
    table = pd.read_csv(bundle / "percentiles.csv")
    counts = duckdb.execute(f"SELECT * FROM read_parquet('{bundle / 'histograms.parquet'}')").df()
    for key, buckets in counts.groupby(["block", "order", "attempt"]):
        assert buckets["count"].sum() == trials.at[key, "requests"]
        rows = table[(table[["block", "order", "attempt"]] == key).all(axis=1)]
        for percentile, latency_us in zip(rows["percentile"], rows["latency_us"], strict=True):
            below = buckets[buckets["latency_us"] <= latency_us]["count"].sum() / buckets["count"].sum()
            under = buckets[buckets["latency_us"] < latency_us]["count"].sum() / buckets["count"].sum()
            assert under < percentile / 100 + 1e-9
            assert below >= percentile / 100 - 0.5 / buckets["count"].sum()  # HdrHistogram rounds the rank
    timed = trials[trials["load_kind"] == "share"]  # siege, the tool of the others, logs no requests
    assert set(map(tuple, table[["block", "order", "attempt"]].to_numpy())) == set(timed.index)
    assert counts.groupby(["block", "order", "attempt"]).ngroups == len(timed) > 0
    for _, row in table[table["percentile"] < 100].iterrows():  # none that is just the largest value
        requests = trials.at[(row["block"], row["order"], row["attempt"]), "requests"]
        assert requests * (100 - row["percentile"]) >= 100 - 1e-6


def test_seconds_and_histograms_count_the_same_requests(copy: Path) -> None:
    found, whole = (
        duckdb.execute(
            f"SELECT block, \"order\", sum(count) FROM read_parquet('{copy / name}') GROUP BY ALL ORDER BY ALL"
        ).fetchall()
        for name in ("seconds.parquet", "histograms.parquet")
    )
    assert found == whole
    assert len(found) > 10


def test_open_loops_are_distinguished_from_closed_ones(copy: Path) -> None:
    trials = pd.read_csv(copy / "trials.csv")
    table = pd.read_csv(copy / "percentiles.csv").merge(trials, on=["run_id", "block", "order", "attempt"])
    kinds = dict(zip(table["load_kind"], table["latency"], strict=True))
    assert kinds == {"closed": "service-time", "rate": "response-time"}
    verdicts = pd.read_csv(copy / "verdicts.csv").groupby("load_kind")["metric"].agg(set)
    assert verdicts["closed"] == {"throughput", "latency_p99", "cpu", "host_cpu"}
    assert verdicts["rate"] == {"tail", "cpu", "host_cpu"}


def test_every_figure_has_a_column() -> None:
    assert set(numbers(load_run(DEMO)).columns) - {"label", "arm"} <= set(names("summaries"))
    assert set(observation.COLUMNS) | set(TRIAL) == set(names("samples"))


def test_the_bundle_can_be_cited(bundle: Path, copy: Path) -> None:
    citation = yaml.safe_load((bundle / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["cff-version"] == "1.2.0"
    assert citation["authors"] == [{"family-names": "Author", "given-names": "A."}]
    assert citation["license"] == _package(bundle)["licenses"][0]["name"] == "CC-BY-4.0"
    assert citation["version"] == DEMO.name
    assert citation["date-released"] == f"{DEMO.name[:4]}-{DEMO.name[4:6]}-{DEMO.name[6:8]}"
    assert "CC-BY-4.0" in (bundle / "LICENSE").read_text(encoding="utf-8")
    assert yaml.safe_load((copy / "CITATION.cff").read_text(encoding="utf-8"))["authors"] == [{"name": "anonymous"}]


def test_the_readme_has_question_method_and_emulation(bundle: Path) -> None:
    text = (bundle / "README.md").read_text(encoding="utf-8")
    run = json.loads((bundle / "run.json").read_text(encoding="utf-8"))
    assert run["experiment"]["question"] in text
    assert sentence(analyse(load_run(bundle))) in text
    assert "each of 8 blocks" in text
    assert "Emulation (TCG), not " in text
    for file in bundle.iterdir():
        assert f"]({file.name})" in text or file.name in ("README.md", "LICENSE")


def test_the_same_run_gives_the_same_bytes(bundle: Path, tmp_path: Path) -> None:
    strange = {"TZ": "Pacific/Kiritimati", "LC_ALL": "C", "LANG": "tr_TR.UTF-8", "PYTHONHASHSEED": "7"}
    again = tmp_path / "elsewhere" / "again"
    done = publish_in_a_child(DEMO, again, umask="077", **strange)
    assert done.returncode == 0, done.stderr
    assert sorted(f.name for f in bundle.iterdir()) == sorted(f.name for f in again.iterdir())
    for file in bundle.iterdir():
        assert file.read_bytes() == (again / file.name).read_bytes(), file.name


@pytest.mark.parametrize("moment", ["spreadsheet", "checking every row against its schema"])
def test_a_killed_publication_leaves_nothing_that_looks_finished(tmp_path: Path, moment: str) -> None:
    run_dir = make_run(tmp_path, Truth(blocks=2))
    output = tmp_path / "bundle"
    done = publish_in_a_child(run_dir, output, die_at=moment)
    assert done.returncode == -signal.SIGKILL
    assert not output.exists()
    with pytest.raises(LoadError, match="SHA256SUMS"):
        verify(tmp_path / ".bundle.partial")
    verify(publish(run_dir, output))
    assert not (tmp_path / ".bundle.partial").exists()


def test_only_a_bundle_is_replaced(synthetic: Path, copy: Path, tmp_path: Path) -> None:
    run_dir = synthetic / "run"
    before = (copy / "SHA256SUMS").read_bytes()
    publish(run_dir, copy)
    assert (copy / "SHA256SUMS").read_bytes() == before
    (copy / "my notes.txt").write_text("mine")
    with pytest.raises(LoadError, match=r"my notes\.txt: .*--output, or"):
        publish(run_dir, copy)
    assert (copy / "my notes.txt").read_text() == "mine"
    with pytest.raises(LoadError, match="bundle already; "):
        publish(copy, tmp_path / "again")
    with pytest.raises(LoadError, match=r"not a bundle; .*--output"):
        publish(run_dir, run_dir)
    (tmp_path / "file").write_text("mine")
    with pytest.raises(LoadError, match=r"not a bundle; .*--output"):
        publish(run_dir, tmp_path / "file")
    (tmp_path / "empty").mkdir()
    verify(publish(run_dir, tmp_path / "empty"))


def test_an_unfinished_run_is_not_published(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match=r"run\.json: status is running"):
        publish(make_run(tmp_path, Truth(blocks=2, status="running")), tmp_path / "bundle")
    assert not (tmp_path / "bundle").exists()


def test_an_undescribed_column_is_not_published(tmp_path: Path) -> None:
    run_dir = make_run(tmp_path, Truth(blocks=1))
    (run_dir / "samples").mkdir()
    (run_dir / "samples" / "b001-o001-a1.csv").write_text("time_s,host,role,mood_pct\n1.0,client,client,3\n")
    with pytest.raises(LoadError, match=r"b001-o001-a1\.csv: column mood_pct .*results/schema/samples\.json"):
        publish(run_dir, tmp_path / "bundle")


def test_sha256sum_agrees(copy: Path) -> None:
    done = subprocess.run(
        ["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=copy, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stdout


def _tamper(bundle: Path) -> None:
    content = bytearray((bundle / "trials.csv").read_bytes())
    content[-5] ^= 1
    (bundle / "trials.csv").write_bytes(content)


def _truncate(bundle: Path) -> None:
    content = (bundle / "histograms.parquet").read_bytes()
    (bundle / "histograms.parquet").write_bytes(content[:-1])


def _swap(bundle: Path) -> None:
    (bundle / "run.json").rename(bundle.parent / "run.json")
    (bundle / "run.json").symlink_to(bundle.parent / "run.json")


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (_tamper, r"trials\.csv: changed since it was published"),
        (_truncate, r"histograms\.parquet: changed since it was published"),
        (lambda b: (b / "hosts.json").unlink(), r"hosts\.json: missing"),
        (lambda b: (b / "extra.csv").write_text("x\n"), r"extra\.csv: not a file of this bundle"),
        (lambda b: (b / "raw").mkdir(), r"raw: not a file of this bundle"),
        (_swap, r"run\.json: not a file of this bundle"),
        (lambda b: (b / "SHA256SUMS").unlink(), r"SHA256SUMS: No such file or directory; give a folder"),
        (lambda b: (b / "SHA256SUMS").write_text(""), r"SHA256SUMS: empty"),
        (lambda b: (b / "SHA256SUMS").write_text("0" * 64 + "  ../outside\n"), r"SHA256SUMS: line 1 is not a checksum"),
    ],
)  # fmt: skip
def test_a_spoilt_bundle_is_refused_by_name(copy: Path, spoil: Any, said: str) -> None:
    verify(copy)
    spoil(copy)
    with pytest.raises(LoadError, match=said):
        verify(copy)

"""`vmtoll convert`: stored runs by folder or all at once; bundles of an older schema are read as they are."""

import json
import shutil
from pathlib import Path

from tests.support.committed_run import DEMO
from tests.support.older_schema import as_schema_2
from tests.support.program import vmtoll
from vmtoll.analysis.run import load_run
from vmtoll.publish.bundle import open_run
from vmtoll.publish.seal import seal


def older_copy(folder: Path) -> Path:
    shutil.copytree(DEMO, folder, ignore=shutil.ignore_patterns("raw", "*.html", "*.ods"))
    as_schema_2(folder)
    return folder


def test_a_folder_of_results_is_converted(tmp_path: Path) -> None:
    run = older_copy(tmp_path / "results/demo" / DEMO.name)
    refused = vmtoll("show", run)
    assert refused.returncode == 2
    assert f"run `vmtoll convert {run}`" in refused.stderr
    done = vmtoll("convert", tmp_path / "results")
    assert (done.returncode, done.stdout) == (0, f"{run}: schema 3, was 2\n"), done.stderr
    assert load_run(run).records == load_run(DEMO).records
    assert (run / "trials.csv").read_bytes() == (DEMO / "trials.csv").read_bytes()
    assert vmtoll("show", run).stdout == vmtoll("show", DEMO).stdout
    again = vmtoll("convert", run, "--json")
    assert json.loads(again.stdout) == {"schema": 3, "schema_before": {str(run): 3}}


def test_a_folder_without_runs_is_refused(tmp_path: Path) -> None:
    refused = vmtoll("convert", tmp_path)
    assert refused.returncode == 2
    assert (
        refused.stderr.startswith(f"vmtoll: {tmp_path}: no run ") and "results/<experiment>/<run-id>" in refused.stderr
    )
    assert refused.stderr.count("\n") == 1


def test_a_sealed_bundle_of_an_older_schema_is_read(tmp_path: Path) -> None:
    bundle = tmp_path / "bundle"
    assert vmtoll("publish", DEMO, "--output", bundle, "--author", "Ada Lovelace").returncode == 0
    records = open_run(bundle).records
    as_schema_2(bundle)
    seal(bundle)
    assert open_run(bundle).records == records
    before = (bundle / "trials.jsonl").read_bytes()
    assert vmtoll("convert", bundle).stdout == "", "a bundle is sealed"
    assert (bundle / "trials.jsonl").read_bytes() == before
    copied = vmtoll("report", bundle, "--output", tmp_path / "copy")
    assert copied.returncode == 0, copied.stderr

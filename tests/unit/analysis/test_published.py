"""results/published/: a data package that validates offline, whose columns all say what they mean."""

from __future__ import annotations

import json
from pathlib import Path

import frictionless
import pandas as pd

FOLDER = Path(__file__).parents[3] / "results" / "published"
PACKAGE = json.loads((FOLDER / "datapackage.json").read_text(encoding="utf-8"))
FIGURES = pd.read_csv(FOLDER / "figures.csv", dtype=str, keep_default_na=False)


def test_the_package_validates() -> None:
    report = frictionless.validate(str(FOLDER / "datapackage.json"))
    assert report.valid, report.to_summary()
    assert report.stats["tasks"] == 1


def test_a_figure_that_is_no_number_is_detected(tmp_path: Path) -> None:
    text = (FOLDER / "figures.csv").read_text(encoding="utf-8").replace(",188781,", ",many,")
    (tmp_path / "figures.csv").write_text(text, encoding="utf-8")
    (tmp_path / "datapackage.json").write_text(json.dumps(PACKAGE), encoding="utf-8")
    assert not frictionless.validate(str(tmp_path / "datapackage.json")).valid


def test_every_column_has_a_description() -> None:
    (resource,) = PACKAGE["resources"]
    for field in resource["schema"]["fields"]:
        assert {"name", "type", "unit", "description", "constraints"} <= set(field), field
        assert "required" in field["constraints"], field


def test_every_source_is_named() -> None:
    assert set(FIGURES["source"]) == {source["title"] for source in PACKAGE["sources"]}


def test_counts_of_siege_in_2009_are_consistent() -> None:
    """Transactions over elapsed time is the transaction rate, to the 10 ms in which siege counts."""
    runs = FIGURES[(FIGURES["experiment"] == "metal-vs-kvm-2009") & (FIGURES["tool"] == "siege")]
    checked = 0
    for _, run in runs.groupby(["server", "environment"]):
        figures = dict(zip(run["metric"], run["value"].astype(float), strict=True))
        if {"transactions", "elapsed", "transaction_rate"} <= set(figures):
            rate = figures["transactions"] / figures["elapsed"]
            assert abs(rate - figures["transaction_rate"]) <= 0.01 * rate / figures["elapsed"] + 0.01
            checked += 1
    assert checked == 2

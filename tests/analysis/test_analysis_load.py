"""A run that breaks the contract is refused with the file and the column; what counts is the last attempt."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from synthetic_run import Row, Truth, failed, make_run

from analysis.load import LoadError, load_run


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    return make_run(tmp_path, Truth(blocks=2))


def _edit(run_dir: Path, **cells: str) -> None:
    path = run_dir / "trials.csv"
    frame = pd.read_csv(path, dtype=str, keep_default_na=False)
    for column, value in cells.items():
        frame.loc[1, column] = value
    frame.to_csv(path, index=False)


def test_reads_every_attempt_and_counts_the_last(tmp_path: Path) -> None:
    def change(row: Row) -> list[Row]:
        return [failed(row, "host-lost: gone"), row | {"attempt": 2}] if row["block"] == 1 else [row]

    run = load_run(make_run(tmp_path, Truth(blocks=2, change=change)))
    assert (len(run.attempts), len(run.trials)) == (9, 6)
    assert (run.trials["verdict"] == "valid").all()
    assert run.environments == ["metal", "metal-b", "kvm-default"]
    assert run.attempts["codes"].iloc[0] == ("host-lost",)


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        ({"throughput_rps": "fast"}, ["line 3", "throughput_rps", "'fast' is not a number"]),
        ({"throughput_rps": "inf"}, ["line 3", "throughput_rps"]),
        ({"block": "1.5"}, ["line 3", "block", "whole number"]),
        ({"block": ""}, ["line 3", "block", "empty"]),
        ({"successful": "13", "requests": "12"}, ["line 3", "column successful: 13, more than the 12 of requests"]),
        ({"twin_failed": "7", "twin_requests": "6"}, ["line 3", "column twin_failed: 7, more than the 6 of"]),
        ({"verdict": "fine"}, ["line 3", "verdict", "valid, suspect, invalid"]),
    ],
)
def test_names_file_line_and_column(run_dir: Path, cells: dict[str, str], words: list[str]) -> None:
    _edit(run_dir, **cells)
    with pytest.raises(LoadError) as caught:
        load_run(run_dir)
    for word in ["trials.csv", *words]:
        assert word in str(caught.value)


def test_names_missing_columns(run_dir: Path) -> None:
    path = run_dir / "trials.csv"
    pd.read_csv(path, dtype=str).drop(columns=["tool", "server"]).to_csv(path, index=False)
    with pytest.raises(LoadError, match=r"trials\.csv: missing column\(s\): server, tool"):
        load_run(run_dir)


def test_a_run_older_than_a_column_has_no_figures_for_it(run_dir: Path) -> None:
    path = run_dir / "trials.csv"
    pd.read_csv(path, dtype=str).drop(columns=["steal_pct", "twin"]).to_csv(path, index=False)
    trials = load_run(run_dir).trials
    assert trials["steal_pct"].isna().all()
    assert (trials["twin"] == "").all()


def test_a_trial_that_stands_twice(run_dir: Path) -> None:
    path = run_dir / "trials.csv"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines, lines[-1]]) + "\n")
    with pytest.raises(LoadError, match="same attempt of a trial stands twice"):
        load_run(run_dir)


@pytest.mark.parametrize("name", ["run.json", "hosts.json", "trials.csv"])
def test_names_a_missing_file(run_dir: Path, name: str) -> None:
    (run_dir / name).unlink()
    with pytest.raises(LoadError, match=f"{name}: no such file"):
        load_run(run_dir)


def test_refuses_another_schema_and_missing_keys(run_dir: Path) -> None:
    path = run_dir / "run.json"
    meta = json.loads(path.read_text())
    path.write_text(json.dumps(meta | {"schema": 2}))
    with pytest.raises(LoadError, match=r"run\.json: schema is 2, this program reads 1"):
        load_run(run_dir)
    del meta["accelerators"]
    path.write_text(json.dumps(meta))
    with pytest.raises(LoadError, match=r"run\.json: missing key\(s\): accelerators"):
        load_run(run_dir)
    path.write_text("[")
    with pytest.raises(LoadError, match=r"run\.json"):
        load_run(run_dir)

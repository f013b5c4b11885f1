"""`vmtoll demo --json`: the files of the run, for programs. The lab and the measurement are left out."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.synthetic_run import Truth, make_run
from vmtoll.commands import demo as command
from vmtoll.lab import embedded


@pytest.fixture
def lab_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The steps that need a lab, as they are called; the measurement gives a synthetic run."""
    steps: list[str] = []
    run = make_run(tmp_path / "run", Truth(blocks=2))

    def measured(name: str, inventory: Path | None, results: Path) -> Path:
        steps.append(f"run {name}")
        return run

    def step(name: str) -> Any:
        return lambda *_, **__: steps.append(name)

    for name in ("require_root", "up"):
        monkeypatch.setattr(embedded, name, step(name))
    monkeypatch.setattr(command, "run_one", measured)
    return steps


def test_stdout_is_one_json_object_that_names_the_files(
    tmp_path: Path, lab_steps: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    command.demo(results=tmp_path, as_json=True)
    assert lab_steps == ["require_root", "up", "run demo"]
    written = json.loads(capsys.readouterr().out)
    assert list(written) == ["run", "analysis", "report", "table", "spreadsheet", "answer"]
    assert all(Path(written[key]).exists() for key in ("run", "analysis", "report", "table", "spreadsheet"))
    assert written["answer"]


def test_stdout_is_the_table_and_then_the_files(
    tmp_path: Path, lab_steps: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    command.demo(results=tmp_path)
    *table, empty, report, files = capsys.readouterr().out.splitlines()
    assert lab_steps[-1] == "run demo"
    assert re.search(r"metal\* +guest  ratio \(interval\) +verdict$", "\n".join(table), re.MULTILINE)
    assert empty == ""
    assert report.startswith("report: ") and files.startswith("table:  ")
    assert max(map(len, table)) <= 80

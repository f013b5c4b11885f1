"""A second program, in R, written from docs/statistics.md alone by somebody who had not read the engine, decides the
same; a constant that is changed in either program shows.
"""

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from benchmarks.second_opinion.cases import Page, cases
from benchmarks.second_opinion.compare import differences
from vmtoll.analysis import judge
from vmtoll.paths import PROJECT
from vmtoll.statistics import series

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(shutil.which("Rscript") is None, reason="R with jsonlite is not installed"),
]

PROGRAM = PROJECT / "benchmarks" / "second_opinion" / "second_opinion.R"
PAGES = range(40)  # for the changed programs


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    parent = tmp_path_factory.mktemp("second-opinion")
    for kind in ("cases", "answers", "few"):
        (parent / kind).mkdir()
    for name, case, answer in cases():
        (parent / "cases" / f"{name}.json").write_text(json.dumps(case), encoding="utf-8")
        (parent / "answers" / f"{name}.json").write_text(json.dumps(answer), encoding="utf-8")
    for number in PAGES:
        name = f"{Page(number).case['run_id']}.json"
        shutil.copy(parent / "cases" / name, parent / "few" / name)
    return parent


def opinion(program: Path, of: Path, output: Path) -> dict[str, object]:
    subprocess.run(["Rscript", str(program), str(of), str(output)], check=True, timeout=600)
    return {file.name: json.loads(file.read_text(encoding="utf-8")) for file in output.iterdir()}


def differing(folder: Path, others: dict[str, object]) -> int:
    answers = {name: json.loads((folder / "answers" / name).read_text(encoding="utf-8")) for name in others}
    return sum(len(differences(answers[name], other)) for name, other in others.items())


def test_both_programs_decide_the_same(folder: Path, tmp_path: Path) -> None:
    others = opinion(PROGRAM, folder / "cases", tmp_path / "all")
    assert len(others) == len(list((folder / "answers").iterdir())) > len(PAGES)
    assert differing(folder, others) == 0


@pytest.mark.parametrize(
    ("constant", "changed"),
    [
        ("ALPHA <- 0.05", "ALPHA <- 0.051"),
        ("PRIMARY_SHARE <- 0.5", "PRIMARY_SHARE <- 0.51"),
        ("PRIOR <- c(rep(1, 9), 2) / 11", "PRIOR <- rep(1, 10) / 10"),
        ("LEAST_DEVIATION <- 0.002", "LEAST_DEVIATION <- 0.003"),
        ("equality = 6)", "equality = 7)"),
        ("UNKNOWN_AA <- log(4)", "UNKNOWN_AA <- log(5)"),
        ("POWER <- 0.8", "POWER <- 0.81"),
    ],
)
def test_a_changed_constant_of_the_second_program_shows(
    folder: Path, tmp_path: Path, constant: str, changed: str
) -> None:
    text = PROGRAM.read_text(encoding="utf-8")
    assert text.count(constant) == 1
    (tmp_path / "changed.R").write_text(text.replace(constant, changed), encoding="utf-8")
    assert differing(folder, opinion(tmp_path / "changed.R", folder / "few", tmp_path / "out")) > 0


@pytest.mark.parametrize(("name", "changed"), [("ALPHA", 0.051), ("UNKNOWN_NOISE", 5.0), ("POWER", 0.81)])
def test_a_changed_constant_of_the_engine_shows(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, changed: float
) -> None:
    monkeypatch.setattr(judge, name, changed)
    assert _pages_that_changed(folder) > 0


def test_another_prior_of_the_engine_shows(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series, "PRIOR", np.full(10, 0.1))
    assert _pages_that_changed(folder) > 0


def _pages_that_changed(folder: Path) -> int:
    """The simulated pages whose answer is no longer what both programs gave."""
    count = 0
    for page in map(Page, PAGES):
        before = json.loads((folder / "answers" / f"{page.case['run_id']}.json").read_text(encoding="utf-8"))
        count += bool(differences(before, page.answer()))
    return count

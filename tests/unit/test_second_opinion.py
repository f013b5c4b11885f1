"""The cases of the second opinion hold all that the engine needs: it answers the same from them as from the trials."""

import json
import math
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.second_opinion.cases import PAGES, Json, Page, case_and_answer, families, judge_case
from tests.support.committed_run import committed_runs
from vmtoll.analysis.run import load_run
from vmtoll.analysis.verdict import analyse
from vmtoll.model.analysis import to_json

SAME = ("kind", "because", "by_every_block", "also_different", "blocks_needed", "blocks", "boots")
RUNS = ("demo", "lua-2008", "tuning-steps")


def members(answer: Json) -> list[Json]:
    return [row for rows, _ in families(answer) for _, row in rows]


@pytest.mark.parametrize("folder", [run for run in committed_runs() if run.parent.name in RUNS], ids=str)
def test_the_case_of_a_run_gives_the_verdicts_of_its_trials(folder: Path) -> None:
    case, answer = case_and_answer(json.loads(to_json(analyse(load_run(folder)))))
    expected, found = members(answer), judge_case(case)
    assert len(expected) == len(found)
    for row, again in zip(expected, found, strict=True):
        assert [row.get(name) for name in SAME] == [again.get(name) for name in SAME]
        for name in ("estimate", "blocks_range"):
            ends = [{end: math.log(value) for end, value in (r.get(name) or {}).items() if value} for r in (row, again)]
            assert ends[0] == pytest.approx(ends[1], abs=1e-9)
        assert row["tests"] == pytest.approx(again["tests"], rel=1e-6)


def test_a_case_has_no_result() -> None:
    folder = next(run for run in committed_runs() if run.parent.name == "demo")
    case, _ = case_and_answer(json.loads(to_json(analyse(load_run(folder)))))
    names = {name for row in members(case) for name in row}
    assert names <= {"effects", "margin", "noise_floor", "widened", "open_in_every_block", "tests"}
    assert {name for row in members(case) for name in row["tests"]} == {"share"}


def test_the_pages_have_what_they_are_for() -> None:
    cases = [Page(number).case for number in range(PAGES)]
    rows = [row for case in cases for row in members(case)]
    per_page = Counter(len(next(families(case))[0]) for case in cases)
    effects = [row["effects"] for row in rows]
    assert per_page[1] and per_page[200]
    assert any(len({e["boot"] for e in each}) > 2 for each in effects)
    assert any("low" in e and "mid" not in e for each in effects for e in each)  # the compared side lost the block
    assert any("high" in e and "mid" not in e for each in effects for e in each)
    assert any("first_low" in e for each in effects for e in each)
    assert any(len({e.get("mid") for e in each}) == 1 < len(each) for each in effects)  # exact
    assert any(each in effects[:index] for index, each in enumerate(effects) if len(each) > 5)  # ties
    assert {0.0, 1.0} < {row["tests"]["share"] for row in rows}
    assert any(case.get("tuning_steps") for case in cases)
    assert max(map(len, effects)) > 200

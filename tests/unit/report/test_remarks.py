"""Remarks on a run: the largest doubt first, one line a reason, five at most."""

from dataclasses import replace
from typing import Any

import pytest

from tests.support.synthetic_run import Truth, make_run
from vmtoll.analysis.run import Run, load_run
from vmtoll.analysis.verdict import analyse
from vmtoll.model.finding import Code
from vmtoll.model.note import FewBlocks
from vmtoll.model.verdict import Cause, Comparison, Doubt, Estimate, Kind, Verdict, VerdictReason
from vmtoll.report.words import MOST_REMARKS, remarks


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Comparison]:
    run = load_run(make_run(tmp_path_factory.mktemp("run"), Truth({"nginx": 0.5}, noise=0.001)))
    return run, analyse(run).comparisons[0]


def remarks_on(measured: tuple[Run, Comparison], *changes: dict[str, Any]) -> list[str]:
    """Remarks on rows that are the run's throughput with these changes."""
    run, comparison = measured
    clean: Verdict = replace(comparison.verdicts["throughput"], doubts=(), notes=(), estimate=Estimate(0.5, 0.49, 0.51))
    return remarks(run, [(comparison, replace(clean, **change)) for change in changes])


def test_what_explains_most_comes_first_and_once(measured: tuple[Run, Comparison]) -> None:
    steal, lost = Doubt(Code.STEAL, 1, 2, 1.05), Doubt(Cause.LOST, 0, 4, 1.3)
    lines = remarks_on(measured, {"doubts": (steal,)}, {"doubts": (replace(steal, size=1.02), lost)})
    assert lines == [
        "4 lost trials can explain 37.9% of a difference (nginx)",
        "steal (3 trials) can explain 7% of a difference (nginx)",
    ]


def test_what_explains_next_to_nothing_is_left_out(measured: tuple[Run, Comparison]) -> None:
    tiny, of_a_tiny_difference = Doubt(Code.STEAL, 1, 2, 1.006), Doubt(Code.STEAL, 1, 2, 1.001)
    assert remarks_on(measured, {"doubts": (tiny,)}) == []
    assert remarks_on(measured, {"doubts": (of_a_tiny_difference,), "estimate": Estimate(1.001)}) == []


def test_a_verdict_that_findings_keep_open_is_named(measured: tuple[Run, Comparison]) -> None:
    open_one = {"kind": Kind.UNDECIDED, "because": VerdictReason.FINDINGS, "doubts": (Doubt(Code.STEAL, 3, 3, 2.5),)}
    assert remarks_on(measured, open_one, {}) == [
        "steal (6 trials) can explain all of a difference (nginx)",
        "1 of 2 undecided: only findings and lost trials leave them open",
    ]


@pytest.mark.parametrize(
    ("because", "needed", "why"),
    [
        (VerdictReason.NO_LOOK_YET, None, "the run has had no look at them yet"),
        (VerdictReason.FEW_BLOCKS, None, "a verdict needs 3 blocks or more"),
        (VerdictReason.LIMIT, None, "the client or the link, not the server, set the figure"),
        (VerdictReason.NOISE, 4, "4 more blocks would show a difference of 2%"),
        (VerdictReason.NOISE, None, "these blocks differ too much from each other"),
    ],
)
def test_each_reason_to_be_undecided_has_a_line(
    measured: tuple[Run, Comparison], because: VerdictReason, needed: int | None, why: str
) -> None:
    change = {"kind": Kind.UNDECIDED, "because": because, "blocks_needed": needed}
    assert remarks_on(measured, change) == [f"1 of 1 undecided: {why}"]


def test_a_run_by_boots_needs_boots(measured: tuple[Run, Comparison]) -> None:
    change = {"kind": Kind.UNDECIDED, "because": VerdictReason.FEW_BLOCKS, "boots": 2}
    assert remarks_on(measured, change) == ["1 of 1 undecided: a verdict needs 3 boots or more"]


def test_at_most_five_lines_are_left(measured: tuple[Run, Comparison]) -> None:
    codes = (Code.STEAL, Code.BACKGROUND_CPU, Code.RETRANSMITS, Code.STALLED)
    few = FewBlocks(6)
    rows: list[dict[str, Any]] = [
        {"doubts": tuple(Doubt(code, 1, 1, 1.1) for code in codes), "notes": (few,)},
        {"kind": Kind.NOT_JUDGED, "because": VerdictReason.NO_FIGURE},
        {"kind": Kind.UNDECIDED, "because": VerdictReason.LIMIT},
    ]
    lines = remarks_on(measured, *rows)
    assert len(lines) == MOST_REMARKS
    assert [line.split()[0] for line in lines[:3]] == ["steal", "background-cpu", "retransmits"]
    assert lines[3].startswith("1 not judged: no block has a figure of both sides (nginx)")
    assert lines[4].startswith("1 of 3 undecided: ")

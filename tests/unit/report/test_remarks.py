"""Remarks on a run: the largest doubt first, one line a reason, five at most."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.snapshots import assert_snapshot
from tests.support.synthetic_run import Truth, make_run
from tests.unit.report.test_words import SNAPSHOTS
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


STEAL, LOST = Doubt(Code.STEAL, 1, 2, 1.05), Doubt(Cause.LOST, 0, 4, 1.3)
UNDECIDED = {"kind": Kind.UNDECIDED}
FINDINGS = UNDECIDED | {"because": VerdictReason.FINDINGS, "doubts": (Doubt(Code.STEAL, 3, 3, 2.5),)}
FEW = UNDECIDED | {"because": VerdictReason.FEW_BLOCKS}
NOISE = UNDECIDED | {"because": VerdictReason.NOISE}
DOUBTED = tuple(Doubt(code, 1, 1, 1.1) for code in (Code.STEAL, Code.BACKGROUND_CPU, Code.RETRANSMITS, Code.STALLED))
MANY: list[dict[str, Any]] = [
    {"doubts": DOUBTED, "notes": (FewBlocks(6),)},
    {"kind": Kind.NOT_JUDGED, "because": VerdictReason.NO_FIGURE},
    {"kind": Kind.UNDECIDED, "because": VerdictReason.LIMIT},
    {"doubts": (LOST,)},
    NOISE,
]
ROWS: dict[str, list[dict[str, Any]]] = {
    "what explains most comes first, and once": [{"doubts": (STEAL,)}, {"doubts": (replace(STEAL, size=1.02), LOST)}],
    "a verdict that findings keep open": [FINDINGS, {}],
    "undecided without a look": [UNDECIDED | {"because": VerdictReason.NO_LOOK_YET}],
    "undecided by few blocks": [FEW],
    "undecided by few boots": [FEW | {"boots": 2}],
    "undecided by a limit": [UNDECIDED | {"because": VerdictReason.LIMIT}],
    "undecided by noise, and more blocks would decide": [NOISE | {"blocks_needed": 4}],
    "undecided by noise": [NOISE],
    "five of many": MANY,
}  # fmt: skip


def test_the_remarks(measured: tuple[Run, Comparison], tmp_path: Path) -> None:
    said = {name: remarks_on(measured, *rows) for name, rows in ROWS.items()}
    names = ["kernel", "packages: libc6", "packages: ethtool"]
    undeclared = [{"fact": name, "values": {"metal": "1", "kvm-default": "2"}} for name in names]
    said["undeclared differences by kind"] = remarks(load_run(make_run(tmp_path, Truth(undeclared=undeclared))), [])
    assert_snapshot(SNAPSHOTS / "remarks.txt", {"Remarks": said})


def test_what_explains_next_to_nothing_is_left_out(measured: tuple[Run, Comparison]) -> None:
    tiny, of_a_tiny_difference = Doubt(Code.STEAL, 1, 2, 1.006), Doubt(Code.STEAL, 1, 2, 1.001)
    assert remarks_on(measured, {"doubts": (tiny,)}) == []
    assert remarks_on(measured, {"doubts": (of_a_tiny_difference,), "estimate": Estimate(1.001)}) == []


def test_at_most_five_lines_are_left(measured: tuple[Run, Comparison]) -> None:
    assert len(remarks_on(measured, *MANY)) == MOST_REMARKS

"""The shoot-out from its plan to its tables, with real processes: a plan of a few pages of a load of 1 ms."""

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest

from benchmarks.shootout import record, table
from benchmarks.shootout.plan import Kind, Plan, engine_digest, read_plan
from benchmarks.shootout.rules import RULES
from vmtoll.model.errors import UserError
from vmtoll.paths import PROJECT

Answer = TypeVar("Answer")
PLAN = Plan(
    seed=3, iterations=100_000, trial_ms=1.0, blocks=6, cpu=None, web_requests=100, web_blocks=3, truth_blocks=3,
    counts={Kind.EQUAL: 3, Kind.DISTURBED: 2, Kind.FIVE: 1, Kind.TEN: 1, Kind.WEB: 1, Kind.TRUTH: 1},
    engine=engine_digest(), written="2026-11-29T12:00:00Z", commit="0" * 40,
)  # fmt: skip


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shootout")
    PLAN.write(folder / "plan.json")
    assert record.record_all(PLAN, folder / "pages.jsonl.gz", say=lambda _: None)
    return folder


def test_every_page_of_the_plan_is_recorded_in_the_interleaved_order(recorded: Path) -> None:
    pages = record.read_pages(recorded / "pages.jsonl.gz")
    assert [(page.page, page.kind) for page in pages] == [(page.number, page.kind) for page in PLAN.pages()]
    for page in pages:
        width = len(set(page.sides))
        blocks = [page.sides[at : at + width] for at in range(0, len(page.sides), width)]
        assert len(blocks) == PLAN.blocks_of(page.kind)
        assert all(set(block) == set(page.sides) for block in blocks)
        assert all(block == before[::-1] for before, block in zip(blocks[::2], blocks[1::2], strict=False))
        assert len(page.values) == (10 if page.kind is Kind.TEN else 1)
        assert all(len(values) == len(page.sides) and min(values) > 0 for values in page.values.values())


def test_a_page_that_a_kill_cut_off_is_recorded_again_and_no_other(recorded: Path, tmp_path: Path) -> None:
    file, whole = tmp_path / "pages.jsonl.gz", (recorded / "pages.jsonl.gz").read_bytes()
    before = record.read_pages(recorded / "pages.jsonl.gz")
    file.write_bytes(whole[:-20])
    assert record.read_pages(file) == before[:-1]
    printed: list[str] = []
    assert record.record_all(PLAN, file, say=printed.append)
    after = record.read_pages(file)
    assert after[:-1] == before[:-1]
    assert (after[-1].page, after[-1].kind) == (before[-1].page, before[-1].kind)
    assert after[-1].began > before[-1].began
    assert printed[0].startswith("8 of 9 pages")


def test_recording_stops_before_the_page_that_would_end_too_late(tmp_path: Path) -> None:
    file = tmp_path / "pages.jsonl.gz"
    printed: list[str] = []
    assert not record.record_all(PLAN, file, minutes=0, say=printed.append)
    assert record.read_pages(file) == []
    assert "0 of 9 pages" in printed[-1]


def test_recordings_of_another_plan_are_refused(recorded: Path) -> None:
    with pytest.raises(UserError, match="another plan"):
        record.record_all(replace(PLAN, seed=4), recorded / "pages.jsonl.gz")


def test_a_recorder_that_is_killed_leaves_no_process_behind(tmp_path: Path) -> None:
    plan = replace(PLAN, counts={Kind.DISTURBED: 1}, iterations=20_000_000, trial_ms=30.0, blocks=40)
    plan.write(tmp_path / "plan.json")
    argv = [sys.executable, "-m", "benchmarks.shootout", "record", str(tmp_path)]
    with subprocess.Popen(argv, cwd=PROJECT, stdout=subprocess.DEVNULL) as recorder:
        try:
            disturbances = _wait(lambda: _children(recorder.pid, "burn"))
        finally:
            recorder.kill()
    _wait(lambda: not any(Path(f"/proc/{process}").exists() for process in disturbances))


def _wait(until: Callable[[], Answer]) -> Answer:
    end = time.monotonic() + 60
    while not (answer := until()):
        assert time.monotonic() < end
        time.sleep(0.05)
    return answer


def _children(parent: int, name: str) -> list[int]:
    """The processes of this program that a process started."""
    children = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            stat = (process / "stat").read_text()
        except OSError:
            continue
        if f" ({name}) " in stat and int(stat.rpartition(")")[2].split()[1]) == parent:
            children.append(int(process.name))
    return children


@pytest.mark.filterwarnings("ignore:Precision loss")  # parts of so short a load may all take the same time
def test_the_tables_count_every_page(recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "RULES", [rule for rule in RULES if not rule.source.startswith("program")])
    pages = record.read_pages(recorded / "pages.jsonl.gz")
    rows = list(table.counts(pages, say=lambda _: None))
    names = ["shoot-out", "shoot-out answers", "shoot-out truth", "shoot-out plan", "shoot-out rules"]
    document = tmp_path / "page.md"
    document.write_text("".join(f"<!-- measured: {name} -->\n<!-- end -->\n" for name in names))
    table.write(read_plan(recorded / "plan.json"), pages, rows, tmp_path, document)
    engine = [row for row in rows if (row.rule, row.data) == ("vmtoll judge", "blocks")]
    assert {row.kind: row.pages for row in engine} == {
        kind: count for kind, count in PLAN.counts.items() if kind is not Kind.TRUTH
    }
    for row in rows:
        assert row.worse + row.better + row.equal + row.undecided + row.not_judged == row.pages
    halves = [row for row in rows if (row.rule, row.data) == ("vmtoll judge", "halves")]
    assert sum(row.not_judged for row in halves) == sum(row.pages for row in halves) == 5
    text = document.read_text()
    assert "| vmtoll judge | 5% for all rows of a page |" in text
    assert "| Welch's t | p < 0.05 |" in text
    assert (tmp_path / "counts.csv").read_text().count("\n") == len(rows) + 1

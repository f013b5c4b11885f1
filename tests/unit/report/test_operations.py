"""What clients noticed of an operation: in the analysis, on the page, in its chart, and on the terminal."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.synthetic_run import Row, Truth, make_run, rate_load
from vmtoll.analysis.run import Run, load_run
from vmtoll.analysis.verdict import analyse
from vmtoll.model.operation import MigrationFigures, OperationTimes
from vmtoll.model.trial import Arm
from vmtoll.model.verdict import Amount, from_json, to_json
from vmtoll.report import charts, html, terminal, words

PAUSE = {"of": "kvm-default", "do": "pause", "for_s": 0.4, "at_s": 2}


def noticed(row: Row) -> list[Row]:
    """A pause of 0.4 s, a little longer in each block."""
    is_pause = row["arm"] == Arm("pause")
    blackout_ms = 400.0 + row["block"] if is_pause else 10.0
    return [row | {"blackout_ms": blackout_ms, "brownout_s": 0.4 * is_pause, "late_answers": 0, "failed": 0}]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    truth = Truth(metal=False, guests=("kvm-default", "pause"), loads=(rate_load(100),), aa=False, change=noticed)
    folder = make_run(tmp_path_factory.mktemp("operations"), truth)
    manifest = json.loads((folder / "run.json").read_text())
    manifest["experiment"] |= {"during": {"pause": PAUSE}, "duration_s": 8}
    (folder / "run.json").write_text(json.dumps(manifest))
    lines = [json.loads(line) for line in (folder / "trials.jsonl").read_text().splitlines()]
    (folder / "operations").mkdir()
    for line in lines:
        is_pause = line["arm"]["environment"] == "pause"
        if is_pause:
            line["operation"] = {"begin_s": 2.0, "end_s": 2.4}
        p99_us = [2000, 2000, 400_000 if is_pause else 2100, None if is_pause else 2000, 2000]
        course = {
            "operation": line.get("operation"),
            "window_s": 1.0,
            "time_s": [0.5, 1.5, 2.5, 3.5, 4.5],
            "p99_us": p99_us,
        }
        name = f"b{line['block']:03}-o{line['order']:03}-a{line['attempt']}"
        (folder / "operations" / f"{name}.json").write_text(json.dumps(course))
    (folder / "trials.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return load_run(folder)


def test_each_figure_has_both_sides_and_their_difference(run: Run) -> None:
    (effect,) = analyse(run).operations or ()
    assert (effect.arm, effect.without, effect.blocks) == (Arm("pause"), Arm("kvm-default"), 6)
    assert effect.length_s is not None
    assert effect.length_s.value == pytest.approx(0.4)
    blackout = effect.figures["blackout_ms"]
    assert blackout.with_it is not None
    assert blackout.with_it.value == pytest.approx(403.5)
    assert blackout.without == Amount(10, 10, 10)
    assert blackout.more is not None
    assert blackout.more.low is not None
    assert 390 < blackout.more.low < blackout.more.value == pytest.approx(393.5)
    assert effect.figures["lost"].with_it == Amount(0, 0, 0)
    assert from_json(to_json(analyse(run))).operations is not None


def test_the_page_has_the_table_and_the_course(run: Run) -> None:
    analysis = analyse(run)
    page = html.render(run, analysis)
    assert '<h2 id="operations">' in page
    assert "403" in page
    assert "a pause of 0.4 s, 2 s after the load" in page
    assert "During pause nginx&#39;s clients had no answer for 404 ms (402 to 405); without it, for 10 ms (" in page
    ((_, chart),) = charts.draw_all(run, analysis, only=["operations"])
    assert "pause: the highest p99 of a window is 400 ms" in chart.alt


def test_the_terminal_names_what_is_not_zero(run: Run) -> None:
    analysis = analyse(run)
    text = str(terminal.summary(run, analysis, terminal.rows_of(analysis)))
    assert "pause, nginx: an operation of 0.4 s, against kvm-default" in text
    assert "blackout, ms" in text
    assert "requests lost" not in text
    assert words.amount_text(None) == words.DASH


def test_what_libvirt_says_of_a_migration_is_beside_the_blackout(run: Run) -> None:
    figures = {"begin_s": 2.0, "end_s": 9.0}
    migrations = [
        MigrationFigures(total_s=6, downtime_ms=200 + block, memory_mib=256, disk_mib=4096) for block in range(6)
    ]
    moved = iter(migrations)
    trials = [
        replace(trial, operation=OperationTimes(**figures, migration=next(moved))) if trial.operation else trial
        for trial in run.records
    ]
    analysis = analyse(replace(run, records=tuple(trials)))
    (effect,) = analysis.operations or ()
    text = words.migration_text(effect)
    assert text == "libvirt: down for 202 ms (201 to 204), sent 256 MiB of memory, 4,096 of disk"
    assert text in html.render(run, analysis)
    assert text in str(terminal.summary(run, analysis, terminal.rows_of(analysis)))
    (stored,) = from_json(to_json(analysis)).operations or ()
    assert stored.migration is not None
    assert stored.migration["disk_mib"] == Amount(4096, 4096, 4096)


def test_a_run_without_operations_has_none(tmp_path: Path) -> None:
    run = load_run(make_run(tmp_path, Truth()))
    analysis = analyse(run)
    assert analysis.operations is None
    assert b'"operations"' not in to_json(analysis)
    assert 'id="operations"' not in html.render(run, analysis)

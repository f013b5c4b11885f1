"""What clients noticed of an operation: in the analysis, on the page, in its chart, and on the terminal."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from markupsafe import escape

from tests.support.page_text import section
from tests.support.snapshots import assert_snapshot
from tests.support.synthetic_run import Row, Truth, make_run, rate_load
from tests.unit.report.test_words import SNAPSHOTS
from vmtoll.analysis.run import Run, load_run
from vmtoll.analysis.verdict import analyse
from vmtoll.model.analysis import from_json, to_json
from vmtoll.model.operation import MigrationFigures, OperationTimes
from vmtoll.model.trial import Arm, TrialRecord
from vmtoll.model.verdict import Estimate
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
    assert blackout.without == Estimate(10, 10, 10)
    assert blackout.more is not None
    assert blackout.more.low is not None
    assert 390 < blackout.more.low < blackout.more.value == pytest.approx(393.5)
    assert effect.figures["lost"].with_it == Estimate(0, 0, 0)
    assert from_json(to_json(analyse(run))).operations is not None


def test_the_words_of_an_operation(run: Run) -> None:
    """On the page and under its chart; the terminal names what is not zero."""
    analysis = analyse(run)
    (effect,) = analysis.operations or ()
    ((_, chart),) = charts.draw_all(run, analysis, only=["operations"])
    assert_snapshot(SNAPSHOTS / "operations.txt", {
        "An operation": {
            "what was done": words.deed_text(run.manifest.experiment.during["pause"]),
            "what was noticed": words.noticed_text(effect),
            "on the terminal": words.operation_lines(effect),
            "under its chart": chart.caption,
            "instead of its chart": chart.alt,
        },
    })  # fmt: skip
    assert words.amount_text(None) == words.DASH


def test_the_page_and_the_terminal_have_what_was_noticed(run: Run) -> None:
    analysis = analyse(run)
    (effect,) = analysis.operations or ()
    page = html.render(run, analysis)
    assert words.amount_text(effect.figures["blackout_ms"].with_it) in section(page, "operations")
    for said in (words.deed_text(run.manifest.experiment.during["pause"]), words.noticed_text(effect)):
        assert escape(said) in page
    text = str(terminal.summary(run, analysis, terminal.rows_of(analysis)))
    assert set(words.operation_lines(effect)) <= set(text.splitlines())


@pytest.mark.usefixtures("without_charts")
def test_what_libvirt_says_of_a_migration_is_beside_the_blackout(run: Run) -> None:
    migrations = [
        MigrationFigures(total_s=6, downtime_ms=200 + block, memory_mib=256, disk_mib=4096) for block in range(6)
    ]
    moved = iter(migrations)
    trials = [
        replace(trial, operation=OperationTimes(begin_s=2.0, end_s=9.0, migration=next(moved)))
        if trial.operation
        else trial
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
    assert stored.migration["disk_mib"] == Estimate(4096, 4096, 4096)


@pytest.mark.usefixtures("without_charts")
def test_a_brownout_that_outlasts_the_load_is_said_to_be_longer(run: Run) -> None:
    def ended(trial: TrialRecord) -> TrialRecord:
        return replace(trial, operation=trial.operation and replace(trial.operation, is_over=trial.block > 2))

    analysis = analyse(replace(run, records=tuple(map(ended, run.records))))
    text = "In 2 of 6 trials the brownout outlasted the load: raise duration_s."
    assert text in html.render(run, analysis)
    assert text in str(terminal.summary(run, analysis, terminal.rows_of(analysis)))


@pytest.mark.usefixtures("without_charts")
def test_a_run_without_operations_has_none(tmp_path: Path) -> None:
    run = load_run(make_run(tmp_path, Truth()))
    analysis = analyse(run)
    assert analysis.operations is None
    assert b'"operations"' not in to_json(analysis)
    assert 'id="operations"' not in html.render(run, analysis)

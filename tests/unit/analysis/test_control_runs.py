"""Real A/A runs judged as a page judges a guest: what the benchmark counts, on synthetic runs."""

import csv
from dataclasses import replace
from pathlib import Path

from benchmarks.control_runs import control_run, read, table, write
from tests.support.synthetic_run import CONTROL, Row, Truth, make_run
from vmtoll.analysis.run import load_run
from vmtoll.model.trial import Arm
from vmtoll.model.verdict import Kind
from vmtoll.paths import PROJECT


def test_a_machine_that_is_itself_raises_no_alarm_and_one_that_is_not_does(tmp_path: Path) -> None:
    def slower(row: Row) -> list[Row]:
        if row["arm"] != CONTROL:
            return [row]
        return [row | {name: 0.9 * row[name] for name in ("throughput_rps", "crosscheck_throughput_rps")}]

    same = control_run(load_run(make_run(tmp_path / "same", Truth(noise=0.002))))
    other = control_run(load_run(make_run(tmp_path / "other", Truth(noise=0.002, change=slower))))
    assert same is not None and other is not None
    assert (same.alarms, same.blocks) == (0, 6)
    assert same.verdicts[Kind.EQUIVALENT] > 0
    assert other.alarms > 0, "and the control itself vetoes nothing"
    text = table([same, other])
    assert text.splitlines()[2].split(" | ")[1:4] == [
        "2",
        "6",
        f"{same.trials + other.trials}, {same.valid + other.valid}",
    ]
    (tmp_path / "statistics.md").write_text("<!-- measured: control runs -->\nold\n<!-- end -->\n")
    other = replace(other, run_id="another")
    write([same, other], tmp_path)
    assert (tmp_path / "statistics.md").read_text() == f"<!-- measured: control runs -->\n{text}\n<!-- end -->\n"
    rows = list(csv.DictReader((tmp_path / "control-runs.csv").read_text().splitlines()))
    assert [int(row["trials"]) for row in rows] == [same.trials, other.trials]
    write([replace(other, valid=1)], tmp_path)
    assert read(tmp_path / "control-runs.csv") == [same, replace(other, valid=1)]


def test_the_control_may_be_one_of_a_guest(tmp_path: Path) -> None:
    guest = "kvm-default"

    def slower(row: Row) -> list[Row]:
        factor = 0.9 if row["arm"] == Arm(guest, 2) else 1.0
        return [row | {name: factor * row[name] for name in ("throughput_rps", "crosscheck_throughput_rps")}]

    truth = Truth(noise=0.002, aa=False, guest_control=guest)
    same = control_run(load_run(make_run(tmp_path / "same", truth)))
    other = control_run(load_run(make_run(tmp_path / "other", replace(truth, change=slower))))
    assert same is not None and other is not None
    assert (same.alarms, same.trials) == (0, 12)
    assert other.alarms > 0


def test_a_run_without_a_control_has_no_result(tmp_path: Path) -> None:
    assert control_run(load_run(make_run(tmp_path, Truth(aa=False)))) is None


def test_the_page_has_the_place_for_it() -> None:
    assert "<!-- measured: control runs -->\n" in (PROJECT / "docs" / "statistics.md").read_text("utf-8")

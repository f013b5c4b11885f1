"""What a step is worth: by the newest tuning run measured here, else by the committed one."""

import json
import shutil
from pathlib import Path

from tests.support.tuning_run import LEVELS, make_tuning
from tests.support.tuning_run import TuningTruth as Measured
from vmtoll.analysis.step_worth import tuning_runs, worth_of
from vmtoll.guests.steps import gained
from vmtoll.model.diagnosis import Tuning
from vmtoll.model.metric import THROUGHPUT
from vmtoll.model.verdict import Kind


def add(results: Path, run_id: str, started_at: str, *, local: bool, **fields: object) -> Path:
    made = make_tuning(results / "made", Measured(**fields))  # type: ignore[arg-type]
    folder = results / "tuning-steps" / run_id
    folder.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(made, folder)
    shutil.rmtree(results / "made")
    manifest = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(manifest | {"started_at": started_at}))
    if local:
        (folder / "private.json").write_text("{}")
    return folder


def test_runs_that_were_measured_here_come_first_and_newer_ones_before_older(tmp_path: Path) -> None:
    committed = add(tmp_path, "c", "2026-03-01T00:00:00Z", local=False, blocks=3)
    old = add(tmp_path, "a", "2026-01-01T00:00:00Z", local=True, blocks=3)
    new = add(tmp_path, "b", "2026-02-01T00:00:00Z", local=True, blocks=3)
    unfinished = add(tmp_path, "d", "2026-04-01T00:00:00Z", local=True, blocks=3)
    manifest = json.loads((unfinished / "run.json").read_text())
    (unfinished / "run.json").write_text(json.dumps(manifest | {"status": "running"}))
    (tmp_path / "x" / "y").mkdir(parents=True)
    (tmp_path / "x" / "y" / "run.json").write_text("no JSON")
    assert tuning_runs(tmp_path) == [new, old, committed]


def test_a_step_has_the_gain_of_the_profiles_that_differ_in_it_alone(tmp_path: Path) -> None:
    add(tmp_path, "a", "2026-01-01T00:00:00Z", local=False)
    worth, runs = worth_of([Tuning.HALT_POLLING, Tuning.CARD, Tuning.CACHE], tuning_runs(tmp_path), gained)
    assert set(worth) == {Tuning.HALT_POLLING, Tuning.CARD}
    polling = next(item for item in worth[Tuning.HALT_POLLING] if item.metric is THROUGHPUT)
    assert (str(polling.result.before), str(polling.result.after)) == ("kvm-default", "kvm-halt-poll")
    assert polling.together == ()
    assert polling.result.kind is Kind.FASTER
    assert polling.result.gain is not None
    truth = LEVELS["kvm-halt-poll"].rps - LEVELS["kvm-default"].rps
    assert abs(polling.result.gain.value - truth) < 0.05 * LEVELS["kvm-default"].rps
    card = worth[Tuning.CARD][0]
    assert set(card.together) == {Tuning.CPU_MODEL, Tuning.DISK_BUS, Tuning.VHOST}
    (run,) = runs
    assert (run.name, run.local) == ("tuning-steps/a", False)


def test_steps_missing_from_the_newest_local_run_come_from_the_next(tmp_path: Path) -> None:
    add(tmp_path, "a", "2026-01-01T00:00:00Z", local=False)
    add(tmp_path, "b", "2026-02-01T00:00:00Z", local=True, guests=("kvm-default", "kvm-pinned"))
    worth, runs = worth_of([Tuning.PINNING, Tuning.HALT_POLLING], tuning_runs(tmp_path), gained)
    assert {tuning: {item.run for item in items} for tuning, items in worth.items()} == {
        Tuning.PINNING: {"tuning-steps/b"}, Tuning.HALT_POLLING: {"tuning-steps/a"}
    }  # fmt: skip
    assert [(run.name, run.local) for run in runs] == [("tuning-steps/b", True), ("tuning-steps/a", False)]


def test_without_a_tuning_run_nothing_is_known(tmp_path: Path) -> None:
    assert worth_of([Tuning.PINNING], tuning_runs(tmp_path), gained) == ({}, ())

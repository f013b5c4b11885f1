"""A run that breaks the contract is refused with the file, the line and the key; what counts is the last attempt."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.records import BASELINE
from tests.support.synthetic_run import CONTROL, Row, Truth, failed_trial, make_run
from vmtoll.analysis.equality import machine_facts, machines_under_test
from vmtoll.analysis.run import load_run
from vmtoll.capacity.resources import Size, size_of
from vmtoll.model.columns import COLUMNS
from vmtoll.model.errors import LoadError
from vmtoll.model.finding import Code, Finding, Validity
from vmtoll.model.trial import Arm, from_json, to_json
from vmtoll.report.explorer.machines import platform


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    return make_run(tmp_path, Truth(blocks=2))


def _edit(run_dir: Path, line: int, change: Any) -> None:
    path = run_dir / "trials.jsonl"
    lines = path.read_text().splitlines()
    document = json.loads(lines[line - 1])
    change(document)
    lines[line - 1] = json.dumps(document)
    path.write_text("\n".join(lines) + "\n")


def test_reads_every_attempt_and_counts_the_last(tmp_path: Path) -> None:
    def change(row: Row) -> list[Row]:
        return [failed_trial(row, Code.HOST_LOST, "gone"), row | {"attempt": 2}] if row["block"] == 1 else [row]

    run = load_run(make_run(tmp_path, Truth(blocks=2, change=change)))
    assert (len(run.records), len(run.trials)) == (9, 6)
    assert {trial.validity for trial in run.trials} == {Validity.VALID}
    assert run.arms == [BASELINE, CONTROL, Arm("kvm-default")]
    assert (run.guests, run.controls) == ([Arm("kvm-default")], [CONTROL])
    assert run.records[0].codes == {Code.HOST_LOST}


def _changed(run_dir: Path, of: str, changed: str) -> Path:
    """The run, one of whose environments is a change of another."""
    manifest = json.loads((run_dir / "run.json").read_text())
    manifest["experiment"]["changes"] = {changed: {"of": of, "apply": "true"}}
    (run_dir / "run.json").write_text(json.dumps(manifest | {"lab": ""}))
    return run_dir


def test_a_change_of_metal_is_no_guest(tmp_path: Path) -> None:
    truth = Truth(blocks=2, guests=("kvm-default", "fast"))
    assert load_run(_changed(make_run(tmp_path, truth), "metal", "fast")).guests == [Arm("kvm-default")]


def test_the_host_of_one_guest_and_its_change_carries_one_guest(tmp_path: Path) -> None:
    """A finding on that host is of this guest's arm, as without the change."""
    run = load_run(
        _changed(make_run(tmp_path, Truth(blocks=2, guests=("kvm-default", "quiet"))), "kvm-default", "quiet")
    )
    (host,) = [name for name, facts in run.hosts.items() if facts.is_kvm_host]
    assert not run.is_foreign(host, Arm("quiet"))
    assert run.is_foreign(host, Arm("metal"))


def test_a_change_and_its_machine_have_the_same_facts(tmp_path: Path) -> None:
    """Under the name of whichever of the two the experiment lists first."""
    truth = Truth(
        blocks=2, guests=("quiet", "kvm-default", "tuned"),
        changes={"quiet": {"of": "kvm-default", "apply": "true"}, "tuned": {"of": "metal", "apply": "true"}},
    )  # fmt: skip
    run = load_run(make_run(tmp_path, truth))
    assert run.machine("quiet") is run.machine("kvm-default")
    assert run.machine("quiet").cpu_model == "Synthetic vCPU"
    assert run.machine("tuned") is run.machine("metal")
    assert list(machines_under_test(run)) == ["metal", "kvm-default"], "each machine once"
    assert size_of(run, "quiet", "nginx") == size_of(run, "kvm-default", "nginx") != Size()
    assert platform(run, Arm("tuned"))["cpu"] == "Synthetic CPU"
    (scenario,) = run.scenarios
    facts = machine_facts(run, scenario.server, Arm("quiet"))
    assert facts["cpu model"] == "Synthetic vCPU", "what two runs of a change may differ in"


def test_the_table_has_the_columns_of_the_export_and_numbers_in_them(run_dir: Path) -> None:
    frame = load_run(run_dir).frame
    assert list(frame.columns) == [*COLUMNS, "arm", "scenario", "record"]
    assert str(frame["block"].dtype) == "Int64"
    assert str(frame["throughput_rps"].dtype) == "float64"
    assert frame["steal_pct"].eq(0).all()
    assert frame["link_used_pct"].isna().all()
    assert frame["neighbour_kind"].eq("").all()
    assert [record.arm for record in frame["record"]] == list(frame["arm"])


@pytest.mark.parametrize(
    ("keys", "value", "words"),
    [
        (("measurements", 0, "throughput_rps"), "fast", ["measurements.0.throughput_rps", "'fast'"]),
        (("measurements", 0, "throughput_rps"), float("inf"), ["throughput_rps", "finite"]),
        (("block",), 1.5, ["key block", "integer"]),
        (("block",), None, ["key block", "integer"]),
        (("measurements", 0, "successful"), 20001, ["primary.successful: 20001, more than the 20000 of requests"]),
        (("measurements", 1, "failed"), 20007, ["crosscheck.failed: 20007, more than the 20000 of requests"]),
        (("findings",), [{"code": "fine"}], ["findings.0.code", "client-saturated"]),
        (("weather",), "fair", ["weather"]),
    ],
)
def test_names_file_line_and_key(run_dir: Path, keys: tuple[Any, ...], value: Any, words: list[str]) -> None:
    def change(document: Any) -> None:
        for key in keys[:-1]:
            document = document[key]
        document[keys[-1]] = value

    _edit(run_dir, 3, change)
    with pytest.raises(LoadError) as caught:
        load_run(run_dir)
    for word in ["trials.jsonl: line 3, ", *words]:
        assert word in str(caught.value)


def test_names_a_missing_key(run_dir: Path) -> None:
    _edit(run_dir, 2, lambda document: document.pop("scenario"))
    with pytest.raises(LoadError, match=r"trials\.jsonl: line 2, key scenario: "):
        load_run(run_dir)


def test_a_figure_that_was_not_measured_is_missing(run_dir: Path) -> None:
    _edit(run_dir, 1, lambda document: (document.pop("resources"), document["measurements"].pop()))
    run = load_run(run_dir)
    assert run.trials[0].resources.steal_pct is None
    assert run.trials[0].crosscheck is None
    assert run.frame["crosscheck_tool"].iloc[0] == ""


def test_a_trial_that_appears_twice(run_dir: Path) -> None:
    path = run_dir / "trials.jsonl"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines, lines[-1]]) + "\n")
    with pytest.raises(LoadError, match=r"line 7, key attempt: .*twice"):
        load_run(run_dir)


def test_a_line_cut_off_counts_in_a_complete_run_alone(run_dir: Path) -> None:
    path = run_dir / "trials.jsonl"
    path.write_text(path.read_text()[:-40])
    with pytest.raises(LoadError, match=r"trials\.jsonl: line 6, "):
        load_run(run_dir)
    meta = json.loads((run_dir / "run.json").read_text())
    (run_dir / "run.json").write_text(json.dumps(meta | {"status": "running"}))
    assert len(load_run(run_dir).trials) == 5


@pytest.mark.parametrize("name", ["run.json", "hosts.json", "trials.jsonl"])
def test_names_a_missing_file(run_dir: Path, name: str) -> None:
    (run_dir / name).unlink()
    with pytest.raises(LoadError) as error:
        load_run(run_dir)
    assert str(error.value).startswith(f"{run_dir / name}: no such file; ")


def test_only_a_line_feed_ends_a_record(run_dir: Path) -> None:
    """A tool's message may hold any other character that some call a line break."""
    file = run_dir / "trials.jsonl"
    *others, last = [from_json(line) for line in file.read_bytes().splitlines()]
    strange = replace(last, findings=(Finding(Code.TOOL_FAILED, detail="a\u2028b\x85c\rd"),))
    file.write_bytes(b"".join(to_json(record) + b"\n" for record in (*others, strange)))
    assert strange in load_run(run_dir).records


def test_refuses_another_schema_and_missing_keys(run_dir: Path) -> None:
    path = run_dir / "run.json"
    meta = json.loads(path.read_text())
    path.write_text(json.dumps(meta | {"schema": 1}))
    with pytest.raises(LoadError, match=r"run\.json: schema 1, .*vmtoll reads 3"):
        load_run(run_dir)
    del meta["accelerators"]
    path.write_text(json.dumps(meta))
    with pytest.raises(LoadError, match=r"run\.json: key accelerators: is missing"):
        load_run(run_dir)
    path.write_text("[")
    with pytest.raises(LoadError, match=r"run\.json"):
        load_run(run_dir)

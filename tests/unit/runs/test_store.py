"""What a kill leaves behind is repaired; what is written is whole."""

import errno
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hdrh.histogram import HdrHistogram

from tests.support.records import make_record
from vmtoll.machines.differences import differences
from vmtoll.machines.facts import accelerator
from vmtoll.model.columns import to_csv
from vmtoll.model.errors import LoadError, ResultsError, ToolError
from vmtoll.model.exits import ExitPrice, ExitReason, ExplainedTrial
from vmtoll.model.finding import Code, Finding, Role
from vmtoll.model.load import Load, LoadKind, NeighbourLoad
from vmtoll.model.run import Differences, MachineDifference
from vmtoll.model.trial import Accelerator, Arm, Measurement, Offered, Times, to_json
from vmtoll.runs.folder import EXPLAINED
from vmtoll.runs.rates import Rates
from vmtoll.runs.store import Store
from vmtoll.trial import latency

FIRST, SECOND = make_record(order=1), make_record(order=2)


def test_records_come_back_as_written(tmp_path: Path) -> None:
    figures = {"duration_s": 0.1 + 0.2, "transactions": 3, "service_time_p99_us": 1 / 3}
    message = 'a, "b"\nc | µ'
    written = [
        make_record(order=2, measured=figures, arm=Arm("kvm-default", 2)),
        make_record(order=3, findings=(Finding(Code.TOOL_FAILED, detail=message), Finding(Code.STEAL, 0.7, 0.5))),
        make_record(order=4, load=Load(LoadKind.SHARE, 0.7, 2, NeighbourLoad(LoadKind.RATE, 300.0))),
    ]
    store = Store.create(tmp_path / "run")
    for record in written:
        store.append(record)
    assert list(store.records()) == written
    store.close()
    assert store.trials_file.read_bytes().count(b"\n") == 3
    again = Store(tmp_path / "run")
    assert list(again.records()) == written
    again.close()


def test_the_table_has_each_record_as_soon_as_it_is_stored(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "run")
    assert store.table_file.read_bytes() == to_csv([])
    for n, record in enumerate((FIRST, SECOND), start=1):
        store.append(record)
        assert store.table_file.read_bytes() == to_csv([FIRST, SECOND][:n])
    store.close()


def test_a_table_that_a_kill_left_behind_is_exported_again(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "run")
    store.append(FIRST)
    older = store.table_file.read_bytes()
    store.append(SECOND)
    store.close()
    store.table_file.write_bytes(older)
    Store(tmp_path / "run").close()
    assert store.table_file.read_bytes() == to_csv([FIRST, SECOND])


def test_a_line_cut_off_anywhere_is_removed_on_opening(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "run")
    store.append(FIRST)
    whole = store.trials_file.read_bytes()
    store.append(SECOND)
    both = store.trials_file.read_bytes()
    store.close()
    for end in range(len(whole), len(both), 7):
        store.trials_file.write_bytes(both[:end])
        again = Store(tmp_path / "run")
        assert list(again.records()) == [FIRST]
        again.append(SECOND)
        assert list(again.records()) == [FIRST, SECOND]
        assert store.trials_file.read_bytes() == both
        again.close()


@pytest.mark.parametrize("left", [b"", b'{"run_id":"2026'])
def test_a_first_line_cut_off_leaves_an_empty_run(tmp_path: Path, left: bytes) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "trials.jsonl").write_bytes(left)
    store = Store(tmp_path / "run")
    assert list(store.records()) == []
    store.append(FIRST)
    assert store.trials_file.read_bytes() == to_json(FIRST) + b"\n"
    store.close()


def test_a_record_that_the_disk_has_no_room_for_is_cut_off_on_resuming(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, write = Store.create(tmp_path / "run"), os.write
    store.append(FIRST)
    monkeypatch.setattr(os, "write", lambda handle, data: write(handle, data[:20]))
    with pytest.raises(OSError, match="the record does not fit") as full:
        store.append(SECOND)
    monkeypatch.undo()
    assert full.value.errno == errno.ENOSPC
    assert list(store.records()) == [FIRST], "what is not on disk is not a record"
    store.close()
    again = Store(tmp_path / "run")
    assert list(again.records()) == [FIRST]
    again.close()


def test_a_whole_line_that_is_no_record_is_refused_by_its_number(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "trials.jsonl").write_bytes(to_json(FIRST) + b"\n{}\n")
    with pytest.raises(LoadError, match=r"trials\.jsonl: line 2, "):
        Store(tmp_path / "run")


@pytest.mark.parametrize(
    ("file", "content", "error", "message"),
    [
        (
            "run.json",
            '{"schema": 1, "status": "running"}',
            LoadError,
            r"run/run\.json: schema 1, but this vmtoll reads 3",
        ),
        (
            "trials.csv",
            "a,b\n1,2\n",
            ResultsError,
            r"run/trials\.csv: a run of another schema; this program reads schema 3",
        ),
    ],
)
def test_a_run_of_another_schema_is_refused_and_left_as_it_is(
    tmp_path: Path, file: str, content: str, error: type[Exception], message: str
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / file).write_text(content)
    for _ in range(2):  # the lock is released
        with pytest.raises(error, match=message):
            Store(tmp_path / "run")
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == [".lock", file]
    assert (tmp_path / "run" / file).read_text() == content


def test_one_process_holds_a_run(tmp_path: Path) -> None:
    first = Store.create(tmp_path / "run")
    with pytest.raises(ResultsError, match="another process"):
        Store(tmp_path / "run")
    first.close()
    Store(tmp_path / "run").close()
    with pytest.raises(ResultsError, match="exists already"):
        Store.create(tmp_path / "run")
    with pytest.raises(ResultsError, match="no such folder; "):
        Store(tmp_path / "other")


def test_leftovers_of_a_killed_attempt_are_removed(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "run")
    store.write_file("raw/b001-o001-a1/siege.stdout", b"x")
    store.write_file("histograms/b001-o001-a1.hdr", b"x")
    store.clear_trial("b001-o001-a1")
    store.close()
    assert not list((tmp_path / "run").rglob("*a1*"))


def test_a_resumed_run_knows_the_rates_of_its_records() -> None:
    """Of the tool and of the cross-check, of each load by itself, whichever replicate has measured it last."""
    ten, twenty = Load(LoadKind.CLOSED, 10), Load(LoadKind.CLOSED, 20)
    both = (
        Measurement(role=Role.PRIMARY, tool="siege", throughput_rps=100.0),
        Measurement(role=Role.CROSSCHECK, tool="h2load", throughput_rps=900.0),
    )
    first = replace(make_record(load=ten), measurements=both)
    again = make_record(order=2, load=ten, arm=Arm("metal", 2), measured={"throughput_rps": 110.0})
    failed = make_record(order=3, load=ten, findings=(Finding(Code.HOST_LOST),))
    shared = replace(
        make_record(order=4, load=Load(LoadKind.SHARE, 0.5), measured={"throughput_rps": 50.0}),
        offered=Offered(offered_rps=50.0, capacity_rps=100.0, deadline_ms=5.0),
    )
    rates = Rates([first, again, failed, shared])
    for arm in (Arm("metal"), Arm("metal", 2)):
        assert rates.of(arm, first.scenario, "siege") == 110.0
        assert rates.of(arm, first.scenario, "h2load") == 900.0
    assert rates.of(Arm("kvm-default"), first.scenario, "siege") is None
    assert rates.of(Arm("metal"), replace(first.scenario, load=twenty), "siege") is None
    assert rates.of(Arm("metal"), shared.scenario, "siege") is None, "the rate of an open loop is none of a closed one"


def test_capacity_trials_survive_a_kill(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "run")
    assert not store.capacities.file.exists(), "a run without shares has none"
    store.capacities.append(make_record(measured={"throughput_rps": 100.0}))
    store.close()
    with store.capacities.file.open("ab") as handle:
        handle.write(b'{"run_id": "cut')
    again = Store(tmp_path / "run")
    assert list(again.capacities.records) == [make_record(measured={"throughput_rps": 100.0})]
    assert list(again.records()) == []
    again.close()


def test_explained_trials_and_prices_survive_a_kill(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "run")
    assert not store.explained.file.exists(), "a run without `explain` has none"
    assert store.exit_prices() == {}
    reason = ExitReason(reason="msr", count=3, time_us=4.5, away_us=1.0)
    explained = ExplainedTrial(trial=FIRST, host="host", exits=(reason,))
    store.explained.append(explained)
    prices = {"host": [ExitPrice(kind="cpuid", ns=1200.5, low_ns=1100, high_ns=1300, exits=900)]}
    store.write_exit_prices(prices)
    store.close()
    with store.explained.file.open("ab") as handle:
        handle.write(b'{"trial": {"run')
    again = Store(tmp_path / "run")
    assert list(again.explained.records) == [explained]
    assert again.exit_prices() == prices
    assert list(again.records()) == []
    again.close()
    (tmp_path / "run/exits.jsonl").write_text('{"trial": 1}\n')
    with pytest.raises(LoadError, match=r"exits\.jsonl: line 1"):
        EXPLAINED.read(tmp_path / "run")


def test_percentiles_are_values_that_were_seen() -> None:
    values = np.arange(1, 1001, dtype=np.int64)
    times = latency.times(values)
    assert (times.mean_us, times.max_us) == (500.5, 1000)
    assert [times.of(name) for name in ("p50", "p90", "p99", "p999")] == [500, 900, 990, 999]
    assert latency.times(values[:0]) == Times()


def test_a_percentile_of_fewer_requests_than_it_needs_is_none() -> None:
    values = np.arange(1, 1001, dtype=np.int64)
    of_999, of_99, of_one = (latency.times(values[:n]) for n in (999, 99, 1))
    assert of_999.p999_us is None is not of_999.p99_us
    assert of_99.p99_us is None is not of_99.p90_us
    assert of_one == Times(mean_us=1.0, max_us=1.0)


def test_the_histogram_can_be_read_and_merged() -> None:
    values = np.array([0, 100, 100, 5000, 250_000], dtype=np.int64)
    read = HdrHistogram.decode(latency.histogram(values))
    assert read.get_total_count() == 5
    assert read.get_value_at_percentile(50) == 100
    assert read.get_max_value() == pytest.approx(250_000, rel=0.001)
    with pytest.raises(ToolError, match="beyond"):
        latency.histogram(np.array([latency.HIGHEST_US * 4], dtype=np.int64))


def test_a_histogram_for_each_second_of_sending() -> None:
    sent = np.array([5_000_000, 5_900_000, 6_100_000, 6_200_000, 4_999_999], dtype=np.int64)
    latencies = np.array([0, 1000, 1100, 1300, 1], dtype=np.int64)
    text = latency.by_second(sent, latencies).decode()
    assert text == "second,latency_us,count\n0,1,2\n0,1000,1\n1,1000,1\n1,1259,1\n"
    assert latency.by_second(sent[:0], latencies[:0]) == b"second,latency_us,count\n"


def test_only_declared_differences_pass() -> None:
    metal = {"kernel": "6.1", "sysctls": {"a": "1", "b": "2"}, "packages": {"nginx": "1"}, "memory_kib": 1_048_576}
    guest = {"kernel": "6.1", "sysctls": {"a": "1", "b": "3"}, "packages": {}, "memory_kib": 2_097_152}
    found = differences({"metal": metal, "kvm-default": guest}, ["memory_kib", "kernel"])
    assert found.declared == ["memory_kib"]
    assert found.undeclared == [
        MachineDifference(fact="sysctls: b", values={"metal": "2", "kvm-default": "3"}),
        MachineDifference(fact="packages: nginx", values={"metal": "1", "kvm-default": None}),
    ]
    assert differences({"metal": metal, "kvm-default": metal}, []) == Differences()


def test_a_declared_part_of_an_entry_leaves_the_rest_open() -> None:
    """A release explains the version of a server, or that there is none, and not what it was told."""
    old = {"servers": {"nginx": {"version": "1", "workers": 1}, "caddy": {"version": "1", "workers": 1}, "h2o": {}}}
    new = {"servers": {"nginx": {"version": "2", "workers": 1}, "caddy": {"version": "2", "workers": 4}}}
    found = differences({"old": old, "new": new}, ["servers: *: version"])
    assert found.declared == ["servers: *: version"]
    assert found.undeclared == [
        MachineDifference(fact="servers: caddy", values={"old": {"workers": 1}, "new": {"workers": 4}})
    ]
    assert [each.fact for each in differences({"old": old, "new": new}, []).undeclared] == [
        "servers: caddy", "servers: h2o", "servers: nginx",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("role", "said", "xml", "expected"),
    [
        ("metal", "kvm", "", Accelerator.NONE),
        ("kvm_guest", "kvm", "<domain type='kvm' id='1'>", Accelerator.KVM),
        ("kvm_guest", "qemu", "<domain type='qemu' id='1'>", Accelerator.TCG),
        ("kvm_guest", "kvm", '<domain type="unknown"><name>microvm</name></domain>', Accelerator.KVM),
        ("kvm_guest", "kvm", "<domain type='qemu'>", Accelerator.TCG),
        ("kvm_guest", "qemu", '<domain id="3" type="kvm">', Accelerator.TCG),
        ("kvm_guest", "kvm", "", Accelerator.TCG),
        ("kvm_guest", "kvm", None, Accelerator.KVM),
        ("kvm_guest", "qemu", None, Accelerator.TCG),
        ("kvm_guest", "vmware", None, Accelerator.UNKNOWN),
    ],
)
def test_kvm_only_when_guest_and_definition_agree(role: str, said: str, xml: str | None, expected: Accelerator) -> None:
    assert accelerator(role, said, xml) is expected


def test_a_folder_of_something_else_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("Dear")
    with pytest.raises(ResultsError, match=r"no run .*results/<experiment>/<run-id>"):
        Store(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["letter.txt"]


def test_a_run_that_never_began_leaves_no_folder(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "tiny" / "run")
    store.close()
    store.discard_unmeasured()
    assert list(tmp_path.iterdir()) == []


def test_a_run_with_a_record_is_kept(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "tiny" / "run")
    store.append(FIRST)
    store.close()
    store.discard_unmeasured()
    assert (tmp_path / "tiny" / "run" / "trials.jsonl").read_bytes() == to_json(FIRST) + b"\n"

"""What a kill leaves behind is repaired; what is written is whole."""

from pathlib import Path

import numpy as np
import pytest
from hdrh.histogram import HdrHistogram

from workloads.runner import latency
from workloads.runner.equality import accelerator, differences
from workloads.runner.errors import ResultsError
from workloads.runner.results import COLUMNS, Store
from workloads.runner.run import next_attempt
from workloads.tools import ToolError


def test_rows_come_back_as_written(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "run")
    store.append({"block": 1, "order": 2, "duration_s": 0.1 + 0.2, "reasons": 'a, "b"\nc', "twin": None})
    store.append({"block": 1, "order": 3})
    rows = store.rows()
    assert list(rows[0]) == COLUMNS
    assert rows[0]["duration_s"] == "0.3"
    assert rows[0]["reasons"] == 'a, "b" c'
    assert rows[0]["twin"] == rows[1]["duration_s"] == ""
    with pytest.raises(ValueError, match="no such columns"):
        store.append({"blok": 1})


def test_a_line_cut_off_anywhere_is_removed_on_opening(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "run")
    store.append({"block": 1, "order": 1, "reasons": "first"})
    whole = store.trials_file.read_bytes()
    store.append({"block": 1, "order": 2, "reasons": "second"})
    both = store.trials_file.read_bytes()
    store.close()
    for end in range(len(whole), len(both)):
        store.trials_file.write_bytes(both[:end])
        again = Store(tmp_path / "run")
        assert [r["order"] for r in again.rows()] == ["1"]
        again.append({"block": 1, "order": 2})
        assert [r["order"] for r in again.rows()] == ["1", "2"]
        again.close()


@pytest.mark.parametrize("left", [b"", b"run_id,blo"])
def test_a_heading_cut_off_is_written_again(tmp_path: Path, left: bytes) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "trials.csv").write_bytes(left)
    assert Store(tmp_path / "run").rows() == []


def test_foreign_columns_are_refused(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "trials.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ResultsError, match="columns"):
        Store(tmp_path / "run")


def test_one_process_holds_a_run(tmp_path: Path) -> None:
    first = Store.create(tmp_path / "run")
    with pytest.raises(ResultsError, match="another process"):
        Store(tmp_path / "run")
    first.close()
    Store(tmp_path / "run").close()
    with pytest.raises(ResultsError, match="exists already"):
        Store.create(tmp_path / "run")
    with pytest.raises(ResultsError, match="no such run"):
        Store(tmp_path / "other")


def test_what_a_killed_attempt_left_is_cleared(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "run")
    store.keep("raw/b001-o001-a1/siege.stdout", b"x")
    store.keep("histograms/b001-o001-a1.hdr", b"x")
    store.clear_trial("b001-o001-a1")
    assert not list((tmp_path / "run").rglob("*a1*"))


def test_which_attempt_is_next() -> None:
    def row(reasons: str) -> dict[str, str]:
        return {"reasons": reasons}

    assert next_attempt([]) == 1
    assert next_attempt([row("")]) is None
    assert next_attempt([row("failed-requests: 3")]) is None, "a finding is not tried again"
    assert next_attempt([row("host-lost: gone")]) == 2
    assert next_attempt([row("host-lost: gone"), row("steal: 1 %")]) is None
    assert next_attempt([row("host-lost: gone"), row("host-lost: gone")]) is None


def test_percentiles_are_values_that_were_seen() -> None:
    values = np.arange(1, 1001, dtype=np.int64)
    seen = latency.summary("service_time", values)
    assert seen["service_time_mean_us"] == 500.5
    assert [seen[f"service_time_{p}_us"] for p in ("p50", "p90", "p99", "p999")] == [500, 900, 990, 999]
    assert latency.summary("service_time", values[:0]) == {}


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
    metal = {"kernel": "6.1", "sysctls": {"a": "1", "b": "2"}, "packages": {"nginx": "1"}, "memory_kib": 1}
    guest = {"kernel": "6.1", "sysctls": {"a": "1", "b": "3"}, "packages": {}, "memory_kib": 2}
    found = differences({"metal": metal, "kvm-default": guest}, ["memory_kib", "kernel"])
    assert found["declared"] == ["memory_kib"]
    assert found["undeclared"] == [
        {"fact": "sysctls: b", "values": {"metal": "2", "kvm-default": "3"}},
        {"fact": "packages: nginx", "values": {"metal": "1", "kvm-default": None}},
    ]
    assert differences({"metal": metal, "kvm-default": metal}, []) == {"declared": [], "undeclared": []}


@pytest.mark.parametrize(
    ("role", "said", "xml", "expected"),
    [
        ("metal", "kvm", "", "none"),
        ("kvm_guest", "kvm", "<domain type='kvm' id='1'>", "kvm"),
        ("kvm_guest", "qemu", "<domain type='qemu' id='1'>", "tcg"),
        ("kvm_guest", "kvm", "<domain type='qemu'>", "tcg"),
        ("kvm_guest", "qemu", '<domain id="3" type="kvm">', "tcg"),
        ("kvm_guest", "kvm", "", "tcg"),
    ],
)
def test_kvm_only_when_guest_and_definition_agree(role: str, said: str, xml: str, expected: str) -> None:
    assert accelerator(role, said, xml) == expected

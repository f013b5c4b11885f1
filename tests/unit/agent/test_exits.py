"""Exits as a KVM host's kernel printed them (Debian 13, a guest of kvm_amd), and what hosts without them are told."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from vmtoll.agent import exits
from vmtoll.agent.exits import counts, obstacle, reasons

RECORDED = Path(__file__).parents[2] / "support" / "recorded_traces"
FORMAT = (RECORDED / "kvm_exit-format-6.12.txt").read_text()
HISTOGRAM, AWAY = ((RECORDED / f"{name}-hist-svm.txt").read_text() for name in ("exits", "away"))
INTEL, AMD = 1, 2


def test_the_kernel_names_the_reasons_of_both_vendors() -> None:
    names = reasons(FORMAT)
    assert {names[INTEL, number] for number in (1, 10, 12, 48)} == {
        "EXTERNAL_INTERRUPT", "CPUID", "HLT", "EPT_VIOLATION",
    }  # fmt: skip
    assert {names[AMD, number] for number in (0x60, 0x72, 0x78, 0x7B, 0x400)} == {
        "interrupt", "cpuid", "hlt", "io", "npf",
    }  # fmt: skip
    assert names[AMD, 0xFFFFFFFF] == "invalid_guest_state"
    assert len([key for key in names if key[0] == INTEL]) > 40
    assert len([key for key in names if key[0] == AMD]) > 60


def test_rows_become_reasons_with_count_and_time() -> None:
    rows = {row["reason"]: (row["count"], row["ns"]) for row in counts(HISTOGRAM, AWAY, reasons(FORMAT))}
    assert rows["interrupt"] == (7, 1937009)
    assert rows["hlt"] == (40, 3703441017)
    assert sum(count for count, _ in rows.values()) == 136, "the kernel's own total"


def test_what_a_thread_slept_belongs_to_its_reason() -> None:
    rows = {row["reason"]: row["away_ns"] for row in counts(HISTOGRAM, AWAY, reasons(FORMAT))}
    assert rows["hlt"] == 3751101927, "one had slept and not ended"
    assert rows["msr"] == 0


def test_flags_of_a_vmx_reason_are_no_reason_of_their_own() -> None:
    text = "{ isa: 1, reason: 12 } hitcount: 2 ns: 10\n{ isa: 1, reason: 2147483660 } hitcount: 1 ns: 5\n"
    assert counts(text, "", reasons(FORMAT)) == [{"reason": "HLT", "count": 3, "ns": 15, "away_ns": 0}]


def test_a_reason_without_a_name_keeps_its_number() -> None:
    assert counts("{ isa: 2, reason: 1000 } hitcount: 2 ns: 10\n", "", {})[0]["reason"] == "reason 0x3e8"


def test_a_histogram_that_overflowed_is_refused() -> None:
    with pytest.raises(RuntimeError, match="left 7 exits out"):
        counts(HISTOGRAM.replace("Dropped: 0", "Dropped: 7"), AWAY, reasons(FORMAT))


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine whose kernel could trace exits, by its folders."""
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(machine="x86_64"))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    folder = tmp_path / exits.TRACEFS[1]
    (folder / "instances").mkdir(parents=True)
    (folder / "events/kvm/kvm_exit").mkdir(parents=True)
    (folder / "events/kvm/kvm_exit/hist").touch()
    (folder / "synthetic_events").touch()
    return tmp_path


def test_each_thing_that_a_host_lacks_has_its_sentence(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert obstacle(host) == ("", "")
    folder = host / exits.TRACEFS[1]
    (folder / "synthetic_events").unlink()
    assert "CONFIG_HIST_TRIGGERS" in obstacle(host)[0]
    (folder / "events/kvm").rename(folder / "events/other")
    why, way_out = obstacle(host)
    assert ("events of KVM" in why, way_out) == (True, "load kvm_intel or kvm_amd")
    folder.rename(host / "elsewhere")
    assert obstacle(host)[1].startswith("run `mount -t tracefs")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "only root" in obstacle(host)[0]
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(machine="aarch64"))
    assert "aarch64" in obstacle(host)[0]


def test_the_trace_of_a_dead_agent_is_left_and_that_of_a_living_one_is_not(host: Path) -> None:
    instances = host / exits.TRACEFS[1] / "instances"
    start = Path(f"/proc/{os.getpid()}/stat").read_text().rpartition(")")[2].split()[19]
    for name in (f"vmtoll-{os.getpid()}-{start}", f"vmtoll-{os.getpid()}-1", "vmtoll-other", "foreign"):
        (instances / name).mkdir()
    assert [path.name for path in exits.left(host)] == [f"vmtoll-{os.getpid()}-1"]

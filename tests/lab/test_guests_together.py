"""Two guests of one profile and two with other disks, on one KVM host: a load shared, a neighbour, cold caches."""

import contextlib
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from planted import Rows, measured
from the_lab import LAB, VMTOLL

from analysis.report import write_report
from workloads.runner.inventory import load_inventory

pytestmark = [pytest.mark.lab, pytest.mark.long]

CAPACITY = {"tool": "h2load", "users": 10}
RATE = {"kind": "rate", "tool": "vegeta", "users": None, "deadline_ms": 250.0, "capacity": CAPACITY}
BOTH = ["metal", "kvm-default"]


@pytest.fixture(scope="module", autouse=True)
def lab() -> Iterator[None]:
    guests = "kvm-default,kvm-default,kvm-virtio-scsi,kvm-ide"
    subprocess.run([VMTOLL, "lab", "up", "--guests", guests], check=True, stdin=subprocess.DEVNULL)
    yield
    subprocess.run([VMTOLL, "lab", "down"], check=True, stdin=subprocess.DEVNULL)


def test_one_load_on_one_guest_and_on_two(tmp_path: Path) -> None:
    ladder = {**RATE, "kind": "sweep", "shares": [0.1, 0.3], "guests": [1, 2]}
    rows = measured(tmp_path, workload=ladder, environments=BOTH, duration_s=2.0)
    assert len(rows) == 8
    for row in rows:
        assert row["verdict"] in {"valid", "suspect"}, row["reasons"]
        guests = row["offered_load"][-1] if row["environment"] == "kvm-default" else "1"
        assert row["guests"] == guests
        assert row["successful"] == row["requests"]
    rates = {row["offered_rps"] for row in rows if row["environment"] == "kvm-default"}
    assert len(rates) == 2, "of one capacity, whatever the number of guests"
    of_guests = {(row["offered_load"], row["guests"]): row for row in rows if row["environment"] == "kvm-default"}
    for share in ("share:0.1", "share:0.3"):
        one, two = of_guests[f"{share} guests:1", "1"], of_guests[f"{share} guests:2", "2"]
        assert int(two["processes"]) == 2 * int(one["processes"])
        assert float(two["host_cpu_s"]) > 0
    assert "Guests on one host, lighttz" in page_over(rows, tmp_path)


def page_over(rows: Rows, folder: Path) -> str:
    """The report's page, which says so where the guests were emulated."""
    page = write_report(folder / "results/latest").read_text()
    assert "(emulated)" in page or all(row["accelerator"] != "tcg" for row in rows)
    return page


def strangers(row: dict[str, str]) -> set[str]:
    """The guests that the trial's reasons name by their process; one that only idles beside what is measured may be."""
    found = set()
    for pid in re.findall(r"\(pid (\d+)\)", row["reasons"]):
        with contextlib.suppress(OSError):  # the trial's own processes have ended
            found |= set(re.findall(r"guest=[^,\0]+", Path("/proc", pid, "cmdline").read_text()))
    return found


def test_a_neighbour_under_load_is_no_stranger_and_takes_its_part(tmp_path: Path) -> None:
    guests = load_inventory(LAB / "inventory.yml", ["kvm-default"], guests=2).machines["kvm-default"]
    sharing = [guest.get("vmtoll_domain") for guest in guests]
    assert len(set(sharing)) == 2
    noisy = {"neighbour": {"share": [0.0, 0.5]}, "capacity": CAPACITY}
    rows = measured(tmp_path, workload=noisy, environments=BOTH, duration_s=3.0)
    for row in rows:
        assert row["verdict"] in {"valid", "suspect"}, row["reasons"]
    metal, guest = ([row for row in rows if row["environment"] == environment] for environment in BOTH)
    for row in guest:
        assert not strangers(row) & {f"guest={domain}" for domain in sharing}, row["reasons"]
    assert {row["neighbour_rps"] for row in metal} == {""}
    quiet, loud = sorted(guest, key=lambda row: row["offered_load"])
    assert float(quiet["neighbour_rps"]) == 0 < float(loud["neighbour_rps"])
    if int(quiet["server_cores"]) == 1:  # the lab's guests share a core
        assert float(loud["throughput_rps"]) < float(quiet["throughput_rps"])
    assert "A noisy neighbour: lighttz" in page_over(rows, tmp_path)


def test_what_no_cache_holds_is_read_from_the_disk(tmp_path: Path) -> None:
    cold = {"site": "gallery", "tool": "siege", "users": 10, "cold": True}
    rows = measured(tmp_path, workload=cold, environments=[*BOTH, "kvm-virtio-scsi", "kvm-ide"])
    assert len(rows) == 4
    for row in rows:
        assert row["verdict"] in {"valid", "suspect"}, row["reasons"]
        assert row["successful"] == row["requests"] == "480"
        assert "not-cold" not in row["reasons"]
        assert float(row["read_mb"]) > 0.95 * float(row["transferred_mb"]) > 25
        if row["environment"] != "metal":
            assert float(row["host_read_mb"]) > 0.95 * float(row["transferred_mb"])
    assert "Cold caches: megabytes per second" in page_over(rows, tmp_path)

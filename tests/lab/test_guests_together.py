"""Two guests of one profile and two with other disks, on one KVM host: a load shared, a neighbour, cold caches."""

import contextlib
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.faults import measured
from tests.lab.records import BY_CLIENT, BY_OPEN_CLIENT, Records, load_of, number, primary, undisturbed
from tests.lab.the_lab import LAB, VMTOLL
from tests.support.records import BASELINE
from vmtoll.analysis.run import load_run
from vmtoll.analysis.verdict import analyse
from vmtoll.model.finding import Code
from vmtoll.model.load import LoadKind
from vmtoll.model.trial import Accelerator, Arm, TrialRecord
from vmtoll.report.html import write_report
from vmtoll.spec.machines import load_inventory

pytestmark = [pytest.mark.lab, pytest.mark.long]

CAPACITY = {"tool": "h2load", "users": 10}
RATE = {"kind": "rate", "tool": "vegeta", "users": None, "deadline_ms": 250.0, "capacity": CAPACITY}
BOTH = ["metal", "kvm-default"]
GUEST = Arm("kvm-default")
# The lab's guests share one core: under load all of them wait for it, and their kernels' own threads with them.
SHARED_CORE = frozenset({Code.STALLED, Code.MEAN_OVER_P99, Code.BACKGROUND_CPU})


@pytest.fixture(scope="module", autouse=True)
def lab() -> Iterator[None]:
    guests = "kvm-default,kvm-default,kvm-virtio-scsi,kvm-ide"
    subprocess.run([VMTOLL, "lab", "up", "--guests", guests], check=True, stdin=subprocess.DEVNULL)
    yield
    subprocess.run([VMTOLL, "lab", "down"], check=True, stdin=subprocess.DEVNULL)


def test_one_load_on_one_guest_and_on_two(tmp_path: Path) -> None:
    sweep = {**RATE, "kind": "sweep", "shares": [0.1, 0.3], "guests": [1, 2]}
    records = measured(tmp_path, workload=sweep, environments=BOTH, duration_s=2.0, shares_of="slowest")
    assert len(records) == 8
    for record in records:
        assert undisturbed(record) <= SHARED_CORE | BY_OPEN_CLIENT, record.findings
        assert record.guests == (load_of(record).guests if record.arm == GUEST else 1)
        assert primary(record).successful == primary(record).requests
    of_guest = [record for record in records if record.arm == GUEST]
    rates = {record.offered.offered_rps for record in of_guest}
    assert len(rates) == 2, "of one capacity, whatever the number of guests"
    found = {(load_of(record).kind, load_of(record).value, record.guests): record for record in of_guest}
    for share in (0.1, 0.3):
        one, two = (found[LoadKind.SHARE, share, guests] for guests in (1, 2))
        assert number(two.resources.processes) == 2 * number(one.resources.processes)
        assert number(primary(two).host_cpu_s) > 0
    assert 'id="consolidation' in page_over(records, tmp_path)


def page_over(records: Records, folder: Path) -> str:
    """The report's page, which says so where the guests were emulated."""
    run = load_run((folder / "results/latest").resolve())
    page = write_report(run, analyse(run)).read_text()
    assert "(emulated)" in page or all(record.accelerator is not Accelerator.TCG for record in records)
    return page


def strangers(record: TrialRecord) -> set[str]:
    """The guests that the trial's findings name by their process; one that idles during the trial may be named."""
    found = set()
    for pid in re.findall(r"\(pid (\d+)\)", " ".join(one.process or "" for one in record.findings)):
        with contextlib.suppress(OSError):  # the trial's own processes have ended
            found |= set(re.findall(r"guest=[^,\0]+", Path("/proc", pid, "cmdline").read_text()))
    return found


def test_a_neighbour_under_load_is_no_stranger_and_takes_its_part(tmp_path: Path) -> None:
    guests = load_inventory(LAB / "inventory.yml", ["kvm-default"], guests=2).machines["kvm-default"]
    sharing = [guest.vars.domain for guest in guests]
    assert len(set(sharing)) == 2
    noisy = {"neighbour": {"share": [0.0, 0.5]}, "capacity": CAPACITY}
    records = measured(tmp_path, workload=noisy, environments=BOTH, duration_s=3.0, shares_of="slowest")
    for record in records:
        assert undisturbed(record) <= SHARED_CORE | BY_CLIENT, record.findings
    metal, guest = ([record for record in records if record.arm == arm] for arm in (BASELINE, GUEST))
    for record in guest:
        assert not strangers(record) & {f"guest={domain}" for domain in sharing}, record.findings
    assert {record.resources.neighbour_rps for record in metal} == {None}
    quiet, loud = sorted(guest, key=lambda record: load_of(record).sort_key)
    assert number(quiet.resources.neighbour_rps) == 0 < number(loud.resources.neighbour_rps)
    if quiet.resources.server_cores == 1:  # the lab's guests share a core
        assert number(primary(loud).throughput_rps) < number(primary(quiet).throughput_rps)
    assert 'id="neighbour' in page_over(records, tmp_path)


def test_uncached_files_are_read_from_the_disk(tmp_path: Path) -> None:
    cold = {"site": "gallery", "tool": "siege", "users": 10, "cold": True}
    records = measured(tmp_path, workload=cold, environments=[*BOTH, "kvm-virtio-scsi", "kvm-ide"])
    assert len(records) == 4
    for record in records:
        assert undisturbed(record) <= SHARED_CORE | BY_CLIENT, record.findings
        load = primary(record)
        assert load.successful == load.requests == 480
        assert Code.NOT_COLD not in record.codes
        assert number(record.resources.read_mb) > 0.95 * number(load.transferred_mb) > 25
        if record.arm != BASELINE:
            assert number(record.resources.host_read_mb) > 0.95 * number(load.transferred_mb)
    assert 'id="cold' in page_over(records, tmp_path)

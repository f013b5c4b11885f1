"""Runs over a KVM host and its guest, from the load to the bundle, and what befalls them on the way."""

import json
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.lab.faults import measured, once
from tests.lab.kvm.machines import INVENTORY, LIBVIRT, restore, vmtoll
from tests.lab.records import Records, finding, number, primary, records_of
from tests.lab.the_lab import LAB, Ssh
from vmtoll.model.event import Phase
from vmtoll.model.finding import ACCIDENTS, Code, Validity
from vmtoll.model.trial import Accelerator

pytestmark = [pytest.mark.lab, pytest.mark.kvm]

# Long enough for something to happen in the middle of a load.
EXPERIMENT: dict[str, Any] = {"environments": ["kvm-default"], "duration_s": 8.0}

# At once, and yet so that ssh ends first: the machine says no goodbye.
REBOOT = "setsid sh -c 'sleep 1; systemctl reboot --force --force' >/dev/null 2>&1 </dev/null &"


@pytest.fixture(scope="module")
def folder(machines: Ssh, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of `smoke` by the command line."""
    restore()
    results = tmp_path_factory.mktemp("results")
    vmtoll("run", "smoke", "--inventory", INVENTORY, "--results", results)
    return (results / "latest").resolve()


def test_every_trial_is_measured_and_the_guests_under_kvm(folder: Path) -> None:
    records = records_of(folder)
    assert len(records) == json.loads((folder / "run.json").read_text())["trials_planned"]
    for record in (record for record in records if record.validity is not Validity.INVALID):
        guest = record.arm.environment == "kvm-default"
        assert record.accelerator is (Accelerator.KVM if guest else Accelerator.NONE)
        assert number(primary(record).throughput_rps) > 0
    assert {record.arm.environment for record in records} == {"metal", "kvm-default"}


def test_exits_and_the_vcpus_time_are_in_the_telemetry(folder: Path) -> None:
    guests = [record for record in records_of(folder) if record.arm.environment == "kvm-default" and record.primary]
    assert guests
    for record in guests:
        assert (folder / "telemetry" / f"{record.name}.json").stat().st_size
        assert number(record.resources.host_exits_per_request) > 0
        assert number(record.resources.host_vcpu_cpu_us_per_request) > 0


def test_the_page_names_its_kind_of_guest(folder: Path) -> None:
    assert "KVM on emulated hardware" in (folder / "report.html").read_text()


def test_it_is_published_compared_and_run_again(folder: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "bundle"
    vmtoll("publish", folder, "--output", bundle)
    content = b"".join(file.read_bytes() for file in bundle.rglob("*") if file.is_file())
    assert b"198.18.0.30" not in content
    words = ("replay", bundle, "--inventory", INVENTORY, "--results", tmp_path / "again", "--json")
    assert json.loads(vmtoll(*words, errors=False))["scenarios"]


def lost_and_again(records: Records) -> None:
    """The trial that was lost is measured again, and says why."""
    assert [record.attempt for record in records] == [1, 2], [record.findings for record in records]
    lost, again = records
    assert lost.validity is Validity.INVALID
    assert Code.HOST_LOST in lost.codes <= ACCIDENTS
    assert again.accelerator is Accelerator.KVM
    assert number(primary(again).throughput_rps) > 0


def pulled(tmp_path: Path, inject: Callable[[], object]) -> Records:
    """A trial in whose middle something happens."""
    return measured(tmp_path, once(Phase.MEASURING, inject, "h2load"), **EXPERIMENT)


@pytest.mark.injects(Code.HOST_LOST)
def test_the_kvm_host_reboots_with_its_guest(machines: Ssh, tmp_path: Path) -> None:
    boot = "cat /proc/sys/kernel/random/boot_id"
    before = machines("host", boot), machines("guest", boot)
    lost_and_again(pulled(tmp_path, lambda: machines("host", REBOOT)))
    assert machines("host", boot) != before[0]
    assert machines("guest", boot) != before[1]


@pytest.mark.injects(Code.HOST_LOST)
def test_the_guest_is_pulled_down(machines: Ssh, tmp_path: Path) -> None:
    lost_and_again(pulled(tmp_path, lambda: machines("host", "virsh -c qemu:///system destroy guest")))


@pytest.mark.injects(Code.HOST_LOST)
def test_the_hosts_cable_is_pulled(machines: Ssh, tmp_path: Path) -> None:
    """For half a minute; the guest lives on behind it."""
    boot = machines("guest", "cat /proc/sys/kernel/random/boot_id")
    card = subprocess.run([*LIBVIRT, "domiflist", "host"], check=True, capture_output=True, text=True).stdout
    mac = card.split()[-1]

    def pull() -> None:
        subprocess.run([*LIBVIRT, "domif-setlink", "host", mac, "down"], check=True, capture_output=True)
        back = [*LIBVIRT, "domif-setlink", "host", mac, "up"]
        threading.Timer(30.0, lambda: subprocess.run(back, check=True, capture_output=True)).start()

    records = pulled(tmp_path, pull)
    lost_and_again(records)
    assert finding(records[0], Code.HOST_LOST).detail
    assert machines("guest", "cat /proc/sys/kernel/random/boot_id") == boot


def test_a_machine_that_hangs_is_reset_for_the_next_test(machines: Ssh) -> None:
    boot = machines("client", "cat /proc/sys/kernel/random/boot_id")
    crash = "echo 0 >/proc/sys/kernel/panic; echo c >/proc/sysrq-trigger"
    with pytest.raises(subprocess.TimeoutExpired):
        subprocess.run(["ssh", "-F", LAB / "ssh_config", "client", crash], timeout=20, check=False)
    assert restore() == ["client"]
    assert machines("client", "cat /proc/sys/kernel/random/boot_id") != boot

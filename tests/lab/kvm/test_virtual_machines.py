"""A lab of virtual machines: hosts with kernels of their own, systemd as their first process, a guest under KVM inside.

What the lab's host carries is run by the code that runs on real hosts. Where the host itself is emulated, this shows
that the path works, and not what KVM costs.
"""

import hashlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.lab.faults import measured
from tests.lab.kvm.machines import INVENTORY
from tests.lab.records import number, primary
from tests.lab.the_lab import Ssh
from tests.support.records import BASELINE
from vmtoll.builds import tools
from vmtoll.builds.suite import lab_release
from vmtoll.machines.connection import AgentLine
from vmtoll.model.trial import Accelerator
from vmtoll.provisioning.guests import make_guests
from vmtoll.shell import Changes
from vmtoll.spec.inventory import hosts_by_role, read_inventory

pytestmark = [pytest.mark.lab, pytest.mark.kvm, pytest.mark.kvm_quick]


def test_the_host_is_a_separate_machine(machines: Ssh) -> None:
    assert machines("host", "cat /proc/1/comm") == "systemd"
    assert machines("host", "systemctl is-active libvirtd.socket dbus ssh").split() == ["active"] * 3
    assert machines("host", "uname -r") == machines("guest", "uname -r"), "of the same image"
    assert (
        machines("host", "cat /proc/sys/kernel/random/boot_id")
        != Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    )


def test_the_client_has_every_compiled_tool(machines: Ssh) -> None:
    for tool in tools.binaries():
        digest = hashlib.sha256(Path(tool["binary"]).read_bytes()).hexdigest()
        assert machines("client", f"sha256sum /usr/local/bin/{tool['name']}").split()[0] == digest


def test_the_guest_runs_under_kvm_with_vhost(machines: Ssh) -> None:
    domain = machines("host", "virsh -c qemu:///system dumpxml guest")
    assert "<domain type='kvm'" in domain
    assert machines("guest", "systemd-detect-virt") == "kvm"
    assert machines("host", "ls /sys/module | grep -E '^kvm_(amd|intel)$'")
    assert machines("host", "ps -eLo comm | grep -c '^vhost-' || true") != "0"


def test_trials_on_metal_and_under_kvm_with_counters(machines: Ssh, tmp_path: Path) -> None:
    """Of the guest, the host counts exits and the CPU of vhost threads."""
    records = measured(tmp_path, environments=["metal", "kvm-default"], duration_s=3.0)
    assert {record.arm.environment for record in records} == {"metal", "kvm-default"}
    for record in records:
        load = primary(record)
        assert load.successful and not load.failed, record.findings
        if record.arm.environment == BASELINE.environment:
            assert record.accelerator is Accelerator.NONE
            continue
        assert record.accelerator is Accelerator.KVM
        assert number(load.host_cpu_us_per_request) > number(load.server_cpu_us_per_request) * 0.5
        assert number(record.resources.host_exits_per_request) > 0
        assert number(record.resources.host_vhost_cpu_us_per_request) > 0


# CPUs of the host and of the guest busy at the same time, for so long.
BUSY_S = 10
BUSY = f"for cpu in $(seq $(nproc)); do timeout {BUSY_S} sh -c 'while :; do :; done' & done; wait; true"
STEAL_TICKS = "awk '$1 == \"cpu\" { print $9 }' /proc/stat"
TICK_S = 0.01


def test_what_the_virtual_cpus_wait_is_the_guests_steal(machines: Ssh) -> None:
    """Beside a hog on the host's CPUs; before and after it, nothing runs that could wait."""
    by_role = hosts_by_role(read_inventory(INVENTORY))
    (host,), (guest,) = by_role["kvm_host"], by_role["kvm_guest"]
    line = AgentLine(host)
    line.open()

    def waited_s() -> float:
        usage = line.call("usage", domains=[guest.vars.domain], uri=host.libvirt_uri)["domains"][guest.vars.domain]
        return float(sum(usage["waits_ns"]["vcpu"].values())) / 1e9

    try:
        wait_before_s, steal_before_s = waited_s(), int(machines("guest", STEAL_TICKS)) * TICK_S
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda name: machines(name, BUSY), ("host", "guest")))
        wait_s, steal_s = waited_s() - wait_before_s, int(machines("guest", STEAL_TICKS)) * TICK_S - steal_before_s
        vcpus = int(machines("guest", "nproc"))
    finally:
        line.close()
    assert wait_s > 0.2 * BUSY_S, "the hog took what the guest waited for"
    assert wait_s == pytest.approx(steal_s, rel=0.1, abs=2 * TICK_S * vcpus)


def test_the_guest_is_left_as_it_is_when_it_is_provisioned_again(machines: Ssh) -> None:
    """`vmtoll lab up` has provisioned it by the same function."""
    boot, changes = machines("guest", "cat /proc/sys/kernel/random/boot_id"), Changes()
    make_guests(read_inventory(INVENTORY), INVENTORY, [], lab_release(), quiet=True, changes=changes)
    assert changes == {"host": [], "guest": []}
    assert machines("guest", "cat /proc/sys/kernel/random/boot_id") == boot

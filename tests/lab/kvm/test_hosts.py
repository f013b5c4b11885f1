"""What is done to real hosts, done to a KVM host with a kernel of its own: checks, settings, provisioning."""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.lab.faults import changed
from tests.lab.kvm.machines import INVENTORY, copied, preflight, provision, vmtoll
from tests.lab.the_lab import LAB, Ssh
from vmtoll.commands.run import run_one
from vmtoll.model.errors import InventoryError
from vmtoll.paths import PROJECT

pytestmark = [pytest.mark.lab, pytest.mark.kvm]

SETTINGS = {"hugepages_2m": 64, "halt_poll_ns": 50_000, "irq_affinity": "0", "tuned_profile": "network-latency"}
STATE = (
    "cat /proc/sys/vm/nr_hugepages /sys/module/kvm/parameters/halt_poll_ns; tuned-adm active; "
    "grep . /proc/irq/[0-9]*/smp_affinity_list"
)


def changed_inventory(folder: Path, **host: Any) -> Path:
    """The lab's inventory with other variables of the KVM host."""
    tree = yaml.safe_load((LAB / "inventory.yml").read_text())
    tree["all"]["children"]["kvm_hosts"]["hosts"]["host"] |= host
    file = folder / "inventory.yml"
    file.write_text(yaml.safe_dump(tree))
    return file


def levels(findings: list[dict[str, Any]], check: str) -> dict[str, str]:
    """Machine → level, of one check."""
    return {finding["machine"]: finding["level"] for finding in findings if finding["check"] == check}


def test_the_machines_are_fit(machines: Ssh) -> None:
    findings = preflight()
    assert [finding for finding in findings if finding["level"] == "fail"] == []
    assert levels(findings, "kvm") == {"host": "ok"}
    assert levels(findings, "guests")["guest"] == "ok"
    assert set(levels(findings, "reach")) == {"client", "metal", "guest", "host"}


def test_a_guest_that_is_called_metal_is_refused(machines: Ssh, tmp_path: Path) -> None:
    """By the UUID that its host's libvirt knows, also where no machine of the run is said to be on that host."""
    tree = yaml.safe_load((LAB / "inventory.yml").read_text())
    children = tree["all"]["children"]["suts"]["children"]
    (guest,) = children.pop("kvm_guests")["hosts"].values()
    children["metal_hosts"]["hosts"] = {"box": {"ansible_host": guest["ansible_host"], "vmtoll_environment": "metal"}}
    (tmp_path / "inventory.yml").write_text(yaml.safe_dump(tree))
    registry = copied(tmp_path / "project")
    smoke = yaml.safe_load((PROJECT / "workloads" / "experiments" / "smoke.yml").read_text())
    alone = registry.experiment_file("alone")
    del smoke["shares_of"]
    alone.write_text(yaml.safe_dump(smoke | {"environments": ["metal"], "workloads": ["site-siege"]}))
    with pytest.raises(InventoryError, match="box is in the group `metal_hosts`, and is a guest of host; move it"):
        run_one("alone", tmp_path / "inventory.yml", tmp_path / "results", registry=registry)


# What makes it so, what makes it well again, the check that tells it, on which machine, and what it says.
FAULTS = {
    "the guest is off": (
        "host", "virsh destroy guest", "virsh start guest", "guests", "guest", "",
    ),
    "no KVM": (
        "host", "modprobe -r kvm_amd", "modprobe kvm_amd", "kvm", "host", "",
    ),
    # Not of the host: its guest's disk lies there, and QEMU stops a guest that cannot write.
    "a full disk": (
        "client", "fallocate -l $(($(stat -fc '%f * %S' /) - 100000000)) /full", "rm /full",
        "space", "client", "",
    ),
    "a server on the port": (
        "metal", "systemctl start vmtoll-lighttz", "systemctl stop vmtoll-lighttz", "free", "metal", "8080",
    ),
    "a clock that is off": ("metal", "date -s '+100 seconds'", "date -s '-100 seconds'", "clock", "metal", "ahead"),
    "another site": (
        "metal", "mv /srv/vmtoll/sites/office /srv/vmtoll/kept", "mv /srv/vmtoll/kept /srv/vmtoll/sites/office",
        "versions", "", "",
    ),
}  # fmt: skip


# One preflight, of minutes on emulated machines, sees all of these.
TOGETHER = [
    ("a full disk", "a server on the port", "a clock that is off", "another site"),
    ("the guest is off", "no KVM"),
]


@pytest.mark.parametrize("faults", TOGETHER, ids=["machines", "host"])
def test_each_fault_is_seen(machines: Ssh, faults: Sequence[str]) -> None:
    with ExitStack() as injected:
        for machine, inject, repair, *_ in map(FAULTS.__getitem__, faults):
            injected.enter_context(changed(machines, {"metal": "host"}.get(machine, machine), inject, repair))
        findings = preflight()
    for _, _, _, check, where, text in map(FAULTS.__getitem__, faults):
        bad = [finding for finding in findings if finding["check"] == check and finding["level"] == "fail"]
        assert any(where in finding["machine"] and text in finding["found"] for finding in bad), (check, findings)


def test_a_host_is_tuned_and_set_back_exactly(machines: Ssh, tmp_path: Path) -> None:
    inventory = changed_inventory(tmp_path, vmtoll_tuning=SETTINGS)
    machines("host", "systemctl start tuned")  # at boot it would cost each lab a minute
    before = machines("host", STATE)
    vmtoll("tune", "--inventory", inventory, "--limit", "host")
    try:
        tuned = machines("host", STATE)
        assert tuned.splitlines()[:2] == ["64", "50000"]
        assert "network-latency" in tuned
    finally:
        vmtoll("untune", "--inventory", inventory, "--limit", "host")
    assert machines("host", STATE) == before


def test_settings_that_a_virtual_machine_lacks_are_named_and_nothing_is_changed(machines: Ssh, tmp_path: Path) -> None:
    """It has no clock rate of its own, so no governor."""
    inventory = changed_inventory(tmp_path, vmtoll_tuning={**SETTINGS, "governor": "performance"})
    before = machines("host", STATE)
    assert "governor" in vmtoll("tune", "--inventory", inventory, "--limit", "host", status=2)
    assert machines("host", STATE) == before


# What the image lacks: the guest's load tools, and cubic, which its first machine, a container, may not choose.
FIRST_TASKS = {
    "load_tools : Copy the load tools that were built on the controller",
    "machine_baseline : Place the kernel parameters",
    "machine_baseline : Apply the kernel parameters",
}


def test_provisioning_brings_what_the_image_lacks_and_then_changes_nothing(machines: Ssh) -> None:
    first = provision()
    assert {change["task"] for changes in first.values() for change in changes} <= FIRST_TASKS
    assert provision() == {name: [] for name in ("client", "guest", "host", "metal")}


def test_kernel_parameters_are_restored_as_they_were(machines: Ssh) -> None:
    client: list[str | Path] = ["--inventory", INVENTORY, "--limit", "client"]
    machines("client", "rm -f /var/lib/vmtoll/provisioning.json /etc/sysctl.d/60-vmtoll.conf")
    machines("client", "sysctl -qw net.ipv4.tcp_tw_reuse=0 net.core.somaxconn=1234")
    vmtoll("provision", *client, "--yes")
    assert machines("client", "sysctl -n net.ipv4.tcp_tw_reuse net.core.somaxconn").split() == ["1", "4096"]
    assert "8 kernel parameters" in vmtoll("status", *client)
    vmtoll("unprovision", *client, "--yes")
    assert machines("client", "sysctl -n net.ipv4.tcp_tw_reuse net.core.somaxconn").split() == ["0", "1234"]
    machines("client", "test ! -e /etc/sysctl.d/60-vmtoll.conf")
    vmtoll("provision", *client, "--yes")  # as the other tests want it

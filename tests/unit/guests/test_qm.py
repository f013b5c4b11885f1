"""Each change of a guest of Proxmox VE as a command of `qm`, with the way back."""

from collections.abc import Sequence
from typing import Any

import pytest

from vmtoll.guests.diagnosis import steps_of
from vmtoll.guests.diagnosis.qm import QmWriter
from vmtoll.hypervisors.proxmox_config import guest_of_config, parse_config
from vmtoll.model.diagnosis import State, Step, Tuning

FACTS: Any = {
    "kvm_device": True, "vhost_net": True, "cpus": list(range(8)), "hugepages": {"size_kib": 2048, "free": 100},
    "transparent_hugepages": "madvise", "halt_poll_ns": 200000, "bridges": ["fwbr101i0", "vmbr0"], "cgroup_version": 2,
    "flags": ["aes", "avx2", "popcnt"], "groups": [], "cores": {}, "nodes": {}, "architecture": "x86_64",
}  # fmt: skip
GOOD = """cores: 2
affinity: 2,3
cpu: host
hugepages: 2
memory: 1024
net0: virtio=BC:24:11:2E:C5:4B,bridge=vmbr0,queues=2
numa: 1
ostype: win11
scsi0: local-lvm:vm-101-disk-0,size=32G
scsihw: virtio-scsi-single
"""


def steps(text: str, **facts: Any) -> tuple[Step, ...]:
    config = parse_config("101", text)
    known: Any = {**FACTS, **facts}
    now, next_config = guest_of_config(config), config.later or config
    later = guest_of_config(next_config)
    return steps_of(now, known, QmWriter(next_config, later, known), later if config.later else None)


def lacking(text: str, **facts: Any) -> dict[Tuning, Step]:
    return {step.tuning: step for step in steps(text, **facts) if step.state is State.LACKING}


def changed(*lines: str) -> str:
    """The good configuration with these lines instead of its own of the same names, without those that are empty."""
    names = {line.split(":")[0] for line in lines}
    kept = [line for line in GOOD.splitlines() if line.split(":")[0] not in names]
    return "\n".join([*kept, *(line for line in lines if not line.endswith(":"))]) + "\n"


def test_a_tuned_guest_needs_no_change() -> None:
    assert lacking(GOOD) == {}


@pytest.mark.parametrize(
    ("lines", "tuning", "apply", "back"),
    [
        (["kvm: 0"], Tuning.KVM, "qm set 101 --kvm 1", "qm set 101 --kvm 0"),
        (["cpulimit: 1.5", "cpuunits: 50"], Tuning.CPU_LIMIT, "qm set 101 --delete cpulimit,cpuunits",
         "qm set 101 --cpulimit 1.5 --cpuunits 50"),
        (["cpulimit: 1", "cpuunits: 2000"], Tuning.CPU_LIMIT, "qm set 101 --delete cpulimit",
         "qm set 101 --cpulimit 1"),
        (["cpulimit: 2", "cpuunits: 50"], Tuning.CPU_LIMIT, "qm set 101 --delete cpuunits",
         "qm set 101 --cpuunits 50"),
        (["cpu:"], Tuning.CPU_MODEL, "qm set 101 --cpu host", "qm set 101 --delete cpu"),
        (["cpu: x86-64-v2-AES,flags=-aes;+nested-virt;-spec-ctrl,hidden=1"], Tuning.CPU_MODEL,
         "qm set 101 --cpu 'host,flags=+nested-virt;-spec-ctrl,hidden=1'",
         "qm set 101 --cpu 'x86-64-v2-AES,flags=-aes;+nested-virt;-spec-ctrl,hidden=1'"),
        (["args: -cpu kvm64 -smbios 'type=0,vendor=A B'"], Tuning.CPU_MODEL,
         """qm set 101 --args '-cpu host -smbios '"'"'type=0,vendor=A B'"'"''""",
         """qm set 101 --args '-cpu kvm64 -smbios '"'"'type=0,vendor=A B'"'"''"""),
        (["args: -cpu host,+kvm_pv_eoi,kvm=off -cpu host,kvm=off"], Tuning.TIMERS,
         "qm set 101 --args '-cpu host,+kvm_pv_eoi,kvm=off -cpu host'",
         "qm set 101 --args '-cpu host,+kvm_pv_eoi,kvm=off -cpu host,kvm=off'"),
        (["cpu: host,hidden=1"], Tuning.TIMERS, "qm set 101 --cpu host", "qm set 101 --cpu host,hidden=1"),
        (["net0: virtio=BC:24:11:2E:C5:4B,bridge=vmbr0,queues=2,rate=5"], Tuning.NETWORK_LIMIT,
         "qm set 101 --net0 virtio=BC:24:11:2E:C5:4B,bridge=vmbr0,queues=2",
         "qm set 101 --net0 virtio=BC:24:11:2E:C5:4B,bridge=vmbr0,queues=2,rate=5"),
        (["net0: e1000=BC:24:11:2E:C5:4B,bridge=vmbr0,firewall=1"], Tuning.CARD,
         "qm set 101 --net0 virtio=BC:24:11:2E:C5:4B,bridge=vmbr0,firewall=1",
         "qm set 101 --net0 e1000=BC:24:11:2E:C5:4B,bridge=vmbr0,firewall=1"),
        (["net0: virtio=BC:24:11:2E:C5:4B,queues=2"], Tuning.NETWORK,
         "qm set 101 --net0 virtio=BC:24:11:2E:C5:4B,queues=2,bridge=vmbr0",
         "qm set 101 --net0 virtio=BC:24:11:2E:C5:4B,queues=2"),
        (["net0: virtio=BC:24:11:2E:C5:4B,bridge=vmbr0"], Tuning.MULTIQUEUE,
         "qm set 101 --net0 virtio=BC:24:11:2E:C5:4B,bridge=vmbr0,queues=2",
         "qm set 101 --net0 virtio=BC:24:11:2E:C5:4B,bridge=vmbr0"),
        (["scsi0: a:vm-101-disk-0,cache=writeback,size=1G"], Tuning.CACHE,
         "qm set 101 --scsi0 a:vm-101-disk-0,size=1G", "qm set 101 --scsi0 a:vm-101-disk-0,cache=writeback,size=1G"),
        (["scsi0: a:vm-101-disk-0,iops=100,mbps_rd=5,mbps_rd_max=9,size=1G"], Tuning.DISK_LIMIT,
         "qm set 101 --scsi0 a:vm-101-disk-0,size=1G",
         "qm set 101 --scsi0 a:vm-101-disk-0,iops=100,mbps_rd=5,mbps_rd_max=9,size=1G"),
        (["scsihw:"], Tuning.DISK_BUS, "qm set 101 --scsihw virtio-scsi-single", "qm set 101 --delete scsihw"),
        (["scsi0:", "ide0: a:vm-101-disk-0,model=x,size=1G", "boot: order=ide0;net0"], Tuning.DISK_BUS,
         "qm set 101 --delete ide0; qm set 101 --boot 'order=scsi0;net0' --scsi0 a:vm-101-disk-0,size=1G",
         "qm set 101 --delete scsi0; qm set 101 --boot 'order=ide0;net0' --ide0 a:vm-101-disk-0,model=x,size=1G"),
        (["scsi0:", "sata0: a:1,size=1G", "sata1: a:2,size=1G", "bootdisk: sata1"], Tuning.DISK_BUS,
         "qm set 101 --delete sata1; qm set 101 --bootdisk scsi1 --scsi1 a:2,size=1G",
         "qm set 101 --delete scsi1; qm set 101 --bootdisk sata1 --sata1 a:2,size=1G"),
        (["hugepages:", "numa:"], Tuning.HUGE_PAGES, "qm set 101 --numa 1 --hugepages 2",
         "qm set 101 --delete numa,hugepages"),
        (["affinity: 0"], Tuning.PINNING, "qm set 101 --affinity 1,2", "qm set 101 --affinity 0"),
    ],
)  # fmt: skip
def test_each_change_and_its_way_back(lines: Sequence[str], tuning: Tuning, apply: str, back: str) -> None:
    step = lacking(changed(*lines))[tuning]
    assert (step.apply, step.undo) == (apply, back)
    assert (step.changes, step.xml) == ((), "")


def test_a_quota_around_the_scope_is_lifted_by_systemd() -> None:
    groups = [
        {"name": "101.scope", "cpus": 1.5, "memory_bytes": None},
        {"name": "qemu.slice", "cpus": 1.0, "memory_bytes": None},
    ]
    step = lacking(GOOD, groups=groups)[Tuning.CPU_LIMIT]
    assert step.apply == "systemctl set-property qemu.slice CPUQuota="
    assert step.undo == "systemctl set-property qemu.slice CPUQuota=100%"


def test_an_hpet_goes_by_an_argument_of_qemu() -> None:
    step = lacking(changed("args: -foo bar", "ostype: other"))[Tuning.TIMERS]
    assert (step.apply, step.undo) == (
        "qm set 101 --args '-foo bar -machine hpet=off'", "qm set 101 --args '-foo bar'",
    )  # fmt: skip

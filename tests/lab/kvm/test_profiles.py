"""Guests of every profile under KVM, looked at from inside and from their host."""

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from tests.lab.the_lab import LAB, Ssh
from vmtoll.guests import profiles
from vmtoll.lab.guests import make_guests
from vmtoll.lab.suite import chosen
from vmtoll.spec.inventory import read_inventory

pytestmark = [pytest.mark.lab, pytest.mark.kvm]

LOOK = """
import json, os, pathlib
disk = next(line.split()[0] for line in open("/proc/mounts") if line.split()[1] == "/")
way = pathlib.Path("/sys/class/block", os.path.basename(os.path.realpath(disk))).resolve()
print(json.dumps({
    "nic": pathlib.Path("/sys/class/net/eth0/device/driver").resolve().name,
    "disk": [(folder / "driver").resolve().name for folder in way.parents if (folder / "driver").exists()],
    "queues": len(list(pathlib.Path("/sys/class/net/eth0/queues").glob("rx-*"))),
    "cmdline": open("/proc/cmdline").read().split(),
}))
"""


@dataclass(frozen=True)
class Expected:
    """Drivers that the guest sees, and how often a word stands in its domain."""

    nic: str = "virtio_net"
    disk: str = "virtio_blk"
    vhost: bool = True
    queues: int = 1
    word: str = "<memballoon model='none'/>"


PROFILES = {
    "kvm-2009": Expected("e1000", "ata_piix", vhost=False),
    "kvm-virtio-nvhost": Expected(vhost=False),
    "kvm-default": Expected(),
    "kvm-multiqueue": Expected(queues=2),
    "kvm-pinned": Expected(word="<vcpupin vcpu='0' cpuset='0'/>"),
    "kvm-hugepages": Expected(word="<hugepages/>"),
    "kvm-step-multiqueue": Expected(queues=2),
    "kvm-step-pinned": Expected(word="<vcpupin vcpu='0' cpuset='0'/>"),
    "kvm-step-hugepages": Expected(word="<hugepages/>"),
    "kvm-halt-poll": Expected(word="idle=poll"),
    "kvm-tuned": Expected(word="<hugepages/>"),
    "kvm-macvtap": Expected(word="<source dev='up0' mode='bridge'/>"),
    "kvm-virtio-scsi": Expected(disk="virtio_scsi"),
    "kvm-ide": Expected(disk="ata_piix"),
}
# What cannot be here: QEMU's igb, which has virtual functions, is younger than this QEMU.
NOT_HERE = {"kvm-sriov"}
NAME, ADDRESS = "other", "198.18.0.40"


def test_every_profile_is_tested() -> None:
    assert set(profiles.names()) == set(PROFILES) | NOT_HERE


@pytest.fixture(scope="module")
def host(machines: Ssh) -> Iterator[Ssh]:
    """The host without its guest, with huge pages for one and a card for macvtap; as it was afterwards."""
    machines("host", "virsh -c qemu:///system destroy guest; virsh -c qemu:///system undefine guest")
    machines("host", "ip link add up0 type veth peer name sw-up && ip link set sw-up master br0 up")
    machines("host", "ip link set up0 up")
    machines("host", "systemctl start dev-hugepages.mount; echo 3 >/proc/sys/vm/drop_caches")
    machines("host", "sysctl -w vm.compact_memory=1 vm.nr_hugepages=520")
    yield machines
    machines("host", "sysctl -w vm.nr_hugepages=0; systemctl stop dev-hugepages.mount; ip link del up0")
    make_guests(read_inventory(LAB / "inventory.yml"), LAB / "inventory.yml", [], chosen(), quiet=True)


def of_one_guest(folder: Path, profile: str, state: str = "present") -> Path:
    """The lab's inventory with one guest, of this profile."""
    tree = yaml.safe_load((LAB / "inventory.yml").read_text())
    hosts = tree["all"]["children"]["suts"]["children"]["kvm_guests"]["hosts"]
    (own,) = hosts.values()
    environment = {"vmtoll_environment": profile, "vmtoll_profile": profile, "vmtoll_domain": NAME, "vmtoll_mac": ""}
    hosts.clear()
    hosts[NAME] = own | environment | {"ansible_host": ADDRESS, "vmtoll_uplink": "up0", "vmtoll_state": state}
    if PROFILES[profile].queues > 1:
        hosts[NAME]["vmtoll_vcpus"] = 2
    file = folder / f"{profile}-{state}.yml"
    file.write_text(yaml.safe_dump(tree))
    return file


@pytest.mark.parametrize("profile", PROFILES)
def test_the_guest_matches_its_profile(host: Ssh, tmp_path: Path, profile: str) -> None:
    expected = PROFILES[profile]
    there, gone = of_one_guest(tmp_path, profile), of_one_guest(tmp_path, profile, "absent")
    try:
        make_guests(read_inventory(there), there, [], chosen(), quiet=True)
        domain = host("host", f"virsh -c qemu:///system dumpxml {NAME}")
        assert "<domain type='kvm'" in domain
        assert expected.word in domain
        reach = ["ssh", "-F", LAB / "ssh_config", ADDRESS, "python3", "-"]
        seen = json.loads(subprocess.run(reach, input=LOOK, capture_output=True, text=True, check=True).stdout)
        assert seen["nic"] == expected.nic
        assert expected.disk in seen["disk"]
        assert seen["queues"] == expected.queues
        assert ("idle=poll" in seen["cmdline"]) == (profile in ("kvm-halt-poll", "kvm-tuned"))
        assert (host("host", "ps -eLo comm | grep -c '^vhost-' || true") != "0") == expected.vhost
        if "<hugepages/>" in domain:
            free = int(host("host", "awk '/HugePages_Free/ { print $2 }' /proc/meminfo"))
            rest = int(host("host", "awk '/HugePages_Rsvd/ { print $2 }' /proc/meminfo"))
            assert free - rest < 20, "its memory lies in them"
    finally:
        make_guests(read_inventory(gone), gone, [], chosen(), quiet=True)
    assert NAME not in host("host", "virsh -c qemu:///system list --all --name")

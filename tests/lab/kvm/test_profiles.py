"""Guests of every profile under KVM, looked at from inside and from their host."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from tests.lab.kvm.guests import SEEN, Seen, domain_of, look
from tests.lab.kvm.machines import restore
from tests.lab.the_lab import LAB, Ssh
from vmtoll.builds.suite import lab_release
from vmtoll.guests import profiles
from vmtoll.provisioning.guests import make_guests
from vmtoll.spec.inventory import read_inventory

pytestmark = [pytest.mark.lab, pytest.mark.kvm]


@dataclass(frozen=True)
class Expected:
    """Drivers that the guest sees, its virtual CPUs, each with a queue (0: as many as CPUs), a word of its domain."""

    nic: str = "virtio_net"
    disk: str = "virtio_blk"
    vhost: bool = True
    vcpus: int = 0
    word: str = "<memballoon model='none'/>"


PROFILES = {
    "kvm-2009": Expected("e1000", "ata_piix", vhost=False),
    "kvm-virtio-nvhost": Expected(vhost=False),
    "kvm-default": Expected(),
    "kvm-multiqueue": Expected(vcpus=2),
    "kvm-pinned": Expected(word="<vcpupin vcpu='0' cpuset='0'/>"),
    "kvm-hugepages": Expected(word="<hugepages/>"),
    "kvm-step-multiqueue": Expected(vcpus=2),
    "kvm-step-pinned": Expected(word="<vcpupin vcpu='0' cpuset='0'/>"),
    "kvm-step-hugepages": Expected(word="<hugepages/>"),
    "kvm-halt-poll": Expected(word="idle=poll"),
    "kvm-tuned": Expected(word="<hugepages/>"),
    "kvm-macvtap": Expected(word="<source dev='up0' mode='bridge'/>"),
    "kvm-virtio-scsi": Expected(disk="virtio_scsi"),
    "kvm-ide": Expected(disk="ata_piix"),
}
# What cannot be here: QEMU's igb, which has virtual functions, is younger than this QEMU; this lab has one image, with
# one kernel.
NOT_HERE = {
    "kvm-sriov", "kvm-default-kernel-cloud-amd64", "kvm-default-release-bookworm", "kvm-default-release-trixie",
}  # fmt: skip
NAME, ADDRESS = "other", "198.18.0.40"


def test_every_profile_is_tested() -> None:
    assert set(profiles.names()) == set(PROFILES) | NOT_HERE


@pytest.fixture(scope="module")
def host(machines: Ssh) -> Iterator[Ssh]:
    """The host without its guest, with huge pages for one and a card for macvtap; as it was afterwards."""
    restore()
    SEEN.setdefault(domain_of("kvm-default"), look(machines, "guest", "guest"))
    machines("host", "virsh -c qemu:///system destroy guest; virsh -c qemu:///system undefine guest")
    machines("host", "ip link add up0 type veth peer name sw-up && ip link set sw-up master br0 up")
    machines("host", "ip link set up0 up")
    machines("host", "systemctl start dev-hugepages.mount; echo 3 >/proc/sys/vm/drop_caches")
    machines("host", "sysctl -w vm.compact_memory=1 vm.nr_hugepages=520")
    yield machines
    machines("host", "sysctl -w vm.nr_hugepages=0; systemctl stop dev-hugepages.mount; ip link del up0")
    make_guests(read_inventory(LAB / "inventory.yml"), LAB / "inventory.yml", [], lab_release(), quiet=True)


def of_one_guest(folder: Path, profile: str, state: str = "present") -> Path:
    """The lab's inventory with one guest, of this profile."""
    tree = yaml.safe_load((LAB / "inventory.yml").read_text())
    hosts = tree["all"]["children"]["suts"]["children"]["kvm_guests"]["hosts"]
    (own,) = hosts.values()
    environment = {"vmtoll_environment": profile, "vmtoll_profile": profile, "vmtoll_domain": NAME, "vmtoll_mac": ""}
    hosts.clear()
    hosts[NAME] = own | environment | {"ansible_host": ADDRESS, "vmtoll_uplink": "up0", "vmtoll_state": state}
    hosts[NAME]["vmtoll_vcpus"] = PROFILES[profile].vcpus
    file = folder / f"{profile}-{state}.yml"
    file.write_text(yaml.safe_dump(tree))
    return file


def seen_anew(host: Ssh, folder: Path, profile: str) -> Seen:
    """Make a guest of this profile, look at it, remove it."""
    there, gone = of_one_guest(folder, profile), of_one_guest(folder, profile, "absent")
    try:
        make_guests(read_inventory(there), there, [], lab_release(), quiet=True)
        return look(host, NAME, ADDRESS)
    finally:
        make_guests(read_inventory(gone), gone, [], lab_release(), quiet=True)
        assert NAME not in host("host", "virsh -c qemu:///system list --all --name")


@pytest.mark.parametrize("profile", PROFILES)
def test_the_guest_matches_its_profile(host: Ssh, tmp_path: Path, profile: str) -> None:
    """Profiles that come to the same domain on the lab's host share a guest, also those of the experiments' labs."""
    expected = PROFILES[profile]
    domain = domain_of(profile, expected.vcpus)
    seen = SEEN[domain] if domain in SEEN else SEEN.setdefault(domain, seen_anew(host, tmp_path, profile))
    assert "<domain type='kvm'" in seen.domain
    assert expected.word in seen.domain
    assert seen.nic == expected.nic
    assert expected.disk in seen.disk
    assert seen.queues == max(1, expected.vcpus)
    assert ("idle=poll" in seen.cmdline) == (profile in ("kvm-halt-poll", "kvm-tuned"))
    assert seen.vhost == expected.vhost
    if "<hugepages/>" in seen.domain:
        assert seen.free_huge_pages < 20, "its memory lies in them"

"""A guest that an inventory describes by a profile, and the errors of an incomplete description."""

from pathlib import Path
from typing import Any

import pytest

from vmtoll.guests.inventory import Guest
from vmtoll.guests.inventory import guest as guest_of
from vmtoll.model.errors import InventoryError, VmtollError
from vmtoll.model.inventory import Host
from vmtoll.provisioning.guests import guests_with_profile

SAID: dict[str, Any] = {
    "ansible_host": "192.0.2.31",
    "vmtoll_environment": "kvm-tuned",
    "vmtoll_profile": "kvm-tuned",
    "vmtoll_kvm_host": "big1",
    "vmtoll_cpus": "2-5,8",
    "vmtoll_prefix": 24,
    "vmtoll_gateway": "192.0.2.1",
}


def guest(name: str, variables: dict[str, Any]) -> Guest:
    return guest_of(Host(name, "kvm_guest", variables))


def inventory(**variables: Any) -> dict[str, Any]:
    return {
        "_meta": {"hostvars": {"guest1": {**SAID, **variables}, "own": {"ansible_host": "192.0.2.32"}}},
        "kvm_guests": {"hosts": ["guest1", "own"]},
        "kvm_hosts": {"hosts": ["big1"]},
    }


def test_defaults_follow_from_given_values() -> None:
    one = guest("guest1", SAID)
    assert (one.cpu_list, one.vcpu_count, one.libvirt_name) == ([2, 3, 4, 5, 8], 5, "guest1")
    assert one.values()["emulator_cpus"] == "2-5,8"
    assert one.ip() == "ip=192.0.2.31::192.0.2.1:255.255.255.0:guest1:eth0:off"
    assert one.public_key == "~/.ssh/id_ed25519.pub"
    assert guest("guest1", {**SAID, "ansible_ssh_private_key_file": "/k/lab"}).public_key == "/k/lab.pub"


def test_a_mac_is_made_of_the_name_and_stays() -> None:
    macs = {guest(name, SAID).values()["mac"] for name in ("guest1", "guest1", "guest2")}
    assert len(macs) == 2
    assert all(mac.startswith("52:54:00:") and len(mac) == 17 for mac in macs)


def test_numbers_may_be_texts_and_one_cpu_a_number() -> None:
    one = guest("guest1", {**SAID, "vmtoll_cpus": 3, "vmtoll_vcpus": "2", "vmtoll_memory_mib": "2048"})
    assert (one.cpus, one.vcpu_count, one.memory_mib) == ("3", 2, 2048)


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"vmtoll_cpus": "2-"}, r"guest1: vmtoll_cpus is '2-': string should match"),
        ({"vmtoll_memory_mib": 12}, r"guest1: vmtoll_memory_mib is 12: must be greater than or equal to 128"),
        ({"vmtoll_state": "gone"}, r"guest1: vmtoll_state is 'gone': must be 'present' or 'absent'"),
        ({"vmtoll_vf": "3b:2.1"}, r"guest1: vmtoll_vf is '3b:2.1': .*a PCI address such as 0000:3b:02.1"),
        ({"ansible_host": "guest1.example"}, r"guest1: vmtoll_address, vmtoll_prefix: 'guest1.example/24' does not"),
        ({"vmtoll_environment": "kvm-default"}, r"vmtoll_environment is 'kvm-default' and vmtoll_profile 'kvm-tuned'"),
        (
            {"vmtoll_profile": "kvm-tune", "vmtoll_environment": "kvm-tune"},
            r"unknown guest profile 'kvm-tune' \(did you",
        ),
        ({"vmtoll_kvm_host": "big2"}, r"inv.yml: guest1: vmtoll_kvm_host 'big2' is not in the group `kvm_hosts`"),
    ],
)
def test_a_mistake_is_named_with_host_and_variable(variables: dict[str, Any], said: str) -> None:
    with pytest.raises(VmtollError, match=said):
        guests_with_profile(inventory(**variables), Path("inv.yml"))


def test_cpus_are_required() -> None:
    said = {key: value for key, value in SAID.items() if key != "vmtoll_cpus"}
    with pytest.raises(InventoryError, match=r"guest1: vmtoll_cpus is missing$"):
        guest("guest1", said)


def test_a_guest_that_the_user_made_is_left_alone() -> None:
    assert [one.name for one in guests_with_profile(inventory(), Path("inv.yml"))] == ["guest1"]

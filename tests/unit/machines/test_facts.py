"""What is below a machine under test is what the host that carries it shows."""

import pytest

from tests.support.recorded_hosts import facts
from vmtoll.machines.facts import hardware_below, keep_handshakes
from vmtoll.model.facts import HostFacts, ServerFacts
from vmtoll.model.hardware import Hardware
from vmtoll.spec.machines import from_data

GUEST = {"vmtoll_environment": "kvm-default", "vmtoll_kvm_host": "big", "vmtoll_domain": "guest"}


def test_a_guest_has_the_hardware_of_its_host_and_not_what_it_sees_itself() -> None:
    inventory = from_data(
        {
            "_meta": {"hostvars": {"metal": {"vmtoll_environment": "metal"}, "guest": GUEST}},
            "clients": {"hosts": ["load"]},
            "metal_hosts": {"hosts": ["metal"]},
            "kvm_guests": {"hosts": ["guest"]},
            "kvm_hosts": {"hosts": ["big"]},
        },
        ["metal", "kvm-default"],
    )
    under_kvm = facts("firecracker-kvm_pvm")
    known = {"load": under_kvm, "metal": under_kvm, "guest": under_kvm, "big": facts("tcg-max")}
    below = {host.name: hardware_below(inventory, host, known) for host in inventory.hosts()}
    assert below == {
        "load": Hardware.NESTED, "metal": Hardware.NESTED, "guest": Hardware.EMULATED, "big": Hardware.EMULATED,
    }  # fmt: skip


@pytest.mark.parametrize(("domain", "seen", "below"), [("kvm", "kvm", Hardware.PVM), ("qemu", "qemu", Hardware.NESTED)])
def test_only_a_guest_that_kvm_pvm_runs_is_on_pvm(domain: str, seen: str, below: Hardware) -> None:
    inventory = from_data(
        {
            "_meta": {"hostvars": {"guest": GUEST}},
            "clients": {"hosts": ["load"]},
            "kvm_guests": {"hosts": ["guest"]},
            "kvm_hosts": {"hosts": ["big"]},
        },
        ["kvm-default"],
    )
    host = facts("firecracker-kvm_pvm").model_copy(update={"domains": {"guest": f"<domain type='{domain}'/>"}})
    known = {"load": host, "guest": HostFacts(virtualization=seen), "big": host}
    found = {host.name: hardware_below(inventory, host, known) for host in inventory.hosts()}
    assert found == {"load": Hardware.NESTED, "guest": below, "big": Hardware.NESTED}


def test_a_run_that_is_resumed_keeps_what_its_handshakes_came_to() -> None:
    seen = {"HTTP/2": {"cipher": "x"}}
    earlier = {
        "metal": HostFacts(servers={"nginx": ServerFacts(workers=1, tls=seen), "gone": ServerFacts(tls=seen)}),
        "away": HostFacts(servers={"nginx": ServerFacts(tls=seen)}),
        "client": HostFacts(),
    }
    current = {"metal": HostFacts(servers={"nginx": ServerFacts(workers=2)}), "client": HostFacts()}
    keep_handshakes(earlier, current)
    assert {name: facts.recorded for name, facts in current.items()} == {
        "metal": {"servers": {"nginx": {"workers": 2, "tls": seen}}}, "client": {},
    }  # fmt: skip

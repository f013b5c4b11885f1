"""Which machines are restored and which guests removed."""

from pathlib import Path

from vmtoll.provisioning.unprovision import UndoPlan
from vmtoll.spec.inventory import read_inventory

INVENTORY = """
all:
  children:
    clients: {hosts: {load1: }}
    metal_hosts: {hosts: {metal1: {vmtoll_environment: metal}}}
    kvm_hosts: {hosts: {big1: , big2: }}
    kvm_guests:
      hosts:
        made: {vmtoll_environment: kvm-default, vmtoll_profile: kvm-default, vmtoll_kvm_host: big1, vmtoll_cpus: "1",
               vmtoll_public_key: ~/.ssh/id.pub, ansible_host: 192.0.2.9}
        mine: {vmtoll_environment: kvm-tuned, vmtoll_kvm_host: big2, vmtoll_domain: mine}
"""


def undone(tmp_path: Path, limit: str | None = None) -> UndoPlan:
    path = tmp_path / "hosts.yml"
    path.write_text(INVENTORY)
    return UndoPlan.of(read_inventory(path, limit), path, limit)


def test_machines_are_restored_and_guests_that_were_made_removed(tmp_path: Path) -> None:
    all_of_it = undone(tmp_path)
    assert {host.name for host in all_of_it.machines} == {"load1", "metal1", "big1", "big2", "mine"}
    variables = all_of_it.variables()
    assert variables["unprovision_machines"] == "all:!made"
    assert variables["kvm_guest_addresses"] == ["192.0.2.9"]
    assert variables["kvm_guest_lists"] == {
        "big1": [{"name": "made", "state": "absent", "domain": "", "public_key": "~/.ssh/id.pub", "xml": ""}]
    }


def test_a_limit_leaves_other_hosts_alone(tmp_path: Path) -> None:
    assert {host.name for host in undone(tmp_path, "metal1,big2").machines} == {"metal1", "big2"}
    guest_alone = undone(tmp_path, "made")
    assert {host.name for host in guest_alone.machines} == {"big1"}
    assert guest_alone.pattern == "made:!made"


CONTAINERS = """
all:
  children:
    kvm_hosts: {hosts: {big1: }}
    containers:
      vars: {vmtoll_container_host: big1}
      hosts:
        box: {vmtoll_environment: container, vmtoll_cpus: "1", vmtoll_prefix: 24, ansible_host: 192.0.2.8}
        twin: {vmtoll_environment: container-host-network, vmtoll_cpus: "1", vmtoll_container: twin-1,
               ansible_host: 192.0.2.7, ansible_port: 2222}
        mine: {vmtoll_environment: container, vmtoll_container: shop}
"""


def test_containers_that_were_made_are_removed_and_others_restored(tmp_path: Path) -> None:
    path = tmp_path / "hosts.yml"
    path.write_text(CONTAINERS)
    plan = UndoPlan.of(read_inventory(path), path, None)
    assert {host.name for host in plan.machines} == {"big1", "mine"}
    variables = plan.variables()
    assert variables["unprovision_machines"] == "all:!box:!twin"
    assert variables["kvm_guest_addresses"] == ["192.0.2.8", "[192.0.2.7]:2222"]
    assert variables["podman_container_lists"] == {
        "big1": [
            {"name": "box", "state": "absent", "network": "bridge", "cpus": "1"},
            {"name": "twin-1", "state": "absent", "network": "host", "cpus": "1"},
        ]
    }

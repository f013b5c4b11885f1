"""Shapes of the embedded lab, and the inventories they become, read by Ansible as it reads everybody's."""

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
import yaml

from vmtoll.commands import lab
from vmtoll.guests.inventory import Guest, guest
from vmtoll.lab import topology
from vmtoll.model.errors import InventoryError, UserError
from vmtoll.model.inventory import GuestAccelerator
from vmtoll.model.release import RELEASES
from vmtoll.provisioning.guests import role_entry
from vmtoll.shell import play
from vmtoll.spec.machines import load_inventory

RENDER = """
- hosts: localhost
  connection: local
  tasks:
    - ansible.builtin.include_role: {name: embedded_lab, tasks_from: inventory}
"""


def rendered(folder: Path, shape: topology.LabShape) -> Path:
    """The inventory that the role writes for a shape."""
    playbook = folder / "render.yml"
    playbook.write_text(RENDER)
    variables = {"embedded_lab_folder": str(folder), "embedded_lab_link": "20mbit", **shape.variables(RELEASES[0])}
    play(str(playbook), "-e", json.dumps(variables), quiet=True)
    return folder / "inventory.yml"


def test_single_is_one_of_each() -> None:
    shape = topology.shape()
    assert shape.record() == {"topology": "single", "guests": {"kvm": "kvm-default"}}
    assert [(m["name"], m["address"]) for m in shape.machines] == [("client", "198.18.0.10"), ("metal", "198.18.0.20")]
    (own,) = shape.guests
    assert own == {
        "name": "kvm", "profile": "kvm-default", "kvm_host": "this-machine", "address": "198.18.0.30",
        "mac": "52:54:00:12:00:1e",
    }  # fmt: skip


def test_other_guests_are_called_after_their_profiles() -> None:
    shape = topology.shape("multi", ["kvm-default", "kvm-2009", "kvm-default"])
    assert [(g["name"], g["profile"], g["address"]) for g in shape.guests] == [
        ("kvm-default", "kvm-default", "198.18.0.30"),
        ("kvm-2009", "kvm-2009", "198.18.0.31"),
        ("kvm-default-2", "kvm-default", "198.18.0.32"),
    ]
    assert {g["kvm_host"] for g in shape.guests} == {"kvm-host1"}
    assert len({g["mac"] for g in shape.guests}) == 3
    assert shape.test_beds["cell_a"][-3:] == ["kvm-default", "kvm-2009", "kvm-default-2"]
    assert shape.test_beds["cell_b"] == ["client2", "metal2", "kvm-host2"]


@pytest.mark.parametrize("file", sorted(topology.TOPOLOGIES.glob("*.yml")), ids=lambda file: file.stem)
def test_every_topology_has_unique_names_and_addresses(file: Path) -> None:
    shape = topology.shape(file.stem)
    everybody = [*shape.machines, *shape.guests, *shape.targets]
    names = [machine["name"] for machine in everybody] + list(shape.kvm_hosts)
    assert len(set(names)) == len(names)
    assert len({machine["address"] for machine in everybody}) == len(everybody)
    assert {name for members in shape.test_beds.values() for name in members} <= set(names)
    cards = [f"sw-{machine.get('card', machine['name'])}" for machine in (*shape.machines, *shape.targets)]
    assert all(len(card) <= 15 for card in cards), "a name of an interface is short"
    assert yaml.safe_load(file.read_text())["description"]


@pytest.mark.parametrize(
    ("topology", "profiles", "said"),
    [
        (
            "mutli",
            [],
            "unknown topology 'mutli' (did you mean 'multi'?); "
            "allowed: containers, machine-pairs, machines, migration, multi, runtimes, single",
        ),
        ("single", ["kvm-defualt"], "unknown guest profile 'kvm-defualt' (did you mean 'kvm-default'?); allowed: kvm-"),
    ],
)
def test_errors_for_unknown_names_list_the_known_ones(topology: str, profiles: list[str], said: str) -> None:
    with pytest.raises(UserError) as refused:
        lab.up("unshaped", topology, ",".join(profiles))
    assert str(refused.value).startswith(said)


def test_a_lab_that_does_not_fit_into_memory_is_refused(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal:       4030464 kB\nMemAvailable:   3145728 kB\n")
    topology.check_memory(topology.shape(), meminfo)
    with pytest.raises(UserError, match=r"5 machines and 4 guests .* \d+ MiB .* 3072 MiB "):
        topology.check_memory(topology.shape("multi"), meminfo)


def test_a_guest_can_move_in_the_lab_of_that_topology(tmp_path: Path) -> None:
    shape = topology.shape("migration")
    machines = load_inventory(rendered(tmp_path, shape), ["kvm-default"], targets=["kvm-host2"])
    assert list(machines.kvm_hosts) == ["kvm-host1", "kvm-host2"]
    first, second = machines.kvm_hosts.values()
    assert first.argv() != second.argv(), "its agent is started in namespaces of its own"
    assert second.migration_uri == second.libvirt_uri != first.libvirt_uri
    assert shape.memory_mib() > topology.shape().memory_mib(), "a guest that moves is on both hosts"


def test_the_inventory_of_single_has_no_cells(tmp_path: Path) -> None:
    inventory = rendered(tmp_path, topology.shape())
    assert "cells" not in yaml.safe_load(inventory.read_text())["all"]["children"]
    machines = load_inventory(inventory, ["metal", "kvm-default"])
    assert [host.name for host in machines.hosts()] == ["client", "metal", "kvm", "this-machine"]
    assert machines.host(machines.client) == machines.kvm_hosts["this-machine"]


def test_the_inventory_of_multi_is_cut_by_ansibles_patterns(tmp_path: Path) -> None:
    inventory, environments = rendered(tmp_path, topology.shape("multi")), ["metal", "kvm-default"]
    with pytest.raises(InventoryError, match=r"2 hosts have vmtoll_environment 'metal', .*\(choose "):
        load_inventory(inventory, environments)
    cell_a = load_inventory(inventory, environments, guests=2, limit="cell_a")
    assert [host.name for host in cell_a.clients] == ["client1", "client3"]
    assert [host.name for host in cell_a.machines["kvm-default"]] == ["kvm1a", "kvm1b"]
    assert list(cell_a.kvm_hosts) == ["kvm-host1"]
    cell_b = load_inventory(inventory, environments, limit="cell_b")
    assert [host.name for host in cell_b.hosts()] == ["client2", "metal2", "kvm2a", "kvm-host2"]
    several = load_inventory(inventory, ["metal"], limit="client*,metal1")
    assert [host.name for host in several.clients] == ["client1", "client2", "client3"]
    assert several.link_mbit == 20


def test_a_lab_of_virtual_machines_is_an_inventory_of_hosts(tmp_path: Path) -> None:
    """Metal and the KVM host are one machine under two names, and the guest is made by provisioning."""
    shape = topology.shape("machines")
    assert shape.record()["guests"] == {"client": "client", "host": "kvm-host", "guest": "kvm-default"}
    inventory = rendered(tmp_path, shape)
    machines = load_inventory(inventory, ["metal", "kvm-default"])
    assert [(host.name, host.ssh_host) for host in machines.hosts()] == [
        ("client", "198.18.0.10"),
        ("metal", "198.18.0.20"),
        ("guest", "198.18.0.30"),
        ("host", "198.18.0.20"),
    ]
    assert all(host.vars.lab == "hosts" and not host.is_local for host in machines.hosts())
    for host in machines.hosts():
        timeouts = [word for word in host.argv() if word.startswith("ConnectTimeout=")]
        assert timeouts[0] == f"ConnectTimeout={topology.SSH_S}", "ssh takes the first of two"
    made = guest(machines.suts["kvm-default"])
    assert (made.accelerator, made.bridge, made.cpu_list) == ("kvm", "br0", [0])
    assert made.suite == RELEASES[0].suite, "the guest has the release of the machines"


def test_a_kvm_host_has_memory_for_all_its_guests() -> None:
    shape = topology.shape("machines", ["kvm-default", "kvm-2009"])
    client, host = shape.guests
    assert (client["vcpus"], host["vcpus"]) == (1, 1)
    assert host["memory_mib"] > client["memory_mib"] + 2 * 1024
    assert client["memory_mib"] / 2 > 1.1 * 512  # /tmp, where preflight asks for that much
    emulated, by_kvm = (described_all(shape, kind) for kind in ("tcg", "kvm"))
    links = [domain(described).find("devices/interface/source") for described in emulated]
    assert [link.get("bridge") for link in links if link is not None] == [topology.BRIDGE] * 2
    words = (domain(by_kvm[1]).findtext("os/cmdline") or "").split()
    assert "ip=198.18.0.20::198.18.0.1:255.254.0.0:host:br0:off" in words
    assert "bridge=br0:eth0" in words


def test_each_guest_has_the_kernel_that_it_boots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of a profile of the user's own, the package of another, and the image's own, by release."""
    (tmp_path / "environments").mkdir()
    (tmp_path / "lab.yml").write_text("all: {}\n")
    (tmp_path / "pvm").write_bytes(b"bzImage")
    for name, keys in {"pvm": f"kernel: {tmp_path}/pvm", "old": "release: bookworm"}.items():
        text = f"description: a test\nof: [kvm-default]\n{keys}\n"
        (tmp_path / f"environments/kvm-{name}.yml").write_text(text)
    monkeypatch.chdir(tmp_path)
    shape = topology.shape("single", ["kvm-default", "kvm-pvm", "kvm-default-kernel-cloud-amd64", "kvm-old"])
    kernels = shape.guest_kernels(Path("/image"), {"bookworm": "/other"})
    assert [str(kernels[guest["name"]]) for guest in shape.guests] == [
        "/image/vmlinuz", f"{tmp_path}/pvm", "/image/vmlinuz-linux-image-cloud-amd64", "/other/vmlinuz",
    ]  # fmt: skip
    kinds: dict[str, GuestAccelerator] = dict.fromkeys(kernels, "tcg")
    pvm = shape.guests[1]["name"]
    described = shape.described_guests(kinds | {pvm: "kvm"}, "1")
    assert [each.name for each in described if each.accelerator == "kvm"] == [pvm]


def described_all(shape: topology.LabShape, kind: GuestAccelerator) -> list[Guest]:
    return shape.described_guests({guest["name"]: kind for guest in shape.guests}, "0-1")


def domain(described: Guest) -> ET.Element:
    return ET.fromstring(role_entry(described, "machines")["xml"])

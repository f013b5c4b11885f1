"""The lab with three clients, two metal machines, and two guests on each of two KVM hosts, in two test beds."""

import json
import re
import subprocess

import pytest

from tests.lab.the_lab import LAB, VMTOLL, Ssh
from vmtoll.lab.topology import shape
from vmtoll.spec.machines import load_inventory

pytestmark = [pytest.mark.lab, pytest.mark.long]

CELLS = {
    "cell_a": ["client1", "client3", "kvm1a", "kvm1b", "metal1"],
    "cell_b": ["client2", "kvm2a", "kvm2b", "metal2"],
}


def test_every_machine_matches_the_inventory(multi: Ssh) -> None:
    wanted = shape("multi")
    for machine in (*wanted.machines, *wanted.guests):
        name, address = multi(machine["name"], "hostname; ip -4 -o address show dev eth0").split("\n")
        assert name == machine["name"]
        assert f"inet {machine['address']}/15 " in address
    state = json.loads(
        subprocess.run([VMTOLL, "lab", "status", "--json"], check=True, capture_output=True, text=True).stdout
    )
    assert state["up"] is True
    assert (state["topology"], state["link"]) == ("multi", "20mbit")
    assert state["guests"] == dict.fromkeys(("kvm1a", "kvm1b", "kvm2a", "kvm2b"), "kvm-default")


@pytest.mark.parametrize("cell", CELLS)
def test_machines_of_a_test_bed_measure_on_their_own(multi: Ssh, cell: str) -> None:
    machines = load_inventory(LAB / "inventory.yml", ["metal", "kvm-default"], guests=2, limit=cell)
    assert sorted(host.name for host in machines.hosts() if host.role != "kvm_host") == CELLS[cell]
    assert list(machines.kvm_hosts) == [f"kvm-host{1 if cell == 'cell_a' else 2}"]


def test_part_of_a_test_bed_is_provisioned_alone(multi: Ssh) -> None:
    words = ["provision", "--limit", "cell_b:!kvm2b"]
    done = subprocess.run([VMTOLL, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:]
    recap = re.findall(r"^(\S+) +: ok=\d+ +changed=(\d+) +unreachable=0 +failed=0", done.stdout, re.M)
    assert sorted(recap) == [("client2", "0"), ("kvm2a", "0"), ("metal2", "0")]


def test_each_client_has_a_separate_link(multi: Ssh) -> None:
    for client in ("client1", "client2", "client3"):
        argv = ["tc", "-n", f"vmtoll-{client}", "-j", "qdisc", "show", "dev", "eth0"]
        (shaped,) = json.loads(subprocess.run(argv, check=True, capture_output=True, text=True).stdout)
        assert (shaped["kind"], shaped["options"]["rate"]) == ("tbf", 20_000_000 // 8)

"""A campaign over two test beds of virtual machines, each with a guest under KVM."""

import json
from pathlib import Path

import pytest

from tests.lab.kvm.machines import up, vmtoll
from tests.lab.the_lab import LAB

pytestmark = [pytest.mark.lab, pytest.mark.kvm]


def test_two_kvm_hosts_are_measured_and_judged_together(tmp_path: Path) -> None:
    machines = up("machine-pairs")
    macs = {machines(host, "cat /sys/class/net/br0/address") for host in ("host1", "host2")}
    assert len(macs) == 2, "one switch carries both hosts' packets"
    vmtoll("campaign", "run", "smoke", "--inventory", LAB / "inventory.yml", "--output", tmp_path / "pairs")
    figures = json.loads(next(tmp_path.rglob("figures.json")).read_text())
    assert {row["testbed"] for row in figures["testbeds"]} == {"cell_a", "cell_b"}
    assert all(row["blocks"] for row in figures["testbeds"])
    assert {effect["accelerator"] for effect in figures["effects"]} == {"kvm"}

"""`vmtoll diagnose` on the lab's own guest, whose profile is known."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.lab.records import records_of
from tests.lab.the_lab import LAB, VMTOLL

pytestmark = pytest.mark.lab


def test_the_guest_of_kvm_default_lacks_what_its_profile_lacks(lab: Path) -> None:
    """The lab gives its guests disks of the cache mode `unsafe`, which is none of the profile's."""
    words: list[str | Path] = [VMTOLL, "diagnose", "kvm", "--inventory", LAB / "inventory.yml", "--json"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    states = {step["tuning"]: step["state"] for step in answer["steps"]}
    assert answer["running"] is True
    assert {name: states[name] for name in ("cpu-model", "card", "disk-bus", "cache", "huge-pages")} == {
        "cpu-model": "taken", "card": "taken", "disk-bus": "taken", "cache": "lacking", "huge-pages": "lacking"
    }  # fmt: skip


@pytest.mark.guest_minutes
def test_a_step_is_measured_and_the_guest_is_as_before(lab: Path, tmp_path: Path) -> None:
    """Its disk's cache mode, by turns: the guest boots with each definition in turn, and at the end with its own."""
    inventory = LAB / "inventory.yml"
    loads: list[str | Path] = [
        "--workload",
        "document-siege",
        "--blocks",
        "6",
        "--duration-s",
        "0.3",
        "--results",
        tmp_path,
    ]
    before = definition()
    words: list[str | Path] = ["diagnose", "kvm", "-i", inventory, "--measure", "cache", "--yes", "--json"]
    done = subprocess.run([VMTOLL, *words, *loads], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    records = records_of(Path(answer["run"]))
    caches = {
        record.arm.environment: record.primary is not None and record.primary.throughput_rps for record in records
    }
    assert set(caches) == {"kvm-default", "with-cache"}
    assert all(caches.values())
    assert done.stderr.count("kvm has rebooted") >= 6
    assert definition() == before
    assert answer["apply"][0].startswith("virt-xml ")


def definition() -> str:
    """The inactive definition of the lab's guest, without what differs from start to start."""
    uri = f"qemu+unix:///system?socket={LAB}/libvirt/run/libvirt-sock"
    words = ["virsh", "-c", uri, "dumpxml", "--inactive", "--security-info"]
    names = subprocess.run(
        ["virsh", "-c", uri, "list", "--all", "--name"], capture_output=True, text=True, check=True
    ).stdout.split()
    return "".join(subprocess.run([*words, name], capture_output=True, text=True, check=True).stdout for name in names)

"""A live migration of the emulated guest under load, and back: what clients notice, and that all is as before, also
after vmtoll was killed in the middle.
"""

import os
import re
import signal
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.lab.records import measure, primary
from tests.lab.the_lab import LAB, VMTOLL
from tests.support.measured import run
from tests.support.real_servers import wait_for
from vmtoll.analysis.run import load_run
from vmtoll.analysis.verdict import analyse
from vmtoll.hypervisors.migration import FOLDER
from vmtoll.model.errors import ExperimentError
from vmtoll.model.finding import Validity
from vmtoll.paths import PROJECT
from vmtoll.spec.inventory import hosts_by_role, read_inventory

pytestmark = [pytest.mark.lab, pytest.mark.long]

RUN = "import sys; from pathlib import Path; from tests.support.measured import run; run(*map(Path, sys.argv[1:]))"
PLAIN = {
    "question": "?", "purpose": "smoke", "environments": ["kvm-default"], "servers": ["nginx"],
    "workloads": ["site-rate-100"], "blocks": 1, "warmup_s": 0.5, "duration_s": 2.0, "noise_floor": None,
}  # fmt: skip
MOVES = PLAIN | {
    "duration_s": 45.0, "seed": 1,
    "during": {"migrate": {"of": "kvm-default", "do": "migrate", "to": "kvm-host2", "at_s": 3}},
}  # fmt: skip


# Where its trial is not to end.
BEGINS = MOVES | {"duration_s": 15.0}


class Guest:
    """The lab's guest as both KVM hosts have it."""

    def __init__(self, inventory: Path) -> None:
        by_role = hosts_by_role(read_inventory(inventory))
        self.uris = {host.name: host.libvirt_uri for host in by_role["kvm_host"]}
        (guest,) = by_role["kvm_guest"]
        self.name = str(guest.vars.domain)

    def virsh(self, host: str, *words: str) -> str:
        argv = ["virsh", "-q", "-c", self.uris[host], *words]
        return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()

    def runs_on(self, host: str) -> bool:
        return self.name in self.virsh(host, "list", "--name").split()

    def is_known_to(self, host: str) -> bool:
        return self.name in self.virsh(host, "list", "--all", "--name").split()

    @property
    def is_back(self) -> bool:
        """Whether it runs on its own host alone, and nothing is noted any more."""
        if not self.is_on_alone("kvm-host1"):
            return False
        state = self.state()
        return not (state["notes"] or state["kept"])

    def is_on_alone(self, host: str) -> bool:
        """Whether it runs on this host and no other one knows it."""
        return self.runs_on(host) and [each for each in self.uris if self.is_known_to(each)] == [host]

    def state(self) -> dict[str, object]:
        """Everything that a migration may leave behind. libvirt may put devices into another order."""
        known = [host for host in self.uris if self.is_known_to(host)]
        domain = ET.fromstring(self.virsh(known[0], "dumpxml", self.name, "--inactive"))
        devices = domain.find("devices")
        assert devices is not None
        return {
            "running": [host for host in self.uris if self.runs_on(host)],
            "known": known,
            "definition": sorted(
                "".join(ET.tostring(each, "unicode").split()) for each in (*devices, *domain) if each is not devices
            ),
            "disks": self.virsh(known[0], "domblklist", self.name),
            "snapshots": self.virsh(known[0], "snapshot-list", self.name),
            "files": sorted(file.name for file in (LAB / "guests").iterdir()),
            "files there": sorted(file.name for file in (LAB / "hosts" / "kvm-host2" / "guests").iterdir()),
            "notes": sorted(file.name for file in Path("/var/lib/vmtoll").glob(f"change-of-{self.name}.json")),
            "kept": Path(FOLDER.format(domain=self.name)).exists(),
        }


@pytest.fixture(scope="module")
def inventory() -> Path:
    subprocess.run([VMTOLL, "lab", "up", "--topology", "migration"], check=True, stdin=subprocess.DEVNULL)
    return LAB / "inventory.yml"


@pytest.fixture
def guest(inventory: Path) -> Iterator[Guest]:
    guest = Guest(inventory)
    before = guest.state()
    assert before["running"] == before["known"] == ["kvm-host1"]
    yield guest
    assert guest.state() == before


def written(folder: Path, document: dict[str, object]) -> Path:
    file = folder / "moves.yml"
    file.write_text(yaml.safe_dump(document, sort_keys=False))
    return file


def test_what_clients_notice(inventory: Path, guest: Guest, tmp_path: Path) -> None:
    folder, records = measure(written(tmp_path, MOVES | {"blocks": 2}), inventory, tmp_path / "results")
    assert len(records) == 4
    for record in records:
        assert record.validity is not Validity.INVALID, record.findings
        if record.arm.environment == "migrate":
            assert record.operation is not None
            migration = record.operation.migration
            assert migration is not None
            assert 0 < migration.downtime_ms < migration.total_s * 1000
            assert migration.total_s < record.operation.end_s - record.operation.begin_s
            assert migration.disk_mib > 1000
            blackout_ms = primary(record).blackout_ms
            assert blackout_ms is not None
            assert blackout_ms > migration.downtime_ms / 2, "clients had no answer while it ran nowhere"
    (effect,) = analyse(load_run(folder)).operations or ()
    assert effect.migration is not None
    assert set(effect.migration) == {"total_s", "downtime_ms", "memory_mib", "disk_mib"}


def test_a_target_that_has_the_disk_already_is_refused(inventory: Path, guest: Guest, tmp_path: Path) -> None:
    """In one sentence, before the first trial. Only that host sees the file."""
    disk = LAB / "hosts" / "kvm-host2" / "guests" / f"{guest.name}.qcow2"
    disk.touch()
    try:
        with pytest.raises(ExperimentError, match=rf"during\.migrate: kvm-host2 has a .*/{disk.name} already"):
            run(written(tmp_path, MOVES), inventory, tmp_path / "results")
    finally:
        disk.unlink()
    assert not list(tmp_path.rglob("trials.jsonl"))


@pytest.mark.parametrize("moment", ["while it moves", "when it has moved"])
def test_a_killed_run_leaves_the_guest_as_it_was(inventory: Path, guest: Guest, tmp_path: Path, moment: str) -> None:
    """The agent of its own KVM host brings it back."""
    is_then = guest.is_known_to if moment == "while it moves" else guest.runs_on
    vmtoll = started(inventory, tmp_path)
    try:
        wait_for(lambda: vmtoll.poll() is not None or is_then("kvm-host2"), 240)
        assert vmtoll.poll() is None, "it ended by itself"
    finally:
        vmtoll.kill()
        vmtoll.wait()
    wait_for(lambda: guest.is_back, 120)


def test_the_next_run_brings_the_guest_back(inventory: Path, guest: Guest, tmp_path: Path) -> None:
    """vmtoll and its agents on this machine are killed: nobody is left to undo anything, and the guest moves on."""
    vmtoll = started(inventory, tmp_path)
    try:
        wait_for(lambda: vmtoll.poll() is not None or guest.is_known_to("kvm-host2"), 240)
        assert vmtoll.poll() is None, "it ended by itself"
        tasks = Path(f"/proc/{vmtoll.pid}/task").glob("*/children")
        children = [pid for file in tasks for pid in file.read_text().split()]
        agents = [
            int(pid) for pid in children if b"import json, sys, types" in Path(f"/proc/{pid}/cmdline").read_bytes()
        ]
        for pid in (vmtoll.pid, *agents):
            os.kill(pid, signal.SIGKILL)
    finally:
        vmtoll.kill()
        vmtoll.wait()
    wait_for(lambda: guest.is_on_alone("kvm-host2"), 120)
    run(written(tmp_path, PLAIN), inventory, tmp_path / "results")
    assert guest.is_back


def test_a_guest_that_does_not_answer_there_comes_back(inventory: Path, guest: Guest, tmp_path: Path) -> None:
    """The target's bridge sends what is for the guest to the other hosts, as one of another network would."""
    mac = re.search(r"(?:[0-9a-f]{2}:){5}[0-9a-f]{2}", guest.virsh("kvm-host1", "domiflist", guest.name))
    assert mac is not None
    entry = [mac[0], "dev", "eth0", "master", "static", "sticky"]  # what the guest sends does not move it
    bridge = ["bridge", "-netns", "vmtoll-kvm-host2", "fdb"]
    subprocess.run([*bridge, "replace", *entry], check=True)
    try:
        _, records = measure(written(tmp_path, BEGINS), inventory, tmp_path / "results")
    finally:
        subprocess.run([*bridge, "delete", *entry[:-1]], check=True)
    moved = [record for record in records if record.arm.environment == "migrate"]
    assert moved
    for record in moved:
        assert record.validity is Validity.INVALID
        assert "kvm does not answer client on kvm-host2; its address stays the same" in str(record.findings)


def started(inventory: Path, folder: Path) -> "subprocess.Popen[bytes]":
    """A run that moves the guest, in a process of its own."""
    words = [str(path) for path in (written(folder, BEGINS), inventory, folder / "killed")]
    return subprocess.Popen([sys.executable, "-c", RUN, *words], cwd=PROJECT)

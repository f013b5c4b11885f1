"""The three ways of a start on a guest of a real libvirt, an emulated QEMU, and what makes it run wherever it ended."""

import os
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import pytest

from tests.integration.hypervisors.test_operations import Line
from tests.support.libvirt import MISSING, libvirtd
from vmtoll.hypervisors.libvirt import LibvirtGuest
from vmtoll.hypervisors.process import ProcessGuest
from vmtoll.hypervisors.proxmox import ProxmoxGuest
from vmtoll.hypervisors.qemu import QemuGuest
from vmtoll.hypervisors.starts import StartCommands, start_commands
from vmtoll.model.errors import AgentError
from vmtoll.model.first_answer import Way
from vmtoll.model.inventory import Host

GUEST_WAYS = [way for way in get_args(Way) if way != "start"]  # which is of container runtimes

# It boots nothing: its firmware looks for a disk.
DOMAIN = """<domain type='qemu'>
  <name>one</name><memory unit='MiB'>64</memory>
  <os><type arch='x86_64' machine='pc'>hvm</type></os>
  <devices><emulator>/usr/bin/qemu-system-x86_64</emulator></devices>
</domain>
"""
STATES = {"boot": "shut off", "restore": "shut off", "resume": "paused"}


@dataclass(frozen=True)
class Domain:
    """The guest, on its libvirt."""

    uri: str

    def commands(self, way: Way) -> StartCommands:
        host = Host("big1", "kvm_host", {"vmtoll_libvirt_uri": self.uri})
        return start_commands(way, LibvirtGuest(Host("guest1", "kvm_guest", {"vmtoll_domain": "one"}), Line(host)))

    def virsh(self, *words: str) -> str:
        done = subprocess.run(["virsh", "-q", "-c", self.uri, *words], capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def leave(self, way: Way, commands: StartCommands) -> None:
        """Bring it into the state before; a boot's guest shuts itself down, which this one cannot."""
        assert bool(commands.leave) == (way != "boot")
        if way == "boot":
            self.virsh("destroy", "one")
        else:
            shell(commands.leave)

    @property
    def state(self) -> tuple[str, bool]:
        """What it does, and whether a saved state of it is left."""
        saved = self.virsh("dominfo", "one").split("Managed save:")[1].split("\n")[0]
        return self.virsh("domstate", "one"), "yes" in saved


def shell(command: str) -> None:
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def domain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Domain]:
    file = tmp_path_factory.mktemp("domains") / "one.xml"
    file.write_text(DOMAIN)
    with libvirtd(tmp_path_factory.mktemp("libvirt")) as uri:
        domain = Domain(uri)
        domain.virsh("define", str(file))
        domain.virsh("start", "one")
        yield domain
        domain.virsh("destroy", "one")


@pytest.mark.skipif(bool(MISSING), reason=MISSING)
@pytest.mark.parametrize("way", GUEST_WAYS)
def test_a_start_makes_it_run_and_so_does_its_undoing(domain: Domain, way: Way) -> None:
    running = ("running", False)
    commands = domain.commands(way)
    domain.leave(way, commands)
    assert domain.state == (STATES[way], way == "restore")
    subprocess.run(commands.start, check=True, capture_output=True)
    assert domain.state == running
    begin_s = time.monotonic()
    shell(commands.undo)
    assert domain.state == running, "there was nothing to undo"
    assert time.monotonic() - begin_s < 5, "nothing to wait for: another process runs it"
    commands = domain.commands(way)
    domain.leave(way, commands)
    shell(commands.undo)
    assert domain.state == running


@pytest.mark.skipif(bool(MISSING), reason=MISSING)
def test_undoing_waits_for_a_guest_that_is_still_shutting_down(domain: Domain) -> None:
    commands = domain.commands("boot")
    process = subprocess.Popen(["sh", "-c", commands.undo])
    before = domain.virsh("domid", "one")
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(1.5)
    domain.virsh("destroy", "one")
    assert process.wait(30) == 0
    assert domain.state == ("running", False)
    assert domain.virsh("domid", "one") != before


@pytest.mark.parametrize("way", GUEST_WAYS)
@pytest.mark.parametrize(
    ("status", "done"),
    [
        ("status: running\nqmpstatus: running\npid: 1", []),
        ("status: running\nqmpstatus: paused\npid: 1", ["resume 107"]),
        ("status: stopped\nqmpstatus: stopped", ["start 107"]), ("", None),
    ],
)  # fmt: skip
def test_undoing_on_proxmox_fails_where_it_cannot_tell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: Way, status: str, done: list[str] | None
) -> None:
    """A `qm` that notes what it is told; without a status it fails, as one whose cluster is not ready."""
    (tmp_path / "status").write_text(status)
    qm, told = tmp_path / "qm", tmp_path / "told"
    qm.write_text(
        f'#!/bin/sh\n[ "$1" = status ] || {{ echo "$@" >>{told}; exit; }}\n'
        f"cat {tmp_path}/status\n[ -s {tmp_path}/status ]\n"
    )
    qm.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    guest = ProxmoxGuest(Host("guest1", "kvm_guest", {"vmtoll_vmid": 107}), Line(Host("big1", "kvm_host", {})))
    undo = start_commands(way, guest).undo.replace("-le 180", "-le 1")
    ended = subprocess.run(["sh", "-c", undo], capture_output=True, text=True, check=False, timeout=30)
    assert (ended.returncode == 0) == (done is not None)
    assert (told.read_text().splitlines() if told.exists() else []) == (done or [])


def test_what_cannot_be_started_is_refused_in_a_sentence() -> None:
    line = Line(Host("big1", "kvm_host", {}))
    qemu = QemuGuest(Host("guest1", "kvm_guest", {"vmtoll_qmp_socket": "/run/q.sock"}), line)
    with pytest.raises(AgentError, match=r"variable .*starts it; .*vmtoll_unit"):
        start_commands("boot", qemu)
    with pytest.raises(AgentError, match=r"guest1: .*cannot restore .*; `restore` and `resume`"):
        start_commands("restore", qemu)
    other = ProcessGuest(Host("guest1", "kvm_guest", {"vmtoll_unit": "vm.service"}), line)
    with pytest.raises(AgentError, match="cannot boot what "):
        start_commands("boot", other)

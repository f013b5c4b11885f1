"""Each operation on a guest of a real libvirt, an emulated QEMU, and how it is undone, also in the middle."""

import hashlib
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.support.libvirt import MISSING, libvirtd
from vmtoll.hypervisors.libvirt import LibvirtGuest
from vmtoll.hypervisors.operations import script
from vmtoll.hypervisors.qemu import QemuGuest
from vmtoll.hypervisors.scripts import Script
from vmtoll.model.errors import AgentError
from vmtoll.model.inventory import Host
from vmtoll.model.operation import Operation

# It boots nothing: its firmware looks for a disk.
DOMAIN = """<domain type='qemu'>
  <name>one</name><memory unit='MiB'>64</memory>
  <os><type arch='x86_64' machine='pc'>hvm</type></os>
  <devices>
    <emulator>/usr/bin/qemu-system-x86_64</emulator><memballoon model='virtio'/>
    <disk type='file' device='disk'>
      <driver name='qemu' type='qcow2'/><source file='{folder}/one.qcow2'/><target dev='vda' bus='virtio'/>
    </disk>
    <disk type='file' device='cdrom'><target dev='sda' bus='ide'/></disk>
  </devices>
</domain>
"""
OPERATIONS: dict[str, dict[str, Any]] = {
    "pause": {"for_s": 0.4}, "snapshot": {}, "snapshot-external": {}, "backup": {}, "save": {},
    "balloon": {"for_s": 0.2, "memory_mib": 32},
}  # fmt: skip


@dataclass
class Line:
    """What an adapter knows of the KVM host here."""

    host: Host

    def call(self, op: str, timeout_s: float = 30.0, **args: Any) -> Any:
        """Runs commands here."""
        assert op == "exec"
        done = subprocess.run(args["argv"], capture_output=True, text=True, check=False)
        return {"exit_status": done.returncode, "stdout": done.stdout, "stderr": done.stderr}


@dataclass(frozen=True)
class Domain:
    """A running guest with one disk in a folder of its own."""

    uri: str
    folder: Path
    base: Path

    def script(self, do: str) -> Script:
        operation = Operation(of="kvm-default", do=do, at_s=1, **OPERATIONS[do])  # type: ignore[arg-type]
        host = Host("big1", "kvm_host", {"vmtoll_libvirt_uri": self.uri})
        return script(operation, LibvirtGuest(Host("guest1", "kvm_guest", {"vmtoll_domain": "one"}), Line(host)))

    def virsh(self, *words: str) -> str:
        done = subprocess.run(["virsh", "-q", "-c", self.uri, *words], capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def state(self) -> dict[str, object]:
        """Everything that an operation may leave behind."""
        return {
            "state": self.virsh("domstate", "one"), "disks": self.virsh("domblklist", "one"),
            "snapshots": self.virsh("snapshot-list", "one", "--name"),
            "files": sorted(file.name for file in self.folder.iterdir()),
            "base": hashlib.sha256(self.base.read_bytes()).hexdigest(),
            "chain": re.findall(r"<source file='([^']*)'", self.virsh("dumpxml", "one")),
            "saved": "yes" in self.virsh("dominfo", "one").split("Managed save:")[1].split("\n")[0],
            "memory": self.virsh("dominfo", "one").split("Used memory:")[1].split("\n")[0],
        }  # fmt: skip


def shell(command: str, folder: Path) -> None:
    done = subprocess.run(["sh", "-c", command], cwd=folder, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def domain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Domain]:
    folder = tmp_path_factory.mktemp("disks")
    base = tmp_path_factory.mktemp("images") / "base.qcow2"  # other guests may share it
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", base, "8M"], check=True)
    subprocess.run(
        ["qemu-img", "create", "-q", "-f", "qcow2", "-b", base, "-F", "qcow2", folder / "one.qcow2"], check=True
    )
    file = tmp_path_factory.mktemp("domains") / "one.xml"
    file.write_text(DOMAIN.format(folder=folder))
    with libvirtd(tmp_path_factory.mktemp("libvirt")) as uri:
        domain = Domain(uri, folder, base)
        domain.virsh("define", str(file))
        domain.virsh("start", "one")
        yield domain
        domain.virsh("destroy", "one")


@pytest.mark.skipif(bool(MISSING), reason=MISSING)
@pytest.mark.parametrize("do", OPERATIONS)
def test_an_operation_is_done_and_leaves_nothing(domain: Domain, do: str, tmp_path: Path) -> None:
    before, commands = domain.state(), domain.script(do)
    shell(commands.undo, tmp_path)
    assert domain.state() == before, "there was nothing to undo"
    begin = time.monotonic()
    shell(commands.run, tmp_path)
    if do == "pause":
        assert time.monotonic() - begin >= 0.4
    if do in ("snapshot", "snapshot-external", "backup"):
        assert domain.state() != before
    shell(commands.undo, tmp_path)
    assert domain.state() == before
    shell(commands.run, tmp_path)
    shell(commands.undo, tmp_path)
    assert domain.state() == before, "a second time"


@pytest.mark.skipif(bool(MISSING), reason=MISSING)
def test_a_pause_is_as_long_as_it_is_told(domain: Domain, tmp_path: Path) -> None:
    """By the clock of QEMU's events."""
    words = ["virsh", "-q", "-c", domain.uri, "qemu-monitor-event", "--loop", "--timestamp", "--pretty"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as events:
        time.sleep(1)
        shell(domain.script("pause").run, tmp_path)
        time.sleep(1)
        events.terminate()
        text = events.communicate()[0]
    stopped, resumed = (
        datetime.fromisoformat(time_text) for time_text in re.findall(r"^(.*): event (?:STOP|RESUME) ", text, re.M)
    )
    assert 0.4 <= (resumed - stopped).total_seconds() < 0.5


@pytest.mark.skipif(bool(MISSING), reason=MISSING)
def test_a_pause_that_libvirt_refuses_has_failed(domain: Domain, tmp_path: Path) -> None:
    """As over a connection that may only read."""
    virsh = tmp_path / "virsh"
    virsh.write_text(f'#!/bin/sh\nexec {shutil.which("virsh")} -r "$@"\n')
    virsh.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    words = ["sh", "-c", domain.script("pause").run]
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode
    assert "virDomainSuspend" in done.stderr


@pytest.mark.skipif(bool(MISSING), reason=MISSING)
def test_a_pause_that_is_killed_is_undone(domain: Domain, tmp_path: Path) -> None:
    before = domain.state()
    operation = Operation(of="kvm-default", do="pause", at_s=1, for_s=600, limit_s=900)
    host = Host("big1", "kvm_host", {"vmtoll_libvirt_uri": domain.uri})
    commands = script(operation, LibvirtGuest(Host("guest1", "kvm_guest", {"vmtoll_domain": "one"}), Line(host)))
    process = subprocess.Popen(["sh", "-c", commands.run], cwd=tmp_path, start_new_session=True)
    deadline = time.monotonic() + 20
    while domain.virsh("domstate", "one") != "paused":
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert domain.virsh("domstate", "one") == "paused"
    shell(commands.undo, tmp_path)
    assert domain.state() == before


def test_other_guests_take_commands_alone() -> None:
    guest = QemuGuest(
        Host("guest1", "kvm_guest", {"vmtoll_qmp_socket": "/run/q.sock"}), Line(Host("big1", "kvm_host", {}))
    )
    with pytest.raises(AgentError, match=r"`backup` .*libvirt alone"):
        script(Operation(of="a", do="backup", at_s=1), guest)
    own = script(Operation(of="a", do="command", at_s=1, command="sync", revert="true"), guest)
    assert own == Script("sync", "true")

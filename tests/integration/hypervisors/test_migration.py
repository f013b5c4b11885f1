"""A live migration between two real libvirts and back, killed at any moment, and what is refused before it."""

import os
import re
import shutil
import signal
import subprocess
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.kvm_hosts import KvmHosts, Line, kvm_hosts
from tests.support.libvirt import MISSING
from vmtoll.agent.applied import Applied
from vmtoll.hypervisors.libvirt import LibvirtGuest
from vmtoll.hypervisors.migration import FOLDER, migration_figures
from vmtoll.hypervisors.operations import script
from vmtoll.hypervisors.scripts import Script
from vmtoll.model.errors import AgentError
from vmtoll.model.inventory import Host
from vmtoll.model.operation import Operation

pytestmark = [pytest.mark.long, pytest.mark.skipif(bool(MISSING), reason=MISSING)]

# It boots nothing. Its name is no other test's: the folder with its definitions is named after it.
NAME = f"moves-{os.getpid()}"
DOMAIN = """<domain type='qemu'>
  <name>{name}</name><memory unit='MiB'>64</memory>
  <os><type arch='x86_64' machine='pc'>hvm</type></os>
  <devices>
    <emulator>/usr/bin/qemu-system-x86_64</emulator>
    <disk type='file' device='disk'>
      <driver name='qemu' type='qcow2'/><source file='{folder}/one.qcow2'/><target dev='vda' bus='virtio'/>
    </disk>
    <disk type='file' device='cdrom'><target dev='sda' bus='ide'/></disk>
    <serial type='file'><source path='{folder}/one-console.log'/></serial>
  </devices>
</domain>
"""
OPERATION = Operation(of="kvm-default", do="migrate", to="two", at_s=1)
KEPT = Path(FOLDER.format(domain=NAME))


@dataclass(frozen=True)
class Domain:
    """A guest on the first of two hosts."""

    hosts: KvmHosts

    def script(self, target: Line | None = None) -> Script:
        guest = LibvirtGuest(Host("guest1", "kvm_guest", {"vmtoll_domain": NAME}), self.hosts.one)
        return script(OPERATION, guest, target or self.hosts.two)

    def on(self, line: Line) -> bool:
        return NAME in self.hosts.virsh(line, "list", "--name").split()

    def write(self, line: Line, byte: int) -> None:
        """Write 64 KiB of a byte to the guest's disk, as the guest would."""
        for words in (f"write -P {byte} 1M 64k", "flush"):
            command = f'qemu-io -d /machine/peripheral/virtio-disk0/virtio-backend "{words}"'
            self.hosts.virsh(line, "qemu-monitor-command", NAME, "--hmp", command)

    def has(self, byte: int) -> bool:
        """Whether the disk has these bytes on the guest's own host."""
        words = ["qemu-io", "-U", "-r", "-f", "qcow2", "-c", f"read -P {byte} 1M 64k"]
        words.append(str(self.hosts.guests / "one.qcow2"))
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert "read 65536/65536" in done.stdout, done.stderr
        return "verification failed" not in done.stdout

    def state(self) -> dict[str, object]:
        """Everything that a migration may leave behind."""
        return {
            "state": self.hosts.virsh(self.hosts.one, "domstate", NAME),
            "live": parts(self.hosts.virsh(self.hosts.one, "dumpxml", NAME)),
            "inactive": parts(self.hosts.virsh(self.hosts.one, "dumpxml", NAME, "--inactive")),
            "autostart": "enable" in self.hosts.virsh(self.hosts.one, "dominfo", NAME).split("Autostart:")[1][:20],
            "files": sorted(file.name for file in self.hosts.guests.iterdir()),
            "there": sorted(file.name for file in self.hosts.there.iterdir()),
            "guests there": self.hosts.virsh(self.hosts.two, "list", "--all", "--name"),
            "kept": KEPT.exists(),
        }


def parts(xml: str) -> list[str]:
    """A definition, in which libvirt may put devices into another order when it reads it."""
    domain = ET.fromstring(re.sub(r"<domain type='qemu' id='\d+'>", "<domain type='qemu'>", xml))
    devices = domain.find("devices")
    assert devices is not None
    every = [ET.tostring(each, encoding="unicode").split() for each in [*devices, *domain] if each is not devices]
    return sorted(" ".join(each) for each in every)


def shell(command: str) -> str:
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def kill_after(command: str, seconds: float) -> None:
    process = subprocess.Popen(
        ["sh", "-c", command], start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    time.sleep(seconds)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@pytest.fixture(scope="module")
def domain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Domain]:
    folder = tmp_path_factory.mktemp("hosts")
    with kvm_hosts(folder) as hosts:
        base = folder / "base.qcow2"
        subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", base, "64M"], check=True)
        disk = hosts.guests / "one.qcow2"
        subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", "-b", base, "-F", "qcow2", disk], check=True)
        file = folder / "one.xml"
        file.write_text(DOMAIN.format(folder=hosts.guests, name=NAME))
        hosts.virsh(hosts.one, "define", str(file))
        hosts.virsh(hosts.one, "start", NAME)
        hosts.virsh(hosts.one, "autostart", NAME)
        try:
            yield Domain(hosts)
        finally:  # wherever a test that failed has left it
            for line in (hosts.one, hosts.two):
                subprocess.run(["virsh", "-q", "-c", line.host.libvirt_uri, "destroy", NAME], check=False)
            shutil.rmtree(KEPT, ignore_errors=True)


def test_a_guest_moves_and_comes_back_with_its_newest_disk(domain: Domain) -> None:
    before, commands, hosts = domain.state(), domain.script(), domain.hosts
    shell(commands.undo)
    assert domain.state() == before, "there was nothing to undo"
    shell(commands.prepare)
    figures = migration_figures(shell(commands.run))
    assert domain.on(hosts.two)
    assert hosts.virsh(hosts.one, "list", "--all", "--name") == "", "nobody can start it on the old disk"
    assert figures is not None
    assert 0 < figures.downtime_ms < figures.total_s * 1000
    assert figures.disk_mib == pytest.approx(64)
    assert figures.memory_mib > 0
    domain.write(hosts.two, 90)
    assert not domain.has(90)
    shell(commands.undo)
    assert domain.state() == before
    assert domain.has(90)


@pytest.mark.parametrize("seconds", [0.15, 0.4, 0.7, 1.0, 1.4, 2.0])
def test_a_migration_that_is_killed_is_undone(domain: Domain, seconds: float) -> None:
    before, commands = domain.state(), domain.script()
    shell(commands.prepare)
    kill_after(commands.run, seconds)
    shell(commands.undo)
    assert domain.state() == before


def test_a_preparation_that_is_killed_leaves_no_disk_there(domain: Domain) -> None:
    before, commands = domain.state(), domain.script()
    begun, made, _ = f"{commands.prepare}\n".partition(" --format qcow2 >/dev/null\n")
    shell(begun + made)
    assert domain.state() != before
    shell(commands.undo)
    assert domain.state() == before


@pytest.mark.parametrize("seconds", [0.3, 1.0, 1.8])
def test_a_way_back_that_is_killed_is_gone_again(domain: Domain, seconds: float) -> None:
    before, commands = domain.state(), domain.script()
    shell(commands.prepare)
    shell(commands.run)
    kill_after(commands.undo, seconds)
    shell(commands.undo)
    assert domain.state() == before


def test_a_guest_that_went_off_there_comes_back_running(domain: Domain) -> None:
    before, commands, hosts = domain.state(), domain.script(), domain.hosts
    shell(commands.prepare)
    shell(commands.run)
    domain.write(hosts.two, 91)
    hosts.virsh(hosts.two, "destroy", NAME)
    shell(commands.undo)
    after = domain.state()
    assert {**after, "there": []} == before, "QEMU made a file for its console when it was started there"
    assert domain.has(91)
    for file in hosts.there.iterdir():
        file.unlink()


def test_the_next_agent_brings_it_back_after_a_kill(domain: Domain, tmp_path: Path) -> None:
    """vmtoll and its agent were killed, and the migration went on by itself: the note on the host remains."""
    before, commands = domain.state(), domain.script()
    killed = Applied(tmp_path)
    killed.apply("migrate", commands.prepare, commands.undo, 60, guest="guest1")
    shell(commands.run)
    assert domain.on(domain.hosts.two)
    assert Applied(tmp_path).revert("guest1") == {"ran": True, "boots": False}
    assert domain.state() == before
    assert Applied(tmp_path).revert("guest1") == {"ran": False, "boots": False}


def test_a_guest_that_was_made_anew_is_left_alone(domain: Domain) -> None:
    """Its name is that of the one which moved; libvirt gave it another UUID."""
    before, commands = domain.state(), domain.script()
    shell(commands.prepare)
    file = KEPT / "inactive.xml"
    file.write_text(re.sub("<uuid>.*</uuid>", "<uuid>11111111-1111-1111-1111-111111111111</uuid>", file.read_text()))
    shell(commands.undo)
    domain.hosts.virsh(domain.hosts.two, "vol-delete", str(domain.hosts.guests / "one.qcow2"))
    assert domain.state() == before


def test_an_undo_that_cannot_tell_changes_nothing(domain: Domain) -> None:
    """The target does not answer: the guest may run there."""
    commands, before = domain.script(), domain.state()
    shell(commands.prepare)
    gone = commands.undo.replace("/two/libvirt/run/libvirt-sock", "/two/libvirt/run/none")
    done = subprocess.run(["sh", "-c", gone], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert KEPT.exists()
    shell(commands.undo)
    assert domain.state() == before


def test_the_same_machine_is_refused(domain: Domain) -> None:
    with pytest.raises(AgentError, match="one and one have the same identity for libvirt"):
        domain.script(Line(Host("one", "kvm_host", _both(domain.hosts.one.host.libvirt_uri))))


def test_a_host_that_is_not_reached_is_refused(domain: Domain) -> None:
    there = domain.hosts.two.host.libvirt_uri
    target = Line(Host("two", "kvm_host", _both(there) | {"vmtoll_migration_uri": "qemu+unix:///system?socket=/none"}))
    with pytest.raises(AgentError, match=r"one does not reach the libvirt of two by qemu.*set vmtoll_migration_uri"):
        domain.script(target)
    here = {"vmtoll_migration_uri": domain.hosts.one.host.libvirt_uri}
    with pytest.raises(AgentError, match="one reaches another libvirt than that of two"):
        domain.script(Line(Host("two", "kvm_host", _both(there) | here)))


def _both(uri: str) -> dict[str, str]:
    return {"vmtoll_libvirt_uri": uri, "vmtoll_migration_uri": uri}


def test_a_target_that_lacks_something_is_refused(domain: Domain) -> None:
    hosts, before = domain.hosts, domain.state()
    (hosts.there / "one.qcow2").touch()
    with pytest.raises(AgentError, match=r"two has a .*/one\.qcow2 already, where the disk of .* would go; move it"):
        domain.script()
    (hosts.there / "one.qcow2").unlink()
    hosts.virsh(hosts.two, "pool-destroy", "vmtoll")
    with pytest.raises(AgentError, match=r"two has no storage pool of .*/guests, .*virsh pool-create-as NAME dir"):
        domain.script()
    hosts.virsh(hosts.two, "pool-create-as", "vmtoll", "dir", "--target", str(hosts.guests))
    file = hosts.guests.parent / "other.xml"
    file.write_text(DOMAIN.format(folder=hosts.guests, name=NAME))
    hosts.virsh(hosts.two, "define", str(file))
    with pytest.raises(AgentError, match=f"two has a guest of the name {NAME} already"):
        domain.script()
    hosts.virsh(hosts.two, "undefine", NAME)
    assert domain.state() == before


def test_a_guest_with_a_snapshot_is_refused(domain: Domain) -> None:
    hosts, before = domain.hosts, domain.state()
    hosts.virsh(hosts.one, "snapshot-create-as", NAME, "yesterday")
    with pytest.raises(AgentError, match="libvirt moves no guest with a snapshot; delete yesterday"):
        domain.script()
    hosts.virsh(hosts.one, "snapshot-delete", NAME, "yesterday")
    assert domain.state() == before

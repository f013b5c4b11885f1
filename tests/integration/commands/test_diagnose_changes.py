"""What `vmtoll diagnose` advises, on a libvirt of root: libvirt takes each change, and the commands make it."""

import json
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from tests.integration.commands.test_diagnose import diagnose
from tests.support.libvirt import MISSING, libvirtd
from vmtoll.guests.diagnosis.measure import change_of
from vmtoll.machines.connection import AgentLine
from vmtoll.model.change import Change
from vmtoll.model.diagnosis import Diagnosis, Tuning
from vmtoll.model.inventory import Host

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)

TWO_SATA_DISKS = """
    <disk type='file' device='disk'>
      <driver name='qemu' type='qcow2' discard='unmap'/><source file='/a.qcow2'/><target dev='sda' bus='sata'/>
      <address type='drive' controller='0' bus='0' target='0' unit='0'/>
    </disk>
    <disk type='file' device='disk'>
      <driver name='qemu' type='qcow2'/><source file='/b.qcow2'/><target dev='sdb' bus='sata'/>
      <address type='drive' controller='0' bus='0' target='0' unit='1'/>
    </disk>
    <controller type='sata' index='0'/>"""
LIMITED_DISK = """
    <disk type='file' device='disk'>
      <driver name='qemu' type='qcow2' cache='none' event_idx='off'/><source file='/c.qcow2'/>
      <target dev='vda' bus='virtio'/><iotune><total_iops_sec>200</total_iops_sec></iotune>
    </disk>"""
SLOW_CARD = """
    <interface type='bridge'>
      <mac address='52:54:00:aa:bb:02'/><source bridge='br0'/><model type='virtio'/>
      <driver name='qemu' txmode='timer' ioeventfd='off'>
        <host csum='off' gso='off' tso4='off'/><guest csum='off' tso4='on'/>
      </driver>
      <bandwidth><inbound average='6250'/><outbound average='6250'/></bandwidth>
    </interface>"""
USER_CARD = "<interface type='user'><mac address='52:54:00:aa:bb:03'/><model type='e1000'/></interface>"
LIMITS = """<cputune>
    <shares>10</shares><period>100000</period><quota>25000</quota>
    <vcpupin vcpu='0' cpuset='0'/><vcpupin vcpu='1' cpuset='0'/><emulatorpin cpuset='0'/>
  </cputune>
  <memtune><hard_limit unit='MiB'>512</hard_limit><swap_hard_limit unit='MiB'>1024</swap_hard_limit></memtune>"""
OLD_CPU = """<cpu mode='custom' match='exact' check='full'><model fallback='forbid'>Nehalem</model>
    <topology sockets='1' cores='2' threads='1'/><feature policy='disable' name='aes'/>
    <feature policy='disable' name='svm'/></cpu>"""
TIMERS = "<clock offset='localtime'><timer name='rtc' tickpolicy='catchup'/><timer name='hpet' present='yes'/></clock>"
GUESTS = {
    "shop": ("", TWO_SATA_DISKS + SLOW_CARD.replace("name='qemu' ", "")),
    "tenant": (LIMITS, LIMITED_DISK + SLOW_CARD),
    "old": (f"{OLD_CPU}{TIMERS}", f"{LIMITED_DISK}{USER_CARD}"),
}
# Each has what the others lack; the first shows the way.
SOME = [*list(GUESTS)[:1], *(pytest.param(name, marks=pytest.mark.long) for name in list(GUESTS)[1:])]

# Guest → the steps that it lacks and that libvirt has a change for.
LACKING = {
    "shop": {"timers", "disk-bus", "cache", "network-limit", "notifications", "offloads", "multiqueue"},
    "tenant": {
        "cpu-limit", "memory-limit", "disk-limit", "network-limit", "timers", "notifications", "offloads", "multiqueue"
    },
    "old": {"cpu-model", "timers", "card", "disk-limit", "notifications"},
}  # fmt: skip


def definition(name: str) -> str:
    of_guest, devices = GUESTS[name]
    return f"""<domain type='qemu'>
  <name>{name}</name><memory unit='MiB'>256</memory><vcpu>2</vcpu>
  <os><type arch='x86_64' machine='q35'>hvm</type></os>{of_guest}
  <devices><emulator>/usr/bin/qemu-system-x86_64</emulator>{devices}</devices>
</domain>"""


def virsh(uri: str, *words: str | Path) -> str:
    return subprocess.run(["virsh", "-c", uri, *words], capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A libvirt that knows the guests."""
    with libvirtd(tmp_path_factory.mktemp("libvirt")) as uri:
        file = tmp_path_factory.mktemp("domains") / "guest.xml"
        for name in GUESTS:
            file.write_text(definition(name))
            virsh(uri, "define", file)
        yield uri


def asked(uri: str, *words: str) -> Any:
    done = diagnose(*words, "--connect", uri, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_every_guest_is_listed_the_worst_first(uri: str) -> None:
    """Before the tests below have changed them."""
    done = diagnose("--all", "--connect", uri)
    names = [line.split()[0] for line in done.stdout.splitlines()[: len(GUESTS)]]
    assert names[0] == "tenant", "it has the most limits"
    assert set(names) == set(GUESTS), done.stderr
    assert diagnose("--connect", uri).returncode == 2


def test_a_definition_that_libvirt_refuses_as_it_is_gets_no_change(uri: str, tmp_path: Path) -> None:
    """Its huge pages are on no file system that libvirt was told of."""
    file = tmp_path / "huge.xml"
    huge = "<memoryBacking><hugepages/></memoryBacking>"
    file.write_text(definition("tenant").replace("<name>tenant", "<name>huge").replace("<vcpu>", f"{huge}<vcpu>"))
    virsh(uri, "define", file)
    try:
        answer = asked(uri, "huge")
        text = diagnose("huge", "--connect", uri).stdout
    finally:
        virsh(uri, "undefine", "huge")
    assert "hugetlbfs" in answer["refused"]
    assert not [step for step in answer["steps"] if step["changes"] or step["apply"]]
    assert text.count("hugetlbfs") == 1
    assert "limited: 0.25 of a CPU " in text


@pytest.mark.parametrize("name", SOME)
def test_every_step_that_has_a_command_is_taken_and_taken_back(uri: str, tmp_path: Path, name: str) -> None:
    """As a measurement does it: by the agent, whose connection may end at any time. The guest is off."""
    before = virsh(uri, "dumpxml", "--inactive", "--security-info", name)
    diagnosis = TypeAdapter(Diagnosis).validate_python(asked(uri, name))
    tunings = {step.tuning for step in diagnosis.steps if step.apply and step.tuning is not Tuning.KVM}
    assert tunings
    host = Host("here", "kvm_host", {"ansible_connection": "local", "vmtoll_root": str(tmp_path)})
    changes = [change_of(diagnosis, tuning, uri=uri, root=str(tmp_path)) for tuning in sorted(tunings)]
    with opened(host) as line:
        for change in changes:
            take(line, change, name)
            assert virsh(uri, "dumpxml", "--inactive", "--security-info", name) != before
            assert line.call("revert", guest=name) == {"ran": True, "boots": True}
            assert virsh(uri, "dumpxml", "--inactive", "--security-info", name) == before
        take(line, changes[0], name)
    with opened(host) as line:  # the agent's end has restored the definition; the guest has yet to boot
        assert virsh(uri, "dumpxml", "--inactive", "--security-info", name) == before
        assert line.call("revert", guest=name) == {"ran": True, "boots": True}
    assert not list((tmp_path / "var/lib/vmtoll").iterdir())


@contextmanager
def opened(host: Host) -> Iterator[AgentLine]:
    line = AgentLine(host)
    line.open()
    try:
        yield line
    finally:
        line.close()


def take(line: AgentLine, change: Change, guest: str) -> None:
    commands: dict[str, Any] = {"apply": change.apply, "revert": change.revert, "limit_s": 60.0, "boots": change.boots}
    assert line.call("apply", name="step", guest=guest, **commands) == {"ran": True}


@pytest.mark.long
def test_a_step_is_measured_only_with_a_client_a_lack_and_consent(uri: str, tmp_path: Path) -> None:
    """vmtoll prints the plan before it asks; the measurement itself runs in the lab."""
    inventory = tmp_path / "hosts.yml"
    inventory.write_text(
        "clients: {hosts: {load: {ansible_host: 198.18.0.9}}}\n"
        f"kvm_hosts: {{hosts: {{kvm1: {{ansible_connection: local, vmtoll_libvirt_uri: '{uri}'}}}}}}\n"
        "kvm_guests: {hosts: {web: {ansible_host: 198.18.0.8, vmtoll_environment: kvm-default, vmtoll_kvm_host: kvm1, "
        "vmtoll_domain: shop}}}\n"
    )
    words = ["shop", "-i", str(inventory), "--results", str(tmp_path / "results")]
    dry = diagnose(*words, "--measure", "cache", "--dry-run", "--json")
    assert {trial["arm"] for trial in json.loads(dry.stdout)["trials"]} >= {"kvm-default", "with-cache"}, dry.stderr
    silent = diagnose(*words, "--measure", "cache")
    assert silent.returncode == 2
    assert "done: shuts web " in silent.stderr
    assert "agree with --yes" in silent.stderr
    assert " cannot have it; " in diagnose(*words, "--measure", "halt-polling").stderr
    assert "give an --inventory" in diagnose("shop", "--connect", uri, "--measure", "cache").stderr
    inventory.write_text(inventory.read_text().replace("clients", "others"))
    assert "needs a client" in diagnose(*words, "--measure", "cache").stderr
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize("name", SOME)
def test_the_commands_that_are_printed_take_the_steps(uri: str, name: str) -> None:
    """All of them, one after the other, by virt-xml itself; the guest runs under KVM nowhere here."""
    steps = {(s["tuning"], s["device"]): s for s in asked(uri, name)["steps"] if s["apply"] and s["tuning"] != "kvm"}
    assert {tuning for tuning, _ in steps} >= LACKING[name]
    for step in steps.values():
        done = subprocess.run(shlex.split(step["apply"]), capture_output=True, text=True, check=False)
        assert done.returncode == 0, (step, done.stderr)
    after = asked(uri, name)["steps"]
    assert not [step for step in after if step["state"] == "lacking" and step["tuning"] in LACKING[name]]

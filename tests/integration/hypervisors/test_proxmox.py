"""A guest of Proxmox VE: a configuration of our own, a real QEMU with Proxmox' socket, a substitute for `qm`.

The substitute does by QMP what Proxmox' own does. The tests need no node of Proxmox VE.
"""

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.program import vmtoll
from tests.support.qemu_process import qemu
from vmtoll import hypervisors
from vmtoll.agent.changed import changes_left, clean_up
from vmtoll.agent.domains import Domains
from vmtoll.hypervisors import qmp
from vmtoll.hypervisors.proxmox import ProxmoxGuest
from vmtoll.machines.connection import AgentLine
from vmtoll.model.inventory import Host

QM = """#!{python}
import contextlib, json, os, socket, sys
verb, vmid = sys.argv[1:3]
path = "{folder}/" + vmid + ".qmp"
def ask(*commands):
    monitor = socket.socket(socket.AF_UNIX)
    monitor.connect(path)
    lines = monitor.makefile("rw")
    lines.readline()
    for command in ("qmp_capabilities", *commands):
        print(json.dumps({{"execute": command}}), file=lines, flush=True)
        answer = json.loads(lines.readline())
        while "return" not in answer:
            answer = json.loads(lines.readline())
    return answer["return"]
if not os.path.exists(path):
    print("status: stopped") if verb == "status" else sys.exit("VM " + vmid + " not running")
elif verb == "status":
    print("status: running")
    if sys.argv[3:] == ["--verbose"]:
        print("qmpstatus: " + ask("query-status")["status"])
elif verb == "stop":
    ask("quit")
    with contextlib.suppress(FileNotFoundError):  # QEMU removes it, too
        os.remove(path)
else:
    ask({{"suspend": "stop", "resume": "cont", "shutdown": "system_powerdown"}}[verb])
"""
CONFIG = """name: shop
cores: 2
memory: 32
net0: e1000=BC:24:11:2E:C5:4B,bridge=vmbr0
ostype: l26
scsi0: local-lvm:vm-101-disk-0,size=1M

[before]
net0: virtio=BC:24:11:2E:C5:4B,bridge=vmbr0
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A node's files: a guest that will run, one that is off, a template."""
    configs, running, programs = (tmp_path / name for name in ("etc/pve/qemu-server", "var/run/qemu-server", "bin"))
    for folder in (configs, running, programs):
        folder.mkdir(parents=True)
    (configs / "101.conf").write_text(CONFIG)
    (configs / "102.conf").write_text("cores: 4\nname: big\nostype: win11\nscsihw: virtio-scsi-single\ncpulimit: 1\n")
    (configs / "9000.conf").write_text("template: 1\nname: image\n")
    (programs / "qm").write_text(QM.format(python=sys.executable, folder=running))
    (programs / "qm").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    return tmp_path


@pytest.fixture
def line(root: Path) -> Iterator[AgentLine]:
    agent = AgentLine(Host("node", "kvm_host", {"ansible_connection": "local", "vmtoll_root": str(root)}))
    agent.open()
    yield agent
    agent.close()


@pytest.fixture
def guest(root: Path, line: AgentLine) -> Iterator[ProxmoxGuest]:
    folder = root / "var/run/qemu-server"
    words = ["-pidfile", str(folder / "101.pid"), "-nodefaults", "-smp", "2", "-machine", "hpet=off,type=pc"]
    with qemu(folder, *words, stopped=False, socket="101.qmp"):
        found = hypervisors.of(Host("shop", "kvm_guest", {"vmtoll_vmid": 101}), line)
        assert isinstance(found, ProxmoxGuest)
        found.threads()  # it answers
        yield found


def status(guest: ProxmoxGuest) -> str:
    return str(qmp.ask_one(guest.host.host, guest.socket, "query-status")["status"])


def test_its_process_is_found_and_its_definition_is_the_configurations(guest: ProxmoxGuest) -> None:
    assert len(guest.threads()) == 2
    domain = ET.fromstring(guest.definition())
    assert (domain.findtext("name"), domain.findtext("vcpu")) == ("101", "2")
    model, timer = domain.find("devices/interface/model"), domain.find("clock/timer")
    assert model is not None
    assert model.get("type") == "e1000"
    assert timer is not None
    assert timer.attrib == {"name": "hpet", "present": "no"}


def test_it_is_paused_goes_on_and_is_switched_off(guest: ProxmoxGuest) -> None:
    guest.pause()
    assert status(guest) == "paused"
    guest.resume()
    assert status(guest) == "running"
    assert not guest.is_off()
    guest.shut_down()
    guest.power_off()
    assert guest.is_off()
    assert guest.start_command() == ["qm", "start", "101"]


def test_a_guest_goes_on_when_its_runner_is_gone(guest: ProxmoxGuest, line: AgentLine) -> None:
    guest.pause()
    line.close()
    assert status(guest) == "running"


def test_a_guest_that_a_killed_agent_left_paused_is_listed_and_goes_on(guest: ProxmoxGuest, root: Path) -> None:
    Domains(root).pause(guest.address)
    assert status(guest) == "paused"
    assert changes_left(root, None)["paused"] == ["shop"]
    assert clean_up(root) == ["guest shop resumed"]
    assert status(guest) == "running"


def diagnose(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return vmtoll("diagnose", *arguments)


@pytest.fixture
def inventory(root: Path) -> Path:
    file = root / "lab.yml"
    node = f"{{ansible_connection: local, vmtoll_root: {root}}}"
    guest = "{vmtoll_kvm_host: node, vmtoll_vmid: 101}"
    file.write_text(f"kvm_hosts: {{hosts: {{node: {node}}}}}\nkvm_guests: {{hosts: {{web: {guest}}}}}\n")
    return file


@pytest.mark.parametrize("name", ["101", "shop", "web"])
def test_diagnose_knows_it_by_number_by_name_and_by_the_inventory(
    guest: ProxmoxGuest, inventory: Path, name: str
) -> None:
    done = diagnose(name, "-i", str(inventory), "--json")
    answer: Any = json.loads(done.stdout)
    lacking = {step["tuning"]: step for step in answer["steps"] if step["state"] == "lacking"}
    assert (answer["kind"], answer["guest"], answer["title"], answer["monitor"]) == ("proxmox", "101", "shop", "")
    assert lacking["card"]["apply"] == "qm set 101 --net0 virtio=BC:24:11:2E:C5:4B,bridge=vmbr0"
    assert lacking["card"]["undo"] == "qm set 101 --net0 e1000=BC:24:11:2E:C5:4B,bridge=vmbr0"
    assert lacking["disk-bus"]["apply"] == "qm set 101 --scsihw virtio-scsi-single"
    assert "timers" not in lacking
    assert "cpu-model" in lacking


def test_all_lists_every_configuration_the_worst_first(guest: ProxmoxGuest, inventory: Path) -> None:
    """A limit counts before any number of other findings; a template is no guest."""
    done = diagnose("--all", "-i", str(inventory), "--json")
    guests = [each for each in json.loads(done.stdout) if each["kind"] == "proxmox"]
    assert [(each["guest"], each["running"]) for each in guests] == [("102", False), ("101", True)], done.stderr


def test_the_text_says_how_to_go_back(guest: ProxmoxGuest, inventory: Path) -> None:
    done = diagnose("102", "-i", str(inventory))
    assert done.stdout.startswith("102 (big) on node: 1 limit"), done.stderr
    assert "qm set 102 --delete cpulimit" in done.stdout
    assert "qm set 102 --cpulimit 1" in done.stdout
    assert "cp /etc/pve/qemu-server/102.conf" in done.stdout


def test_one_configuration_that_cannot_be_read_hides_no_other(guest: ProxmoxGuest, inventory: Path, root: Path) -> None:
    (root / "etc/pve/qemu-server/103.conf").write_text("name: odd\ncores: many\n")
    every = diagnose("--all", "-i", str(inventory))
    assert every.returncode == 0, every.stderr
    assert "103: its definition cannot " in every.stdout
    assert "101 (shop)" in every.stdout
    alone = diagnose("103", "-i", str(inventory))
    assert (alone.returncode, alone.stderr.count("\n"), "103: its definition" in alone.stderr) == (2, 1, True)


def test_their_uuids_are_known_by_configuration_and_command_line(root: Path, line: AgentLine) -> None:
    """So that metal which is a guest of the host is refused."""
    uuid = "6c305acb-a6b6-4cdd-a431-129be2dda0cf"
    (root / "etc/pve/qemu-server/104.conf").write_text(f"smbios1: uuid={uuid.upper()}\n")
    assert uuid in hypervisors.uuids(line)

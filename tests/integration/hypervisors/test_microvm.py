"""A guest of QEMU's machine type microvm, which libvirt does not know: a real, emulated QEMU."""

import json
import shlex
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.qemu_process import QEMU, qemu
from vmtoll import hypervisors
from vmtoll.agent.servers import wait_until
from vmtoll.guests.diagnosis.options import OptionsWriter
from vmtoll.guests.diagnosis.rules import Finding
from vmtoll.hypervisors import qmp
from vmtoll.hypervisors.command_line import parse_command_line, parse_option
from vmtoll.hypervisors.qemu_config import guest_of_line
from vmtoll.machines.connection import AgentLine
from vmtoll.model.diagnosis import State, Step, Tuning
from vmtoll.model.inventory import Host

NAME = "vmtoll-test-microvm"


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Sequence[str]:
    file = tmp_path_factory.mktemp("disks") / "disk.img"
    file.write_bytes(bytes(1 << 20))
    node = {"driver": "raw", "node-name": "d", "file": {"driver": "file", "filename": str(file), "locking": "off"}}
    return [
        "-M", "microvm,x-option-roms=off,rtc=on", "-name", f"guest={NAME}", "-nodefaults", "-no-user-config",
        "-smp", "2", "-cpu", "max", "-netdev", "user,id=n0", "-device", "virtio-net-device,netdev=n0",
        "-blockdev", json.dumps(node), "-device", "virtio-blk-device,drive=d,share-rw=on",
    ]  # fmt: skip


@pytest.fixture
def socket(words: Sequence[str], tmp_path: Path) -> Iterator[Path]:
    with qemu(tmp_path, *words, stopped=False) as path:
        yield path


@pytest.fixture
def guest(socket: Path, tmp_path: Path) -> Iterator[hypervisors.Guest]:
    line = AgentLine(Host("big", "kvm_host", {"ansible_connection": "local", "vmtoll_root": str(tmp_path)}))
    line.open()
    yield hypervisors.of(Host("web", "kvm_guest", {"vmtoll_qmp_socket": str(socket)}), line)
    line.close()


def test_a_run_sees_pauses_and_ends_it(guest: hypervisors.Guest, socket: Path) -> None:
    domain = ET.fromstring(guest.definition())
    machine = domain.find("os/type")
    assert machine is not None and machine.get("machine") == "microvm"
    assert len(guest.threads()) == 2
    assert [disk.get("bus") for disk in domain.findall("devices/disk/target")] == ["virtio"]
    assert [card.get("type") for card in domain.findall("devices/interface/model")] == ["virtio"]
    guest.pause()
    assert qmp.ask_one(guest.host.host, str(socket), "query-status")["status"] == "paused"
    guest.resume()
    assert qmp.ask_one(guest.host.host, str(socket), "query-status")["status"] == "running"
    guest.power_off()
    wait_until(guest.is_off, 60, "QEMU does not end")


def test_its_diagnosis_names_only_options_that_qemu_takes(socket: Path, words: Sequence[str], tmp_path: Path) -> None:
    argv = [sys.executable, "-c", "from vmtoll.cli import main; main()", "diagnose", str(socket), "--json"]
    steps: list[dict[str, Any]] = json.loads(subprocess.run(argv, check=True, capture_output=True).stdout)["steps"]
    lacking = {step["tuning"]: step for step in steps if step["state"] == "lacking"}
    assert "timers" not in lacking, "it has no HPET, and no option to leave it out"
    assert not {"card", "disk-bus", "cpu-model"} & set(lacking)
    cache = lacking["cache"]
    changed = list(words)
    old, new = shlex.split(cache["instead"]), shlex.split(cache["options"])
    at = next(n for n in range(len(changed)) if changed[n : n + 2] == old)
    changed[at : at + 2] = new
    with qemu(tmp_path, *changed, socket="changed.sock") as path:
        assert path.exists()


@pytest.mark.parametrize(("driver", "has_vectors"), [("virtio-net-device", False), ("virtio-net-pci", True)])
def test_a_card_gets_queues_by_properties_that_it_has(driver: str, has_vectors: bool) -> None:
    line = parse_command_line(
        [QEMU, "-M", "microvm", "-smp", "2", "-netdev", "tap,id=n", "-device", f"{driver},netdev=n"]
    )
    config, nothing = guest_of_line(line, NAME), dict[str, Any]()
    (card,) = config.cards.known
    step = Step(Tuning.MULTIQUEUE, State.LACKING, device=card.mac)
    changed = OptionsWriter(line, config, nothing)(Finding(step, card, (2, "qemu")))  # type: ignore[arg-type]
    device = parse_option("device", shlex.split(changed.options)[-1])
    assert ("vectors" in device.values, device.is_on("mq")) == (has_vectors, True)
    help_text = subprocess.run([QEMU, "-device", f"{driver},help"], check=True, capture_output=True, text=True).stdout
    assert {key for key in device.values if f"  {key}=<" not in help_text} <= {"driver"}, "QEMU has these properties"

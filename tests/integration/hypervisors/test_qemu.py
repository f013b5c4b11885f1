"""A guest of plain QEMU: a real, emulated QEMU process, on this machine and over a real sshd."""

import errno
import json
import os
import socket
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support.qemu_process import qemu
from tests.support.sshd import sshd
from vmtoll import hypervisors
from vmtoll.agent.domains import Domains
from vmtoll.agent.servers import wait_until
from vmtoll.hypervisors import qmp
from vmtoll.hypervisors.qemu import QemuGuest
from vmtoll.machines.connection import AgentLine
from vmtoll.model.errors import AgentError
from vmtoll.model.inventory import Host

LOCAL = {"ansible_connection": "local"}
WORDS = ("-nodefaults", "-smp", "2", "-cpu", "max,-avx", "-nic", "user,model=e1000", "-object", "iothread,id=io0")


@pytest.fixture(scope="module", params=["local", "ssh"])
def way(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, Any]]:
    if request.param == "local":
        yield LOCAL
    else:
        with sshd(tmp_path_factory.mktemp("sshd")) as variables:
            yield variables


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    file = tmp_path / "disk.img"
    file.write_bytes(bytes(1 << 20))
    return file


@pytest.fixture
def line(way: Mapping[str, Any], tmp_path: Path) -> Iterator[AgentLine]:
    agent = AgentLine(Host("big", "kvm_host", {**way, "vmtoll_root": str(tmp_path)}))
    agent.open()
    yield agent
    agent.close()


@pytest.fixture
def guest(line: AgentLine, tmp_path: Path, disk: Path) -> Iterator[QemuGuest]:
    node = {"driver": "raw", "node-name": "d", "file": {"driver": "file", "filename": str(disk)}}
    words = ["-blockdev", json.dumps(node), "-device", '{"driver":"virtio-blk-pci","drive":"d","ioeventfd":false}']
    with qemu(tmp_path, *WORDS, *words, stopped=False) as path:
        found = hypervisors.of(Host("web", "kvm_guest", {"vmtoll_qmp_socket": str(path)}), line)
        assert isinstance(found, QemuGuest)
        yield found


def status(guest: QemuGuest) -> str:
    return str(qmp.ask_one(guest.host.host, guest.socket, "query-status")["status"])


def test_process_threads_and_definition_are_those_of_the_running_guest(guest: QemuGuest) -> None:
    of_virtual_cpus = guest.threads()
    assert len(of_virtual_cpus) == 2
    process = guest.process()
    assert process["argv"][0].endswith("qemu-system-x86_64")
    assert process["kvm"] is False
    assert set(of_virtual_cpus) <= {thread["tid"] for thread in process["threads"]} - {process["pid"]}
    domain = ET.fromstring(guest.definition())
    assert domain.get("type") == "qemu"
    assert domain.findtext("vcpu") == "2"
    assert domain.findtext("iothreads") == "1"
    disk, card = domain.find("devices/disk/driver"), domain.find("devices/interface")
    assert disk is not None
    assert disk.attrib == {"name": "qemu", "type": "raw", "cache": "writeback", "ioeventfd": "off"}
    assert card is not None
    assert card.get("type") == "user"


def test_it_is_paused_goes_on_and_is_switched_off(guest: QemuGuest) -> None:
    guest.pause()
    assert status(guest) == "paused"
    guest.resume()
    assert status(guest) == "running"
    assert not guest.is_off()
    guest.shut_down()
    guest.power_off()
    wait_until(guest.is_off, 60, "QEMU does not end")
    with pytest.raises(AgentError, match="no QEMU process"):
        guest.process()


def test_a_guest_goes_on_when_its_runner_is_gone(guest: QemuGuest, line: AgentLine) -> None:
    guest.pause()
    line.close()
    assert status(guest) == "running"


def test_a_guest_that_a_killed_agent_left_paused_goes_on(guest: QemuGuest, tmp_path: Path) -> None:
    Domains(tmp_path).pause(guest.address)
    assert status(guest) == "paused"
    guest.resume_left()
    assert status(guest) == "running"


def test_nothing_holds_the_socket_between_two_questions(guest: QemuGuest) -> None:
    assert status(guest) == "running"
    with socket.socket(socket.AF_UNIX) as other:
        other.settimeout(10)
        other.connect(guest.socket)
        assert "QMP" in json.loads(other.makefile().readline())


def test_a_socket_that_another_client_holds_is_one_sentence(guest: QemuGuest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(qmp, "_LIMIT_S", 1.0)
    with socket.socket(socket.AF_UNIX) as other:
        other.connect(guest.socket)
        other.makefile().readline()
        with pytest.raises(AgentError, match="serves one client"):
            status(guest)


def test_a_socket_that_is_not_there_is_one_sentence(line: AgentLine) -> None:
    with pytest.raises(AgentError, match=rf"^big: QMP at /nowhere: {os.strerror(errno.ENOENT)}$"):
        qmp.ask_one(line.host, "/nowhere", "query-status")


def test_what_qemu_refuses_is_said_with_its_words(guest: QemuGuest) -> None:
    with pytest.raises(AgentError, match="no-such-command"):
        qmp.ask_one(guest.host.host, guest.socket, "no-such-command")
    assert set(qmp.ask_accepted(guest.host.host, guest.socket, "query-status", "no-such-command")) == {"query-status"}


def test_what_starts_it_is_its_unit_or_what_the_inventory_says(line: AgentLine) -> None:
    variables = {"vmtoll_qmp_socket": "/q"}
    with_unit = hypervisors.of(Host("web", "kvm_guest", {**variables, "vmtoll_unit": "web.service"}), line)
    assert with_unit.start_command() == ["systemctl", "start", "web.service"]
    with pytest.raises(AgentError, match="vmtoll_revive"):
        hypervisors.of(Host("web", "kvm_guest", variables), line).start_command()


def test_cpu_time_of_its_virtual_cpus_is_counted_apart(guest: QemuGuest, line: AgentLine) -> None:
    address = {**guest.address, "vcpus": guest.threads()}
    reading = line.call("usage", domains=["web"], guests={"web": address})["domains"]["web"]
    assert set(reading["threads_s"]) == {"vcpu", "vhost", "qemu"}
    assert reading["threads_s"]["vcpu"] > 0
    assert reading["kvm"] == {}
    assert set(reading["waits_ns"]["vcpu"]) == {str(thread) for thread in guest.threads()}


def test_waits_of_a_guest_are_sampled(guest: QemuGuest, line: AgentLine) -> None:
    line.call("sample_start", interval_s=0.05, domains=["web"], guests={"web": guest.address})
    time.sleep(1)
    counters = line.call("sample_stop")["counters"]
    assert len(counters) > 1
    assert all("wait_s" in reading for reading in counters)


def test_a_runner_that_is_killed_lets_go_of_the_socket(guest: QemuGuest) -> None:
    """It waits for another client when it is killed; the socket is free as soon as that one has gone."""
    variables = dict(guest.host.host.variables)
    program = f"""
from vmtoll.hypervisors import qmp
from vmtoll.model.inventory import Host
print("asks", flush=True)
qmp.ask_one(Host("big", "kvm_host", {variables!r}), {guest.socket!r}, "query-status")
"""
    with socket.socket(socket.AF_UNIX) as other:
        other.connect(guest.socket)
        other.makefile().readline()
        with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as runner:
            assert runner.stdout is not None
            assert runner.stdout.readline() == "asks\n"
            while not bridges(guest.socket):
                assert runner.poll() is None
                time.sleep(0.02)
            runner.kill()
    deadline = time.monotonic() + 60
    while bridges(guest.socket):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert status(guest) == "running"


def bridges(path: str) -> list[str]:
    """The processes of this machine that join the socket with a runner."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # of one that has ended
            text = file.read_text(errors="replace")
            found += [file.parts[2]] if path in text and "monitor.connect" in text else []
    return found

"""A guest of another monitor: a process with the names of Cloud Hypervisor's program and threads."""

import json
import os
import subprocess
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.monitor import monitor
from tests.support.program import vmtoll
from vmtoll import hypervisors
from vmtoll.agent.servers import wait_until
from vmtoll.hypervisors.process import ProcessGuest
from vmtoll.machines.connection import AgentLine
from vmtoll.model.errors import AgentError
from vmtoll.model.inventory import Host

NAME = f"vmtoll-test-{os.getpid()}"


@pytest.fixture
def line() -> Iterator[AgentLine]:
    agent = AgentLine(Host("big", "kvm_host", {"ansible_connection": "local"}))
    agent.open()
    yield agent
    agent.close()


@pytest.fixture
def process() -> Iterator["subprocess.Popen[str]"]:
    with monitor("/usr/bin/cloud-hypervisor", "--id", NAME) as running:
        yield running


@pytest.fixture
def guest(process: "subprocess.Popen[str]", line: AgentLine, tmp_path: Path) -> ProcessGuest:
    file = tmp_path / "pid"
    file.write_text(f"{process.pid}\n")
    found = hypervisors.of(Host("shop", "kvm_guest", {"vmtoll_pid_file": str(file)}), line)
    assert isinstance(found, ProcessGuest)
    return found


def test_its_threads_are_those_of_the_process(guest: ProcessGuest, process: "subprocess.Popen[str]") -> None:
    answer = guest.process()
    assert answer["pid"] == process.pid
    (vcpu,) = [thread for thread in answer["threads"] if thread["tid"] in guest.threads()]
    assert (vcpu["name"], len(vcpu["cpus"])) == ("vcpu0", 1)
    assert ET.fromstring(guest.definition()).findtext("vcpu") == "1"
    assert not guest.is_off()


def test_nothing_is_done_to_it(guest: ProcessGuest, process: "subprocess.Popen[str]") -> None:
    for action in (guest.pause, guest.resume, guest.start_command, guest.power_off):
        with pytest.raises(AgentError, match="of other monitors"):
            action()
    guest.resume_left()
    assert process.poll() is None


def test_its_cpu_is_counted_by_kind_of_thread(guest: ProcessGuest, line: AgentLine) -> None:
    def usage() -> dict[str, Any]:
        answer: dict[str, Any] = line.call("usage", domains=["shop"], guests={"shop": guest.address})
        return dict(answer["domains"]["shop"])

    before = usage()
    assert before["kvm"] == {}
    wait_until(lambda: usage()["threads_s"]["vcpu"] > before["threads_s"]["vcpu"], 30, "the thread had no CPU")


def test_a_unit_that_does_not_run_is_one_sentence(line: AgentLine) -> None:
    gone = hypervisors.of(Host("shop", "kvm_guest", {"vmtoll_unit": "no-such.service"}), line)
    assert gone.is_off()
    assert isinstance(gone, ProcessGuest)
    with pytest.raises(AgentError, match=r"shop does .*no-such\.service"):
        gone.process()


def diagnose(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return vmtoll("diagnose", *arguments)


def test_diagnose_shows_its_threads_with_cpu_and_waits(process: "subprocess.Popen[str]") -> None:
    """Two processes want the one CPU: the thread has about half of it, and waits for the other half."""
    done = diagnose(NAME, "--json")
    answer = json.loads(done.stdout)
    assert (answer["kind"], answer["program"]) == ("process", "cloud-hypervisor"), done.stderr
    (vcpu,) = [thread for thread in answer["threads"] if thread["name"] == "vcpu0"]
    assert vcpu["cpu_pct"] > 1
    assert vcpu["wait_pct"] > 1
    assert {step["tuning"] for step in answer["steps"]} == {"cpu-limit", "memory-limit"}
    assert not any(step["changes"] or step["xml"] or step["options"] for step in answer["steps"])


def test_the_inventory_names_it_by_a_file_with_its_pid(guest: ProcessGuest, tmp_path: Path) -> None:
    inventory = tmp_path / "lab.yml"
    host = "kvm_hosts: {hosts: {big: {ansible_connection: local}}}"
    known = f"{{vmtoll_kvm_host: big, vmtoll_pid_file: {guest.guest.vars.pid_file}}}"
    inventory.write_text(f"{host}\nkvm_guests: {{hosts: {{shop: {known}}}}}\n")
    done = diagnose("shop", "-i", str(inventory))
    assert done.stdout.startswith("shop on big: "), done.stderr
    assert "vmtoll reads only the limits and threads of cloud-hypervisor" in " ".join(done.stdout.split())
    assert "vcpu0" in done.stdout

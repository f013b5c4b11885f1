"""What a KVM host tells of a guest: with a real QEMU (which emulates here), and with what KVM would print."""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import yaml

from tests.support.measured import run
from tests.support.records import crosscheck, primary, records_of
from vmtoll.agent.protocol import DomainUsage, Reading
from vmtoll.agent.servers import wait_until
from vmtoll.agent.telemetry import by_debugfs, by_libvirt, interrupts, kvm_counters, thread_seconds
from vmtoll.machines.connection import AgentLine
from vmtoll.model.inventory import Host
from vmtoll.model.trial import Accelerator, Resources
from vmtoll.spec.catalog import Registry
from vmtoll.trial import usage
from vmtoll.trial.usage import Usage

DOMSTATS = """Domain: 'toll'
  vcpu.current=2
  vcpu.0.time=81000000000
  vcpu.0.exits.sum=1000
  vcpu.0.halt_exits.sum=300
  vcpu.0.guest_mode.cur=0
  vcpu.1.exits.sum=500
  vcpu.1.halt_poll_success_ns.sum=7000
"""
# A process with two threads of these names that work, and one that waits.
THREADS = """
import sys, threading, time
def work(name):
    with open(f"/proc/self/task/{threading.get_native_id()}/comm", "w") as file:
        file.write(name)
    while True:
        sum(range(1000))
for name in sys.argv[1:3]:
    threading.Thread(target=work, args=(name,), daemon=True).start()
time.sleep(60)
"""


@pytest.fixture
def qemu(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The real one, without a disk: its firmware looks for something to boot."""
    argv = ["qemu-system-x86_64", "-accel", "tcg", "-nodefaults", "-display", "none", "-m", "64"]
    process = subprocess.Popen([*argv, "-name", "guest=toll,debug-threads=on"], cwd=tmp_path)
    yield process
    process.kill()
    process.wait()


@pytest.fixture
def agent() -> Iterator[AgentLine]:
    line = AgentLine(Host("box", "kvm_host", {"ansible_connection": "local"}))
    line.open()
    yield line
    line.close()


def threads_of(*names: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(["/usr/bin/python3", "-c", THREADS, *names])


def test_threads_of_a_real_qemu_are_distinguished(qemu: subprocess.Popen[bytes], agent: AgentLine) -> None:
    def used() -> dict[str, float]:
        seen = agent.call("usage", domains=["toll"], uri="qemu:///none")["domains"]["toll"]
        return dict(seen["threads_s"])

    wait_until(lambda: used()["vcpu"] > 0 and used()["qemu"] > 0, 20, "QEMU does not run")
    told = agent.call("usage", domains=["toll"], uri="qemu:///none")["domains"]["toll"]
    assert told["total_s"] == pytest.approx(sum(told["threads_s"].values()))
    assert told["threads_s"]["vhost"] == 0
    assert told["kvm"] == {}, "an emulated guest has no exits, so the agent does not query them"


def test_vhost_threads_are_counted_inside_and_outside_the_process() -> None:
    process, outside = threads_of("vhost-4711", "CPU 0/KVM"), threads_of("vhost-4711", "vhost-4711")
    try:
        pid = str(process.pid)
        wait_until(lambda: min(thread_seconds(pid, []).values()) > 0, 20, "the threads do not work")
        wait_until(lambda: thread_seconds(str(outside.pid), [])["vhost"] > 0, 20, "the threads outside it do not work")
        spent = thread_seconds(str(outside.pid), [])["vhost"]
        assert thread_seconds(pid, [str(outside.pid)])["vhost"] > spent > 0
    finally:
        for started in (process, outside):
            started.kill()
            started.wait()


A_THREAD_THAT_ENDS = """
import threading, time

def spin():
    while time.thread_time() < 0.1:
        pass

thread = threading.Thread(target=spin)
thread.start()
thread.join()
print("ended", flush=True)
input()
"""


def test_the_time_of_a_thread_that_has_ended_is_kept() -> None:
    """QEMU's workers come and go; what they used belongs to QEMU, and its time never runs backwards."""
    with subprocess.Popen(
        ["python3", "-c", A_THREAD_THAT_ENDS], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout and process.stdout.readline() == b"ended\n"
        seconds = thread_seconds(str(process.pid), [])
        process.communicate(b"\n")
    assert seconds["vcpu"] == seconds["vhost"] == 0
    assert seconds["qemu"] > 0.1, "what the thread used"


def test_a_guest_that_kvm_runs_is_asked_of_libvirt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    virsh = tmp_path / "virsh"
    virsh.write_text(f'#!/bin/sh\necho "$@" >{tmp_path}/asked\ncat <<END\n{DOMSTATS}END\n')
    virsh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    process = threads_of("CPU 0/KVM", "CPU 1/KVM")
    try:
        pid = str(process.pid)
        wait_until(lambda: bool(kvm_counters(pid, "toll", "qemu:///system")), 20, "no counters were read")
        counted = kvm_counters(pid, "toll", "qemu:///system")
    finally:
        process.kill()
        process.wait()
    assert counted == {"exits": 1500, "halt_exits": 300, "halt_poll_success_ns": 7000}
    assert (tmp_path / "asked").read_text().split() == ["-c", "qemu:///system", "domstats", "--vcpu", "toll"]


def test_the_kernels_own_files_are_read_where_they_are(tmp_path: Path) -> None:
    folder = tmp_path / "4711-12"
    (folder / "vcpu0").mkdir(parents=True)
    for name, value in (("exits", "1500"), ("halt_exits", "300"), ("odd", "1 2 3")):
        (folder / name).write_text(f"{value}\n")
    (tmp_path / "47110-9").mkdir()
    (tmp_path / "47110-9" / "exits").write_text("1\n")
    assert by_debugfs("4711", str(tmp_path)) == {"exits": 1500, "halt_exits": 300}
    assert by_debugfs("1", str(tmp_path)) == {} == by_libvirt("error: failed to get domain 'toll'\n")


def test_interrupts_are_those_of_this_machine() -> None:
    before, names = interrupts(), {line.split()[0] for line in Path("/proc/interrupts").read_text().splitlines()[1:]}
    assert {name.rstrip(":") for name in names if not name.rstrip(":").isdigit()} <= set(before)
    assert sum(before.values()) > 0
    wait_until(lambda: sum(interrupts().values()) > sum(before.values()), 20, "no interrupt comes")


def reading(times: int, *, kvm: bool = True, guests: int = 1) -> Usage:
    """After `times` requests to each guest: 3 exits and 2 interrupts each, 50 µs on virtual CPUs, 20 µs of vhost."""
    threads_s = {"vcpu": 50e-6 * times, "vhost": 20e-6 * times, "qemu": 0.0}
    counted = {"exits": 7 + 3 * times, "io_exits": times, "hypercalls": 4} if kvm else {}
    domain: DomainUsage = {"total_s": sum(threads_s.values()), "threads_s": threads_s, "waits_ns": None, "kvm": counted}
    domains = {f"toll-{n}": domain for n in range(guests)}
    suts: dict[str, Reading] = {
        f"guest-{n}": {"interrupts": {"virtio0-input.0": times, "LOC": 5}} for n in range(max(guests, 1))
    }
    host: Reading = {"interrupts": {"eth0": 100 + 2 * times * guests, "LOC": 5}, "domains": domains}
    return Usage({"client": {}}, suts, host)


@pytest.mark.parametrize("guests", [1, 3])
def test_resources_are_what_grew_per_request(guests: int) -> None:
    counted = usage.telemetry(reading(10, guests=guests), reading(1010, guests=guests), 1000 * guests)
    assert counted is not None
    assert counted.kvm == {"exits": 3000 * guests, "io_exits": 1000 * guests}
    assert counted.host_interrupts == {"eth0": 2000 * guests}
    resources = usage.with_telemetry(Resources(), counted)
    assert asdict(resources) == pytest.approx(asdict(Resources(
        host_exits_per_request=3, host_vcpu_cpu_us_per_request=50, host_qemu_cpu_us_per_request=0,
        host_vhost_cpu_us_per_request=20, host_irqs_per_request=2, guest_irqs_per_request=1,
    )))  # fmt: skip


def test_missing_counters_give_no_value_instead_of_zero() -> None:
    counted = usage.telemetry(reading(10, kvm=False), reading(1010, kvm=False), 1000)
    assert counted is not None
    assert counted.kvm is None
    assert usage.with_telemetry(Resources(), counted).host_exits_per_request is None
    assert usage.with_telemetry(Resources(), replace(counted, requests=0)) == Resources()
    assert usage.telemetry(reading(10, guests=0), reading(20, guests=0), 10) is None
    assert usage.with_telemetry(Resources(), None) == Resources()


def test_a_run_keeps_what_the_host_saw_of_each_trial(
    qemu: subprocess.Popen[bytes], project: Registry, inventory: Path, tmp_path: Path, rewrite: Callable[..., Path]
) -> None:
    """The guest's server runs on this machine, next to an idle emulated QEMU."""
    tree = yaml.safe_load(inventory.read_text())
    groups = tree["all"]["children"]
    guest = groups["metal_hosts"]["hosts"].pop("metal-two") | {"vmtoll_kvm_host": "box", "vmtoll_domain": "toll"}
    groups |= {"kvm_guests": {"hosts": {"guest": guest}}}
    groups |= {"kvm_hosts": {"hosts": {"box": {"ansible_connection": "local", "vmtoll_root": str(tmp_path)}}}}
    inventory.write_text(yaml.safe_dump(tree))
    folder = run(rewrite(blocks=1, noise_floor=None), inventory, tmp_path / "results", registry=project)
    records = {record.arm.environment: record for record in records_of(folder)}
    record, resources = records["metal-two"], records["metal-two"].resources
    assert record.accelerator is Accelerator.TCG
    assert resources.host_exits_per_request is None, "under emulation there are none, and none is not 0"
    kinds = [getattr(resources, f"host_{kind}_cpu_us_per_request") for kind in ("vcpu", "qemu", "vhost")]
    assert sum(kinds) == pytest.approx(primary(record).host_cpu_us_per_request)
    assert resources.host_irqs_per_request and resources.guest_irqs_per_request
    for waited_us in (resources.host_vcpu_wait_us_per_request, resources.server_wait_us_per_request):
        assert waited_us is not None and waited_us >= 0
    assert "wait_pct" in (folder / "samples" / f"{record.name}.csv").read_text().splitlines()[0]
    (file,) = (folder / "telemetry").iterdir()
    assert file.name == f"{record.name}.json"
    counted = json.loads(file.read_text())
    assert {role: one["requests"] for role, one in counted.items()} == {
        "primary": primary(record).transactions, "crosscheck": crosscheck(record).transactions,
    }  # fmt: skip
    assert counted["primary"]["kvm"] is None
    metal = records["metal"].resources
    assert metal.host_vcpu_cpu_us_per_request is metal.guest_irqs_per_request is None
    assert metal.host_vcpu_wait_us_per_request is None is not metal.server_wait_us_per_request

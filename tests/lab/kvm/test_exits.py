"""Exits of a guest under KVM, traced by its host's kernel: what comes out of it, and that nothing of it stays."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.lab.kvm.machines import INVENTORY, vmtoll
from tests.lab.records import number, records_of
from tests.lab.the_lab import LAB, Ssh
from vmtoll.agent.virtual_machine import BY_PROCESS, EXITS
from vmtoll.analysis.exits import explained_exits
from vmtoll.analysis.run import load_run
from vmtoll.machines.connection import AgentLine, agent_modules
from vmtoll.model.trial import Arm
from vmtoll.paths import PROJECT
from vmtoll.runs.folder import EXPLAINED, read_exit_prices
from vmtoll.spec.inventory import hosts_by_role, read_inventory

pytestmark = [pytest.mark.lab, pytest.mark.kvm]

EXPERIMENT: dict[str, Any] = {
    "question": "?", "purpose": "smoke", "environments": ["metal", "kvm-default"], "explain": "exits",
    "servers": ["lighttz"], "workloads": ["site-rate-100"], "blocks": 1, "warmup_s": 0.5, "duration_s": 4.0,
}  # fmt: skip
RUN = "import sys; from pathlib import Path; from tests.support.measured import run; run(*map(Path, sys.argv[1:]))"
TRACES = "ls /sys/kernel/debug/tracing/instances; cat /sys/kernel/debug/tracing/synthetic_events"
# Runs each loop of the price list a number of times on the host, while the kernel traces the thread that does it.
PRICED = """
import contextlib, json, threading
from vmtoll.agent import virtual_machine as machines
from vmtoll.agent.exits import ExitTrace
COUNT, seen = 200, {}
with contextlib.closing(ExitTrace([threading.get_native_id()])) as trace:
    with contextlib.closing(machines.VirtualMachine()) as machine:
        machine.answer_by_eventfd()
        for kind, code in {**machines.EXITS, machines.BY_PROCESS: b""}.items():
            before = {row["reason"]: row["count"] for row in trace.read()}
            machines._loop_ns(machine, code, COUNT) if code else machines._process_ns(machine, COUNT)
            seen[kind] = {row["reason"]: row["count"] - before.get(row["reason"], 0) for row in trace.read()}
print(json.dumps(seen))
"""


@pytest.fixture(scope="module")
def folder(machines: Ssh, tmp_path_factory: pytest.TempPathFactory) -> Path:
    tmp_path = tmp_path_factory.mktemp("exits")
    file = write(tmp_path, EXPERIMENT)
    vmtoll("run", file.with_suffix(""), "--inventory", INVENTORY, "--results", tmp_path / "results")
    return (tmp_path / "results" / "latest").resolve()


def write(folder: Path, document: dict[str, Any]) -> Path:
    file = folder / "exits.yml"
    file.write_text(yaml.safe_dump(document))
    return file


def test_the_exits_of_a_guest_are_counted_and_timed(folder: Path) -> None:
    assert {record.arm for record in records_of(folder)} == {Arm("metal"), Arm("kvm-default")}
    explained = EXPLAINED.read(folder)
    assert {each.trial.arm for each in explained} == {Arm("kvm-default")}
    measured = [each for each in explained if each.exits]
    assert len(measured) == 3, [each.trial.findings for each in explained]
    for each in measured:
        exits = {row.reason: row for row in each.exits}
        assert exits.keys() >= {"interrupt", "msr"}, "a guest of kvm_amd"
        assert all(row.count > 0 and row.time_us > 0 for row in each.exits)
        assert exits["hlt"].away_us > 10 * exits["hlt"].cpu_us, "an idle CPU sleeps"
        assert all(row.time_us < 60e6 for row in each.exits), "no longer than the load and its surroundings"
        primary = each.trial.primary
        assert primary is not None
        in_all_us = number(each.trial.resources.host_vcpu_cpu_us_per_request) * number(primary.transactions)
        assert 0 < sum(row.cpu_us for row in each.exits) < 1.05 * in_all_us, "of the virtual CPU's own CPU time"
        # KVM's own counter, read a little before and after the trace.
        counted = number(each.trial.resources.host_exits_per_request) * number(primary.transactions)
        assert sum(row.count for row in each.exits) == pytest.approx(counted, rel=0.3)


def test_their_time_is_part_of_what_the_guest_needs(folder: Path) -> None:
    (exits,) = explained_exits(load_run(folder))
    assert exits.us_per_request.value > 0
    assert exits.traced_cpu_us is not None and exits.more_us is not None
    assert exits.reasons[0].us_per_request.value > 0
    assert "exits" in (folder / "report.html").read_text()
    assert "explained trials" in vmtoll("explain", folder)
    (row,) = json.loads(vmtoll("explain", folder, "--json", errors=False))["exits"]
    assert row["us_per_request"]["value"] == pytest.approx(exits.us_per_request.value)


def test_the_host_has_a_price_list(folder: Path) -> None:
    (prices,) = read_exit_prices(folder).values()
    assert {price.kind for price in prices} == {*EXITS, BY_PROCESS}
    assert all(price.ns > 0 for price in prices)


def test_a_priced_loop_causes_the_exits_that_it_is_priced_by(machines: Ssh) -> None:
    """By the host's own trace of it: one exit for each turn of the loop."""
    modules = {name: text for name, text in agent_modules().items() if not name.endswith(".main")}
    program = f"""
import sys, types
for name, text in {json.dumps(list(modules.items()))}:
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile(text, name, "exec"), module.__dict__)
for name in ("vmtoll", "vmtoll.agent"):
    sys.modules.setdefault(name, types.ModuleType(name))
for name in [name for name in sys.modules if name.startswith("vmtoll.agent.")]:
    setattr(sys.modules["vmtoll.agent"], name.rpartition(".")[2], sys.modules[name])
{PRICED}"""
    reach = ["ssh", "-F", str(LAB / "ssh_config"), "host", "python3", "-"]
    done = subprocess.run(reach, input=program, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    for kind, reason in {
        "cpuid": "cpuid", "msr": "msr", "port-eventfd": "io", "mmio-eventfd": "npf", BY_PROCESS: "io",
    }.items():  # fmt: skip
        assert seen[kind][reason] == pytest.approx(200, abs=2), (kind, seen[kind])
    assert machines("host", TRACES) == ""


def test_nothing_of_the_trace_stays(folder: Path, machines: Ssh) -> None:
    assert machines("host", TRACES) == ""


def killed_while_tracing(machines: Ssh, tmp_path: Path, kill: Callable[[], object]) -> Path:
    """Begin a run, and call `kill` as soon as its trace is there; then kill vmtoll. Returns the experiment's file."""
    file = write(tmp_path, EXPERIMENT | {"environments": ["kvm-default"], "duration_s": 12.0})
    words = [str(path) for path in (file, INVENTORY, tmp_path / "results")]
    process = subprocess.Popen([sys.executable, "-c", RUN, *words], cwd=PROJECT)
    try:
        deadline = time.monotonic() + 600
        while "vmtoll-" not in machines("host", TRACES):
            assert process.poll() is None, "it ended by itself"
            assert time.monotonic() < deadline
            time.sleep(1)
        process.send_signal(signal.SIGSTOP)  # it does not bring a lost machine back
        kill()
    finally:
        process.kill()
        process.wait()
    return file


def test_a_killed_run_leaves_no_trace_and_can_be_resumed(machines: Ssh, tmp_path: Path) -> None:
    """The agent of the KVM host removes it when its line is gone; no run is needed after it."""
    file = killed_while_tracing(machines, tmp_path, lambda: None)
    deadline = time.monotonic() + 120
    while machines("host", TRACES):
        assert time.monotonic() < deadline
        time.sleep(1)
    run = (tmp_path / "results" / "latest").resolve()
    (measured,) = records_of(run)
    words = ("--inventory", INVENTORY, "--results", tmp_path / "results", "--resume", run)
    vmtoll("run", file.with_suffix(""), *words)
    assert records_of(run) == [measured], "the block was complete"
    assert sum(bool(each.exits) for each in EXPLAINED.read(run)) == 3
    assert "exits take" in vmtoll("explain", run), "without metal there is no difference to explain"


def test_the_trace_of_a_killed_agent_is_removed_by_the_next(machines: Ssh, tmp_path: Path) -> None:
    """Killed together with vmtoll: `vmtoll status` names it, the next agent's check removes it."""
    pid = "ls /sys/kernel/debug/tracing/instances | cut -d- -f2"
    killed_while_tracing(machines, tmp_path, lambda: machines("host", f"kill -9 $({pid})"))
    assert "vmtoll-" in machines("host", TRACES)
    assert "traces of exits left by a run that was killed" in vmtoll("status", "--inventory", INVENTORY)
    (host,) = hosts_by_role(read_inventory(INVENTORY))["kvm_host"]
    line = AgentLine(host)
    line.open()
    try:
        assert line.call("exits_obstacle") == {"why": "", "way_out": ""}
    finally:
        line.close()
    assert machines("host", TRACES) == ""

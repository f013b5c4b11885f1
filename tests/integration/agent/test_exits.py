"""The price list of exits and the check of tracing, by a real agent on whatever machine this runs."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from vmtoll.agent.servers import wait_until
from vmtoll.agent.virtual_machine import DEVICE, EXITS, why_no_code_runs
from vmtoll.machines.connection import AgentLine
from vmtoll.model.errors import AgentError
from vmtoll.model.exits import ExitPrice
from vmtoll.model.inventory import Host


@pytest.fixture
def agent() -> Iterator[AgentLine]:
    line = AgentLine(Host("box", "kvm_host", {"ansible_connection": "local"}))
    line.open()
    yield line
    line.close()


def runs_code() -> bool:
    try:
        return not why_no_code_runs()
    except OSError:
        return False


def test_exits_have_prices_where_kvm_runs_code(agent: AgentLine) -> None:
    if not runs_code():
        with pytest.raises(AgentError, match=DEVICE):
            agent.call("exit_prices", 120)
        return
    prices = {row["kind"]: ExitPrice.model_validate(row) for row in agent.call("exit_prices", 120)}
    assert set(prices) == {*EXITS, "port-process"}
    for price in prices.values():
        assert 0 <= price.low_ns <= price.ns <= price.high_ns
        assert price.exits > 100
    assert prices["port-process"].ns > prices["port-eventfd"].ns, "a process is asked as well"


def test_a_machine_says_whether_its_exits_can_be_traced(agent: AgentLine) -> None:
    answer = agent.call("exits_obstacle")
    has_histograms = (
        Path("/sys/kernel/debug/tracing/events/kvm/kvm_exit/hist").exists()
        or Path("/sys/kernel/tracing/events/kvm/kvm_exit/hist").exists()
    )
    assert bool(answer["why"]) == bool(answer["way_out"]) == (not has_histograms)


def test_the_threads_of_a_guest_are_found_and_the_kernel_is_asked(agent: AgentLine, tmp_path: Path) -> None:
    """Of a real QEMU, which emulates here: it has a virtual CPU, and no exits."""
    argv = ["qemu-system-x86_64", "-accel", "tcg", "-nodefaults", "-display", "none", "-m", "64"]
    with subprocess.Popen([*argv, "-name", "guest=toll,debug-threads=on"], cwd=tmp_path) as qemu:
        try:
            wait_until(lambda: _has_virtual_cpus(agent, "toll"), 20, "no QEMU")
            if agent.call("exits_obstacle")["why"]:
                with pytest.raises(AgentError, match="tracefs"):
                    agent.call("exits_start", domains=["toll"])
            else:
                assert agent.call("exits_start", domains=["toll"]) == 1
                assert agent.call("exits") == []
            agent.call("exits_stop")
        finally:
            qemu.kill()


def _has_virtual_cpus(agent: AgentLine, domain: str) -> bool:
    try:
        return bool(agent.call("usage", domains=[domain])["domains"][domain]["cpus"])
    except AgentError as error:
        assert "no QEMU process" in str(error)
        return False


def test_exits_that_are_not_traced_cannot_be_read(agent: AgentLine) -> None:
    with pytest.raises(AgentError, match="not traced"):
        agent.call("exits")
    agent.call("exits_stop")

"""Faults of the client: its gate fires and names it."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.lab.faults import burning, changed, detached, measured, once
from tests.lab.records import BY_CLIENT, finding, number, primary, undisturbed
from tests.lab.the_lab import Ssh
from vmtoll.model.event import Phase
from vmtoll.model.finding import ACCIDENTS, Code, Role, Validity

pytestmark = pytest.mark.lab


@pytest.mark.injects(Code.CLIENT_STARVED)
def test_a_client_starved_of_cpu(lab: Path, ssh: Ssh, tmp_path: Path) -> None:
    with burning(ssh, "client", processes=3) as pids:
        record = measured(tmp_path)[0]
    starved = finding(record, Code.CLIENT_STARVED, Role.PRIMARY)
    assert starved.machine == "client"
    assert any(f"pid {pid})" in (starved.process or "") for pid in pids), starved
    assert number(record.conditions.client_background_cpu_pct) > 30
    assert record.validity is Validity.SUSPECT
    assert undisturbed(record) <= BY_CLIENT


@pytest.mark.injects(Code.CLIENT_STARVED)
def test_a_crosscheck_starved_of_cpu(lab: Path, ssh: Ssh, tmp_path: Path) -> None:
    """The processes start to burn between the tool and its cross-check: the primary measurement is not limited."""
    with ExitStack() as burners:
        inject = once(
            Phase.PREPARING, lambda: burners.enter_context(burning(ssh, "client", processes=3)), tool="h2load"
        )
        [record] = measured(tmp_path, inject, {"tool": "siege", "crosscheck": "h2load"}, crosscheck_duration_s=2.0)
    starved = finding(record, Code.CLIENT_STARVED, Role.CROSSCHECK)
    assert (starved.machine, starved.tool) == ("client", "h2load")
    assert record.validity is Validity.SUSPECT
    assert undisturbed(record) <= BY_CLIENT


@pytest.mark.injects(Code.PORTS_EXHAUSTED)
def test_a_client_without_ports(lab: Path, ssh: Ssh, tmp_path: Path) -> None:
    """Each connection leaves its port in TIME_WAIT: none fails yet, and there is no room for more users."""
    usual = ssh("client", "sysctl -n net.ipv4.ip_local_port_range").replace("\t", " ")
    assert ssh("client", "sysctl -n net.ipv4.tcp_tw_reuse").strip() == "1", "as provisioning leaves it"
    narrow = "sysctl -qw net.ipv4.tcp_tw_reuse={1} net.ipv4.ip_local_port_range='{0}'".format
    # 40 users warm up and 40 are measured; a body check before and one after need a port each.
    with changed(ssh, "client", narrow("65400 65483", 0), narrow(usual, 1)):
        record = measured(tmp_path, workload={"users": 40}, warmup_s=0.01)[0]
    exhausted = finding(record, Code.PORTS_EXHAUSTED)
    assert exhausted.machine == "client" and exhausted.detail.endswith("/84"), exhausted
    assert number(record.conditions.ports_used_pct) > 90
    assert record.validity is Validity.SUSPECT
    assert undisturbed(record) - {Code.PORTS_EXHAUSTED} <= BY_CLIENT


@pytest.mark.injects(Code.TOOL_FAILED)
def test_a_killed_tool(lab: Path, ssh: Ssh, tmp_path: Path) -> None:
    def kill() -> None:  # as soon as it is there
        ssh("client", detached("until kill -9 $(pgrep -x siege); do sleep 0.05; done"))

    first, second = measured(tmp_path, once(Phase.MEASURING, kill, "siege"), {"tool": "siege"}, duration_s=2.0)
    assert first.validity is Validity.INVALID
    assert "siege was killed by signal 9" in finding(first, Code.TOOL_FAILED).detail
    assert first.codes <= ACCIDENTS
    assert first.primary is None or first.primary.throughput_rps is None
    assert second.attempt == 2
    assert number(primary(second).throughput_rps) > 0
    assert undisturbed(second) <= BY_CLIENT


@pytest.mark.injects(Code.RATE_NOT_REACHED)
def test_a_client_that_cannot_send_the_offered_rate(lab: Path, tmp_path: Path) -> None:
    """A rate that no client of one core can send: the tool falls behind its schedule."""
    offered = {"kind": "rate", "tool": "vegeta", "users": None, "rate_rps": 100000, "deadline_ms": 50}
    record = measured(tmp_path, workload=offered, warmup_s=0.05, duration_s=0.2)[0]
    assert finding(record, Code.RATE_NOT_REACHED, Role.PRIMARY).tool == "vegeta"
    assert record.offered.offered_rps == 100000
    # Its core was full, of itself or, on a machine that does something else too, of others.
    assert {Code.CLIENT_SATURATED, Code.CLIENT_STARVED} & record.codes, record.findings
    assert record.validity is Validity.SUSPECT

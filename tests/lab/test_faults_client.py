"""Faults of the client: its gate fires and names it."""

import re
from contextlib import ExitStack
from pathlib import Path

import pytest
from planted import burning, changed, detached, measured, once, reasons
from the_lab import Ssh

pytestmark = pytest.mark.lab


def test_a_client_starved_of_cpu(lab: Path, ssh: Ssh, tmp_path: Path) -> None:
    with burning(ssh, "client", processes=3) as pids:
        row = measured(tmp_path)[0]
    found = reasons(row)["client-starved"]
    assert found.startswith("client: others than ")
    assert any(f"yes (pid {pid})" in found for pid in pids), found
    assert float(row["client_foreign_cpu_pct"]) > 30
    assert row["verdict"] == "suspect"


def test_a_twin_starved_of_cpu(lab: Path, ssh: Ssh, tmp_path: Path) -> None:
    """They start to burn between the tool and its twin."""
    with ExitStack() as burners:
        told = once(": h2load", lambda: burners.enter_context(burning(ssh, "client", processes=3)))
        row = measured(tmp_path, told, {"tool": "siege", "twin": "h2load"}, twin_duration_s=2.0)[0]
    assert reasons(row)["twin-client-starved"].startswith("client: others than h2load took "), row["reasons"]
    assert row["verdict"] == "suspect"


def test_a_client_without_ports(lab: Path, ssh: Ssh, tmp_path: Path) -> None:
    """Each connection leaves its port in TIME_WAIT: none fails yet, and there is no room for more users."""
    usual = ssh("client", "sysctl -n net.ipv4.ip_local_port_range").replace("\t", " ")
    narrow = "sysctl -qw net.ipv4.ip_local_port_range='{}'".format
    # 40 users warm up and 40 are measured; a body check before and one after need a port each.
    with changed(ssh, "client", narrow("65400 65483"), narrow(usual)):
        row = measured(tmp_path, workload={"users": 40}, warmup_s=0.01)[0]
    assert re.match(r"client: \d+ of 84 local ports", reasons(row)["ports-exhausted"]), row["reasons"]
    assert row["verdict"] == "suspect"


def test_a_killed_tool(lab: Path, ssh: Ssh, tmp_path: Path) -> None:
    def kill() -> None:  # as soon as it is there
        ssh("client", detached("until kill -9 $(pgrep -x siege); do sleep 0.05; done"))

    first, second = measured(tmp_path, once("siege measures", kill), {"tool": "siege"}, duration_s=2.0)
    assert first["verdict"] == "invalid"
    assert "siege was killed by signal 9" in reasons(first)["tool-failed"]
    assert first["throughput_rps"] == ""
    assert second["attempt"] == "2"
    assert float(second["throughput_rps"]) > 0


def test_a_client_that_cannot_send_so_much(lab: Path, tmp_path: Path) -> None:
    """A rate that no client of one core can send: the tool falls behind its schedule."""
    offered = {"kind": "rate", "tool": "vegeta", "users": None, "rate_rps": 100000, "deadline_ms": 50}
    row = measured(tmp_path, workload=offered, warmup_s=0.05, duration_s=0.2)[0]
    assert " of the 100000 requests per second offered" in reasons(row)["rate-not-reached"], row["reasons"]
    # Its core was full, of itself or, on a machine that does something else too, of others.
    assert {"client-saturated", "client-starved"} & set(reasons(row)), row["reasons"]

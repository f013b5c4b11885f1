"""Faults that no lab can inject, in readings made up for their gates: each gate fires above its limit, not below."""

import pytest

from vmtoll.model.finding import Code, Finding, Role
from vmtoll.model.metric import TAIL
from vmtoll.model.trial import Measurement, Times
from vmtoll.trial import gates


def codes(findings: list[Finding]) -> set[Code]:
    return {finding.code for finding in findings}


@pytest.mark.injects(Code.CLIENT_SATURATED)
@pytest.mark.parametrize("role", list(Role))
def test_a_tool_that_used_86_percent_of_its_cpu_time(role: Role) -> None:
    (found,) = gates.client_saturated(0.86, role, "siege", "client")
    assert (found.code, found.role, found.tool, found.machine) == (Code.CLIENT_SATURATED, role, "siege", "client")
    assert gates.client_saturated(0.85, role, "siege", "client") == []


@pytest.mark.injects(Code.STEAL)
def test_a_hypervisor_that_took_more_than_half_a_percent() -> None:
    assert codes(gates.steal(0.6, "metal")) == {Code.STEAL}
    assert gates.steal(0.5, "metal") == []


@pytest.mark.injects(Code.LITTLES_LAW)
def test_ten_users_with_eight_requests_in_flight() -> None:
    assert codes(gates.littles_law(8.0, 10, 1000, 10.0, 0.0, "h2load", "client")) == {Code.LITTLES_LAW}
    assert gates.littles_law(9.6, 10, 1000, 10.0, 0.0, "h2load", "client") == []


@pytest.mark.injects(Code.FREQUENCY_SPREAD)
def test_a_clock_rate_that_sinks() -> None:
    assert codes(gates.frequency_spread(5.1, "siege", "metal")) == {Code.FREQUENCY_SPREAD}
    assert gates.frequency_spread(5.0, "siege", "metal") == []


@pytest.mark.injects(Code.CLIENT_LATE)
@pytest.mark.parametrize("role", list(Role))
def test_a_client_whose_delay_is_a_fifth_of_the_tail(role: Role) -> None:
    late, punctual = (
        Measurement(role=role, tool="vegeta", response_time=Times(p99_us=1000.0), lateness=Times(p99_us=us))
        for us in (200.0, 100.0)
    )
    assert gates.client_late(late) == [Finding(Code.CLIENT_LATE, 200.0, 100.0, role, "vegeta")]
    assert gates.client_late(punctual) == gates.client_late(Measurement(role=role, tool="oha")) == []
    assert TAIL.limits >= {Code.CLIENT_LATE}, "such a tail is a bound, or void"


@pytest.mark.injects(Code.NOT_COLD)
def test_less_read_than_served() -> None:
    assert codes(gates.not_cold(90.0, 100.0, "kvm")) == {Code.NOT_COLD}
    assert gates.not_cold(95.0, 100.0, "kvm") == []

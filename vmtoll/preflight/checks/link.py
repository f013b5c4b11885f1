"""The link between each client and each machine under test is as fast as the inventory says, both ways."""

import json
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

from vmtoll.agent.protocol import Route
from vmtoll.model.errors import AgentError
from vmtoll.model.inventory import Host
from vmtoll.preflight.lab import Lab, results_or_error
from vmtoll.preflight.result import CheckResult, fail, ok, warn

ORDER = 70
SECONDS = 2
# At an MTU of 1500, TCP's payload gets 94% of the line's rate.
_LOWEST_SHARE = 0.85
_HIGHEST_SHARE = 1.05
_PATIENCE_S = 30.0
_LIMIT_S = 120.0
_REFUSED = "Connection refused"


def check(lab: Lab) -> Iterator[CheckResult]:
    """Run iperf3 in both directions, one pair after the other, only between machines that are not in use."""
    for client, sut in lab.pairs():
        if not {client.name, sut.name} & lab.in_use:
            lab.say(f"preflight: load between {client.name} and {sut.name}, twice {SECONDS} s")
            pair = f"{client.name}–{sut.name}"
            yield from results_or_error(pair, partial(_check_pair, lab, client, sut))


def _check_pair(lab: Lab, client: Host, sut: Host) -> list[CheckResult]:
    pair = f"{client.name}–{sut.name}"
    for host in (client, sut):
        try:
            lab.run(host, ["iperf3", "--version"])
        except AgentError:
            observation = f"not measured, {host.name} has no iperf3"
            return [warn(pair, observation, "`vmtoll provision` installs it; check again.")]
    outbound_mbit, inbound_mbit = (_rate_mbit(lab, client, sut, *direction) for direction in ((), ("--reverse",)))
    nics = [nic for nic in (_nic_mbit(lab, client, sut.address), _nic_mbit(lab, sut, client.address)) if nic]
    return [judge(client.name, sut, outbound_mbit, inbound_mbit, client.vars.link_mbit, min(nics, default=None))]


def _rate_mbit(lab: Lab, client: Host, sut: Host, *direction: str) -> float:
    """Megabits per second that arrive. The iperf3 server takes one client and ends. Raises AgentError."""
    port = ["--port", str(sut.port)]
    server = lab.lines[sut.name].ask("exec", argv=["iperf3", "--server", "--one-off", *port], limit_s=_LIMIT_S)
    ask = ["iperf3", "--json", "--connect-timeout", "3000", "--time", str(SECONDS)]
    argv = [*ask, "--client", sut.address, *port, *direction]
    deadline = time.monotonic() + _PATIENCE_S
    try:
        while True:
            answer: dict[str, Any] = json.loads(lab.run(client, argv, _LIMIT_S)["stdout"] or "{}")
            error = str(answer.get("error", ""))
            if _REFUSED not in error or time.monotonic() > deadline:
                break
        if error or "end" not in answer:
            reason = error or "iperf3 printed nothing"
            raise AgentError(f"{client.name}: no data to {sut.address}, port {sut.port}: {reason}")
        return float(answer["end"]["sum_received"]["bits_per_second"]) / 1e6
    finally:
        lab.lines[sut.name].call("kill")
        server.wait(_LIMIT_S)


def _nic_mbit(lab: Lab, host: Host, remote: str) -> float | None:
    """The rate of the interface toward an address, from its driver; None for a virtual one."""
    route: Route = lab.ask(host, "route", name=remote)
    return route.get("speed_mbit")


def judge(
    client: str, sut: Host, outbound_mbit: float, inbound_mbit: float, stated_mbit: float | None, nic_mbit: float | None
) -> CheckResult:
    """Compare the measured rates with the line's: that of the inventory, else that of the slower interface."""
    pair, slower_mbit = f"{client}–{sut.name}", min(outbound_mbit, inbound_mbit)
    slower_direction = "there" if outbound_mbit < inbound_mbit else "back"
    observation = f"{outbound_mbit:.0f} Mbit/s there, {inbound_mbit:.0f} back"
    if stated_mbit is not None and max(outbound_mbit, inbound_mbit) > _HIGHEST_SHARE * stated_mbit:
        return fail(pair, f"{observation}; vmtoll_link_mbit says {stated_mbit:g}", "Correct it, or shape the link.")
    line_mbit = stated_mbit if stated_mbit is not None else nic_mbit
    if line_mbit is None or slower_mbit >= _LOWEST_SHARE * line_mbit:
        return ok(pair, observation)
    line_source = "vmtoll_link_mbit says" if stated_mbit is not None else "the interfaces could do"
    observation = f"{observation}; {line_source} {line_mbit:g}, the direction {slower_direction} is slower"
    if sut.role == "kvm_guest":
        advice = "If its host reaches the rate, the guest's network device is the cause; else repair cable or switch."
        return warn(pair, observation, advice)
    result_of = fail if stated_mbit is not None else warn
    return result_of(
        pair, observation, "Look at cable, switch and `ethtool`, or set vmtoll_link_mbit to the real rate."
    )

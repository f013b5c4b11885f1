"""Client and machine under test are on one subnet, without router or proxy ARP between them, and have the same MTU."""

from collections.abc import Iterator
from functools import partial

from vmtoll.agent.protocol import Route
from vmtoll.model.inventory import Host
from vmtoll.preflight.lab import Lab, results_or_error
from vmtoll.preflight.result import CheckResult, fail, ok, warn

ORDER = 60


def check(lab: Lab) -> Iterator[CheckResult]:
    """Check from both ends: the route, the neighbour's hardware address, the MTU."""
    for client, sut in lab.pairs():
        yield from results_or_error(f"{client.name}–{sut.name}", partial(_check_pair, lab, client, sut))


def _check_pair(lab: Lab, client: Host, sut: Host) -> list[CheckResult]:
    pair = f"{client.name}–{sut.name}"
    outbound: Route = lab.ask(client, "route", name=sut.address)
    if outbound["error"]:
        observation = f"{client.name} has no way to {sut.address}: {outbound['error']}"
        return [fail(pair, observation, "Correct vmtoll_address, the route or the cable.")]
    inbound: Route = lab.ask(sut, "route", name=outbound["address"])
    if inbound["error"]:
        observation = f"{sut.name} has no way back to {outbound['address']}: {inbound['error']}"
        return [fail(pair, observation, "Correct its route, or give both an address on one network.")]
    return judge(client.name, sut.name, outbound, inbound)


def judge(client: str, sut: str, outbound: Route, inbound: Route) -> list[CheckResult]:
    """Compare what the two ends see of each other."""
    pair, results = f"{client}–{sut}", list[CheckResult]()
    if outbound["mtu"] != inbound["mtu"]:
        text = f"the MTU is {outbound['mtu']} on {client}, {inbound['mtu']} on {sut}"
        results.append(warn(pair, text, "Give both interfaces the same MTU."))
    if not (outbound["on_link"] and inbound["on_link"]):
        router = outbound["gateway"] or inbound["gateway"]
        results.append(warn(pair, f"a router is between them ({router})", "Put both on one switch and one subnet."))
    elif outbound["neighbour"] != inbound["mac"]:
        text = f"at {outbound['remote']} {client} sees {outbound['neighbour']}, not {sut}'s own {inbound['mac']}"
        results.append(warn(pair, text, "Something answers for it (proxy ARP); put both on one switch."))
    return results or [
        ok(pair, f"one network segment ({outbound['interface']}, {inbound['interface']}), MTU {outbound['mtu']}")
    ]

"""Client and machine under test are on one network, with nothing between them but the wire, and of one MTU."""

from collections.abc import Iterator
from functools import partial
from typing import TypedDict

from vmtoll.model.inventory import Host
from vmtoll.preflight.lab import Lab, guarded
from vmtoll.preflight.result import CheckResult, fail, ok, warn

ORDER = 60


class Route(TypedDict):
    """What probes/network.py prints of the way from a machine to an address; with an error nothing else is certain."""

    error: str
    remote: str
    address: str
    interface: str
    mtu: int
    mac: str
    speed_mbit: int | None
    on_link: bool
    gateway: str | None
    neighbour: str | None


def check(lab: Lab) -> Iterator[CheckResult]:
    """Looks from both ends: the route, the neighbour's hardware address, the MTU."""
    for client, sut in lab.pairs():
        yield from guarded(f"{client.name}–{sut.name}", partial(_look, lab, client, sut))


def _look(lab: Lab, client: Host, sut: Host) -> list[CheckResult]:
    pair = f"{client.name}–{sut.name}"
    there: Route = lab.probe(client, "network", sut.address)
    if there["error"]:
        found = f"{client.name} has no way to {sut.address}: {there['error']}"
        return [fail(pair, found, "Correct vmtoll_address, the route or the cable.")]
    back: Route = lab.probe(sut, "network", there["address"])
    if back["error"]:
        found = f"{sut.name} has no way back to {there['address']}: {back['error']}"
        return [fail(pair, found, "Correct its route, or give both an address on one network.")]
    return judge(client.name, sut.name, there, back)


def judge(client: str, sut: str, there: Route, back: Route) -> list[CheckResult]:
    """Compare what the two ends see of each other (probes/network.py)."""
    pair, found = f"{client}–{sut}", list[CheckResult]()
    if there["mtu"] != back["mtu"]:
        text = f"the MTU is {there['mtu']} on {client}, {back['mtu']} on {sut}"
        found.append(warn(pair, text, "Give both interfaces the same MTU."))
    if not (there["on_link"] and back["on_link"]):
        router = there["gateway"] or back["gateway"]
        found.append(warn(pair, f"a router is between them ({router})", "Put both on one switch and one subnet."))
    elif there["neighbour"] != back["mac"]:
        text = f"at {there['remote']} {client} sees {there['neighbour']}, not {sut}'s own {back['mac']}"
        found.append(warn(pair, text, "Something answers for it (proxy ARP); put both on one switch."))
    return found or [ok(pair, f"one network segment ({there['interface']}, {back['interface']}), MTU {there['mtu']}")]

"""Client and machine under test are on one network, with nothing between them but the wire, and of one MTU."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from vmtoll.preflight.finding import Finding, fail, ok, warn
from vmtoll.preflight.lab import Lab, guarded
from workloads.runner.inventory import Host

ORDER = 60


def check(lab: Lab) -> Iterator[Finding]:
    """Looks from both ends: the route, the neighbour's hardware address, the MTU."""
    for client, sut in lab.pairs():
        yield from guarded(f"{client.name}–{sut.name}", partial(_look, lab, client, sut))


def _look(lab: Lab, client: Host, sut: Host) -> list[Finding]:
    pair = f"{client.name}–{sut.name}"
    there = lab.probe(client, "network", sut.address)
    if there["error"]:
        found = f"{client.name} has no way to {sut.address}: {there['error']}"
        return [fail(pair, found, "Mend vmtoll_address, the route or the cable.")]
    back = lab.probe(sut, "network", there["address"])
    if back["error"]:
        found = f"{sut.name} has no way back to {there['address']}: {back['error']}"
        return [fail(pair, found, "Mend its route, or give both an address on one network.")]
    return judge(client.name, sut.name, there, back)


def judge(client: str, sut: str, there: dict[str, Any], back: dict[str, Any]) -> list[Finding]:
    """Findings of what each end sees of the other (probes/network.py)."""
    pair, found = f"{client}–{sut}", list[Finding]()
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

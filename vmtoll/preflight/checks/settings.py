"""What makes a machine's speed vary by itself: clock rate, turbo, siblings, interrupts that wander."""

from collections.abc import Iterator
from typing import Any

from vmtoll.preflight.finding import Finding, ok, warn
from vmtoll.preflight.lab import Lab
from workloads.runner.inventory import Host

ORDER = 95


def check(lab: Lab) -> Iterator[Finding]:
    """Metal and KVM hosts; a container has its host's, a guest has nothing to say in it."""
    hosts = [host for host in lab.answering("metal", "kvm_host") if not host.get("vmtoll_container_host")]
    yield from lab.on_each(hosts, lambda host: [judge(host, lab.probe(host, "settings"))])


def judge(host: Host, seen: dict[str, Any]) -> Finding:
    """One finding, with everything in it that could be steadier."""
    loose = []
    governors = set(seen["governors"]) - {"performance"}
    if governors:
        loose.append(f"governor {', '.join(sorted(governors))}")
    if seen["turbo"]:
        loose.append("turbo on")
    if seen["smt"] == "on":
        loose.append("SMT on")
    if seen["irqbalance"]:
        loose.append("irqbalance runs")
    if not loose:
        governed = "" if seen["governors"] else "; its clock rate is not its own to govern"
        return ok(host.name, f"nothing there that varies by itself{governed}")
    tuned = "Run `vmtoll tune`." if host.get("vmtoll_tuning") else "Set vmtoll_tuning (docs/real-hosts.md), then tune."
    return warn(host.name, ", ".join(loose), tuned)

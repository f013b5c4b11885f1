"""What a KVM host saw of its guests while a load ran: in full for `telemetry/<trial>.json`, and as columns."""

from collections.abc import Iterable, Mapping
from typing import Any

from workloads.runner.usage import Usage

Seen = dict[str, Any]
Counts = dict[str, float]


def seen(before: Usage, after: Usage, requests: int) -> Seen | None:
    """What grew between two readings, in all: CPU seconds by kind of QEMU's threads, KVM's counters, interrupts.

    Of several guests together. `kvm` is null where KVM does not run the guest, or tells nobody. None for a machine
    that is no guest, and where the client is in the guest as well: then none of it could be told from its part.
    """
    if before.outer is None or after.outer is None or after.domain_s is None:
        return None
    old, new = before.outer["domains"].values(), after.outer["domains"].values()
    return {
        "requests": requests,
        "threads_s": _grown(_sum(d["threads_s"] for d in old), _sum(d["threads_s"] for d in new)),
        "kvm": _happened(_sum(d["kvm"] for d in old), _sum(d["kvm"] for d in new)) or None,
        "host_interrupts": _happened(before.outer["interrupts"], after.outer["interrupts"]),
        "guest_interrupts": _happened(
            _sum(sut["interrupts"] for sut in before.suts.values()),
            _sum(sut["interrupts"] for sut in after.suts.values()),
        ),
    }


def columns(told: Seen | None) -> dict[str, float | None]:
    """The columns of trials.csv, each per request; none without requests."""
    if not told or not told["requests"]:
        return {}
    requests, threads_s, kvm = told["requests"], told["threads_s"], told["kvm"] or {}
    return {
        "host_exits_per_request": kvm["exits"] / requests if "exits" in kvm else None,
        "host_vcpu_cpu_us_per_request": threads_s["vcpu"] * 1e6 / requests,
        "host_qemu_cpu_us_per_request": threads_s["qemu"] * 1e6 / requests,
        "host_vhost_cpu_us_per_request": threads_s["vhost"] * 1e6 / requests,
        "host_irqs_per_request": sum(told["host_interrupts"].values()) / requests,
        "guest_irqs_per_request": sum(told["guest_interrupts"].values()) / requests,
    }


def _sum(parts: Iterable[Mapping[str, float]]) -> Counts:
    total: Counts = {}
    for part in parts:
        for name, value in part.items():
            total[name] = total.get(name, 0) + value
    return total


def _grown(old: Mapping[str, float], new: Mapping[str, float]) -> Counts:
    return {name: value - old.get(name, 0) for name, value in new.items()}


def _happened(old: Mapping[str, float], new: Mapping[str, float]) -> Counts:
    """By how much each counter grew; those that did not are left out."""
    return {name: times for name, times in _grown(old, new).items() if times > 0}

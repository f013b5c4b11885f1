"""Limits that somebody has set for a guest: of CPU time, memory, disk and network.

They are in its definition, or in its host's control groups, for the unit that the guest runs in.
"""

import xml.etree.ElementTree as ET
from collections.abc import Iterator, Sequence

from vmtoll.guests.diagnosis.definition import attribute, cards, disks, size_bytes, vcpus
from vmtoll.guests.diagnosis.facts import Facts, Group
from vmtoll.model.diagnosis import Edit, State, Step, Tuning

# libvirt's elements of a limit of CPU time, with the period that each counts in and its default in µs.
_QUOTAS = {"quota": "period", "global_quota": "global_period", "emulator_quota": "emulator_period",
           "iothread_quota": "iothread_period"}  # fmt: skip
_PERIOD_US = 100_000
_WHOSE = {"quota": "each virtual CPU", "global_quota": "the whole guest", "emulator_quota": "QEMU's other threads",
          "iothread_quota": "each I/O thread"}  # fmt: skip
# A guest's weight where nobody has set one: control groups of version 1 and of version 2.
USUAL_WEIGHT = {1: 1024, 2: 100}


def cpu(domain: ET.Element, facts: Facts) -> Iterator[Step]:
    """A quota, a weight below the usual one, a quota of a control group around the guest."""
    found: list[str] = []
    changes: list[Edit] = []
    for name, period in _QUOTAS.items():
        quota_us = int(domain.findtext(f"cputune/{name}") or 0)
        if quota_us > 0:
            period_us = int(domain.findtext(f"cputune/{period}") or _PERIOD_US)
            cpus = quota_us / period_us
            found.append(f"{cpus:.4g} {'CPUs' if cpus > 1 else 'of a CPU'} for {_WHOSE[name]}")
            changes.append(Edit(f"./cputune/{name}"))
    shares = int(domain.findtext("cputune/shares") or 0)
    usual = USUAL_WEIGHT.get(facts.get("cgroup_version") or 0, 0)
    if shares and usual and shares < usual:
        found.append(f"a weight of {shares}, where {usual} is usual")
        changes.append(Edit("./cputune/shares"))
    whole = domain.find("cputune/global_quota") is not None
    groups = [group for group in facts.get("groups", ()) if group["cpus"] and not (whole and _is_its_own(group))]
    for group in groups:
        held = group["cpus"] or 0
        if held < vcpus(domain):
            found.append(f"{held:.4g} CPUs for {group['name']}")
    yield _limit(Tuning.CPU_LIMIT, "", found, changes)


def memory(domain: ET.Element, facts: Facts) -> Iterator[Step]:
    """A memory limit for QEMU's process, which covers the guest's memory and QEMU's own."""
    limits = [element for element in domain.iterfind("memtune/*") if element.tag in ("hard_limit", "soft_limit")]
    found = [f"{size_bytes(element) >> 20} MiB ({element.tag})" for element in limits]
    changes = [Edit(f"./memtune/{element.tag}") for element in limits]
    if domain.find("memtune/hard_limit") is not None and domain.find("memtune/swap_hard_limit") is not None:
        changes.append(Edit("./memtune/swap_hard_limit"))  # libvirt refuses such a limit without hard_limit
    for group in facts.get("groups", ()):
        if group["memory_bytes"] and not (limits and _is_its_own(group)):
            found.append(f"{group['memory_bytes'] >> 20} MiB for {group['name']}")
    yield _limit(Tuning.MEMORY_LIMIT, "", found, changes)


def disk(domain: ET.Element, facts: Facts) -> Iterator[Step]:
    """Rates of a disk (iotune, throttle groups), and of the host's devices that its files lie on (blkiotune)."""
    for element, path, target in disks(domain):
        rates = _values(element.find("iotune"))
        groups = [one.get("group", "") for one in element.iterfind("throttlefilters/throttlefilter")]
        found = [*rates, *(f"throttle group {name}" for name in groups)]
        changes = [Edit(f"{path}/iotune")] if rates else []
        changes += [Edit(f"{path}/throttlefilters")] if groups else []
        yield _limit(Tuning.DISK_LIMIT, target, found, changes)
    devices = list(domain.iterfind("blkiotune/device"))
    found = [f"{one.findtext('path')}: {rate}" for one in devices for rate in _values(one)]
    if found:
        changes = [Edit(f"./blkiotune/device[{n}]") for n in range(len(devices), 0, -1)]
        yield _limit(Tuning.DISK_LIMIT, "", found, changes)


def network(domain: ET.Element, facts: Facts) -> Iterator[Step]:
    """The bandwidth of a card, in KiB a second, as libvirt has it."""
    for element, path, mac in cards(domain):
        ways = {way: attribute(element, f"bandwidth/{way}", "average") for way in ("inbound", "outbound")}
        found = [f"{average} KiB/s {way}" for way, average in ways.items() if average]
        yield _limit(Tuning.NETWORK_LIMIT, mac, found, [Edit(f"{path}/bandwidth")] if found else [])


def _limit(tuning: Tuning, device: str, found: Sequence[str], changes: Sequence[Edit]) -> Step:
    state = State.LACKING if found else State.TAKEN
    return Step(tuning, state, device, "; ".join(found), changes=tuple(changes))


def _values(element: ET.Element | None) -> list[str]:
    """The rates of a limit that are not 0: `total_iops_sec 200`."""
    rates = [] if element is None else [child for child in element if child.tag != "path"]
    return [f"{rate.tag} {rate.text}" for rate in rates if rate.text not in (None, "0")]


def _is_its_own(group: Group) -> bool:
    """Return whether libvirt made the group for the guest, and sets there what the definition says."""
    return group["name"].endswith(".scope") or "libvirt" in group["name"]

"""A KVM host's figures: a guest's CPU time by kind of thread, KVM's counters for it, the host's interrupts."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from vmtoll.agent.machine import process_ns, read
from vmtoll.agent.monitors import has_kvm
from vmtoll.agent.virsh import virsh_or_nothing
from vmtoll.agent.waits import kind_of

DEBUGFS = "/sys/kernel/debug/kvm"
# A statistic of one virtual CPU that QEMU passes on from KVM, as `virsh domstats` prints it: vcpu.0.exits.sum=123
_SUM = re.compile(r"\s*vcpu\.\d+\.([\w-]+)\.sum=(\d+)")


def thread_seconds(pid: str, vhost: Iterable[str], vcpus: Iterable[int] = ()) -> dict[str, float]:
    """CPU seconds of a guest's process by kind of thread.

    `vcpu`: the guest's code, and what KVM or the emulator does for it; `vhost`: the kernel's network threads, also
    those outside of the process; `qemu`: all others, which emulate devices and answer libvirt, also those that have
    ended. `vcpus`: as for guest_waits.
    """
    known = {str(number) for number in vcpus}
    seconds = {"vcpu": 0.0, "vhost": 0.0}
    for task in Path(f"/proc/{pid}/task").glob("*"):
        schedstat = read(f"{task}/schedstat").split()
        kind = "vcpu" if task.name in known else kind_of(read(f"{task}/comm"))
        if kind in seconds and schedstat:
            seconds[kind] += int(schedstat[0]) / 1e9
    qemu_s = max(0.0, process_ns(pid) / 1e9 - sum(seconds.values()))
    vhost_s = sum(process_ns(thread) for thread in vhost) / 1e9
    return {"vcpu": seconds["vcpu"], "vhost": seconds["vhost"] + vhost_s, "qemu": qemu_s}


def kvm_counters(pid: str, domain: str, uri: str | None) -> dict[str, int]:
    """KVM's counters of a guest since it started, summed over its CPUs, by KVM's own names.

    From the kernel's debugfs, else through libvirt (8.9 or newer, QEMU 7.1 or newer). Empty if neither has them, and
    for a guest that KVM does not run. `uri`: libvirt's, None if it does not run the guest.
    """
    threads = Path(f"/proc/{pid}/task").glob("*/comm")
    if not any(read(str(path)).endswith("/KVM") for path in threads) and not has_kvm(pid):
        return {}
    if uri is None:
        return by_debugfs(pid)
    return by_debugfs(pid) or by_libvirt(virsh_or_nothing(uri, "domstats", "--vcpu", domain))


def by_debugfs(pid: str, root: str = DEBUGFS) -> dict[str, int]:
    """Read KVM's counters from debugfs: a folder named after the process has a file per counter, with its sum over
    the virtual CPUs.
    """
    try:
        files = [path for path in Path(root).glob(f"{pid}-*/*") if path.is_file()]
    except PermissionError:  # only root may read debugfs
        return {}
    values = {path.name: read(str(path)) for path in files}
    return {name: int(value) for name, value in values.items() if value.isdigit()}


def by_libvirt(domstats: str) -> dict[str, int]:
    """Add up, over all virtual CPUs, the sums that `virsh domstats --vcpu` prints for each."""
    counts: dict[str, int] = {}
    for line in domstats.splitlines():
        match = _SUM.fullmatch(line.rstrip())
        if match:
            counts[match[1]] = counts.get(match[1], 0) + int(match[2])
    return counts


def interrupts() -> dict[str, int]:
    """This machine's interrupts since boot on all CPUs, by the name of the device or of the kernel's own interrupt."""
    heading, *lines = read("/proc/interrupts").splitlines() or [""]
    counts_by_name: dict[str, int] = {}
    for line in lines:
        label, _, rest = line.strip().partition(":")
        words = rest.split()
        name = words[-1] if label.isdigit() else label
        counts = (int(word) for word in words[: len(heading.split())] if word.isdigit())
        counts_by_name[name] = counts_by_name.get(name, 0) + sum(counts)
    return counts_by_name

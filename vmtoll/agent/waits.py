"""CPU ready: how long threads have waited on a run queue, able to run while their CPU ran something else."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from vmtoll.agent.machine import read

# Each thread costs the machine a reading every second, so a server of many processes is not sampled.
MOST_SAMPLED = 50
# Names of threads that run a guest's code: QEMU's, Firecracker's, Cloud Hypervisor's, crosvm's.
_VCPU = re.compile(r".*/(KVM|TCG)|fc_vcpu.*|vcpu\d+|crosvm_vcpu.*")


def thread_waits(pids: Iterable[str]) -> dict[str, int] | None:
    """Nanoseconds that each thread of these processes has waited for a CPU, by thread ID.

    The second field of /proc/PID/task/TID/schedstat (Linux, Documentation/scheduler/sched-stats.rst). None where the
    kernel keeps no such figure.
    """
    tasks = [task for pid in pids for task in Path(f"/proc/{pid}/task").glob("*")]
    return _waits(tasks)


def guest_waits(pid: str, vhost: Iterable[str], vcpus: Iterable[int] = ()) -> dict[str, dict[str, int]] | None:
    """Waits of a guest's threads: kind (see `kind_of`) → as thread_waits. `vhost`: threads outside the guest's process;
    `vcpus`: thread IDs of the virtual CPUs, where the name of a thread does not show its kind.
    """
    known = {str(thread) for thread in vcpus}
    by_kind: dict[str, list[Path]] = {"vcpu": [], "vhost": [Path(f"/proc/{other}/task/{other}") for other in vhost]}
    for task in Path(f"/proc/{pid}/task").glob("*"):
        kind = "vcpu" if task.name in known else kind_of(read(f"{task}/comm"))
        by_kind.setdefault(kind, []).append(task)
    waits = {kind: _waits(tasks) for kind, tasks in by_kind.items()}
    return None if waits["vcpu"] is None else {kind: times for kind, times in waits.items() if times is not None}


def growth_ns(old: Mapping[str, int], new: Mapping[str, int]) -> int:
    """Growth between two readings, of threads that have not ended in between."""
    return sum(max(0, wait_ns - old.get(thread, 0)) for thread, wait_ns in new.items())


class WaitCounter:
    """Waits of a changing set of threads, added up from one reading to the next."""

    def __init__(self, threads: Callable[[], dict[str, int] | None]) -> None:
        """`threads`: reads them all, see thread_waits."""
        self.threads = threads
        self.last = threads() or {}
        self.total_ns = 0

    def total_s(self) -> float | None:
        """Seconds since the start; None for more threads than MOST_SAMPLED, or without such a figure."""
        now = self.threads()
        if not now or len(now) > MOST_SAMPLED:
            return None
        self.total_ns, self.last = self.total_ns + growth_ns(self.last, now), now
        return self.total_ns / 1e9


def merge_kinds(waits: Iterable[Mapping[str, Mapping[str, int]] | None]) -> dict[str, int]:
    """The threads of several guests together; see guest_waits."""
    kinds = [threads for guest in waits if guest for threads in guest.values()]
    return {thread: wait_ns for threads in kinds for thread, wait_ns in threads.items()}


def kind_of(thread: str) -> str:
    """Kind of a thread of QEMU, Firecracker, Cloud Hypervisor or crosvm, by its name.

    `vcpu`: the guest's code, and what KVM or the emulator does for it; `vhost`: the kernel's network threads;
    `iothread`: disks; `qemu`: all others, which emulate devices and answer libvirt.
    """
    if thread.startswith("vhost-"):
        return "vhost"
    if _VCPU.fullmatch(thread):
        return "vcpu"
    return "iothread" if thread.startswith("IO ") and thread != "IO mon_iothread" else "qemu"


def _waits(tasks: Iterable[Path]) -> dict[str, int] | None:
    times = {task.name: read(f"{task}/schedstat").split() for task in tasks}
    if times and not any(times.values()):
        return None
    return {name: int(fields[1]) for name, fields in times.items() if len(fields) > 1}

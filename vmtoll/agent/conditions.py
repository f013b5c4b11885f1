"""Conditions on this machine: its clocks, the network's counters, and every process that uses the CPUs."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import sys
import time
from collections.abc import Iterable

from vmtoll.agent.machine import TICKS, all_pids, process_ns, read
from vmtoll.agent.protocol import Clock, Ports, Survey

CLOCK_SOURCE = "/sys/devices/system/clocksource/clocksource0/current_clocksource"
_COUNTERS = (
    "RetransSegs", "OutSegs", "ListenOverflows", "ListenDrops", "TCPReqQFullDrop", "TCPTimeouts", "TCPLossProbes",
)  # fmt: skip
# Kernel threads that handle packets and free the memory of closed sockets (RCU) for all processes. Their time is part
# of the server's cost, or the load generator's.
NETWORK_THREADS = ("ksoftirqd/", "rcu_", "rcuog/", "rcuop/", "rcuos/")


def clock() -> Clock:
    """Seconds that the wall clock is ahead of the monotonic one (only a step changes that), and the clock source."""
    readings = [(time.monotonic(), time.time(), time.monotonic()) for _ in range(5)]
    before, wall, after = min(readings, key=lambda r: r[2] - r[0])
    return {"ahead_s": wall - (before + after) / 2, "source": read(CLOCK_SOURCE)}


def network(pid: str = "self") -> dict[str, int]:
    """TCP's error counters since boot in the network namespace of a process, and the segments that it sent."""
    counters = dict.fromkeys(_COUNTERS, 0)
    files = (f"/proc/{pid}/net/snmp", f"/proc/{pid}/net/netstat")
    lines = [line.split() for file in files for line in read(file).splitlines()]
    for names, values in zip(lines[::2], lines[1::2]):
        counters.update({name: int(values[names.index(name)]) for name in _COUNTERS if name in names})
    return counters


def ports(address: str, port: int) -> Ports:
    """Count the ephemeral ports, and those in use toward one port of an address, or of any address of a name. A port
    in TIME_WAIT counts as used unless the kernel reuses it (tcp_tw_reuse is 1).
    """
    reusable_states = {"06"} if read("/proc/sys/net/ipv4/tcp_tw_reuse") == "1" else set()
    low, high = (int(n) for n in read("/proc/sys/net/ipv4/ip_local_port_range", "32768 60999").split())
    addresses = {str(each[4][0]) for each in socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)}
    remotes = {f"{_kernel_address(each)}:{port:04X}" for each in addresses}
    files = ("/proc/net/tcp", "/proc/net/tcp6")
    lines = [line.split() for file in files for line in read(file).splitlines()[1:]]
    used = sum(
        words[2] in remotes and words[3] not in reusable_states and low <= int(words[1].partition(":")[2], 16) <= high
        for words in lines
    )
    return {"used": used, "available": high - low + 1}


def _kernel_address(address: str) -> str:
    """An IP address as the kernel's tables have it: words of 32 bits in the machine's byte order."""
    octets = socket.inet_pton(socket.AF_INET6 if ":" in address else socket.AF_INET, address)
    return "".join(f"{int.from_bytes(octets[i : i + 4], sys.byteorder):08X}" for i in range(0, len(octets), 4))


def idle_and_stolen_s() -> tuple[dict[str, float], dict[str, float]]:
    """Return CPU → seconds in which nothing ran on it (idle, iowait and steal), and CPU → seconds stolen from it."""
    idle_by_cpu, stolen_by_cpu = {}, {}
    for line in read("/proc/stat").splitlines():
        fields = line.split()
        if fields and re.fullmatch(r"cpu\d+", fields[0]):
            idle_by_cpu[fields[0][3:]] = sum(int(fields[i]) for i in (4, 5, 8)) / TICKS
            stolen_by_cpu[fields[0][3:]] = int(fields[8]) / TICKS
    return idle_by_cpu, stolen_by_cpu


def mhz() -> float | None:
    """Mean clock rate of the CPUs that this process may use; None where the kernel does not govern it."""
    files = (f"/sys/devices/system/cpu/cpu{n}/cpufreq/scaling_cur_freq" for n in os.sched_getaffinity(0))
    rates = [int(text) / 1000 for text in map(read, files) if text]
    return sum(rates) / len(rates) if rates else None


def _namespace(pid: str) -> str:
    with contextlib.suppress(OSError):
        return os.readlink(f"/proc/{pid}/ns/pid")  # noqa: PTH115 (the link's target is no path)
    return ""


def mask_of(*pids: str) -> int:
    """Bit mask of the CPUs that any of these processes may use; processes that have ended are ignored."""
    mask = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            mask |= sum(1 << cpu for cpu in os.sched_getaffinity(int(pid)))
    return mask


def survey(measured_pids: Iterable[str]) -> Survey:
    """Return every process that has used a CPU, and the seconds that each CPU was idle or stolen.

    `processes`: pid → (name, CPU seconds including children waited for, CPUs as a bit mask, PID namespace, whether it
    is ours). Ours are `measured_pids` (the server, the guest), this agent's parent with all its descendants, this agent
    among them, and the kernel's network threads.
    """
    processes: dict[str, tuple[str, float, str]] = {}
    for pid in all_pids():
        head, _, tail = read(f"/proc/{pid}/stat").rpartition(")")
        fields = tail.split()
        if len(fields) > 17:
            cpu_s = process_ns(pid) / 1e9 + (int(fields[13]) + int(fields[14])) / TICKS
            processes[pid] = (head.partition("(")[2], cpu_s, fields[1])
    measured, harness_pid = set(measured_pids), str(os.getppid())

    def is_ours(pid: str, name: str) -> bool:
        if pid in measured or name.startswith(NETWORK_THREADS):
            return True
        while pid in processes and pid != harness_pid:
            pid = processes[pid][2]
        return pid == harness_pid

    time_s, (idle_s, steal_s) = time.monotonic(), idle_and_stolen_s()
    return {
        "time_s": time_s,
        "idle_s": idle_s,
        "steal_s": steal_s,
        "cpus": mask_of("0"),
        "namespace": _namespace("self"),
        "processes": {
            pid: (name, cpu_s, mask_of(pid), _namespace(pid), is_ours(pid, name))
            for pid, (name, cpu_s, _) in processes.items()
            if cpu_s > 0
        },
    }

"""The kernel's facts about this machine and its processes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import IO

from vmtoll.agent.protocol import CpuTimes

DROP = Path("/proc/sys/vm/drop_caches")
POWERCAP = "/sys/class/powercap"
# The kernel's PM QoS: a process that keeps this file open can limit how long an idle CPU takes to wake up, in µs.
# Without a request the file contains 2,000 s.
CPU_LATENCY = "/dev/cpu_dma_latency"
_NO_LIMIT_US = 2_000_000_000
TICKS = os.sysconf("SC_CLK_TCK")


def read(path: str, default: str = "") -> str:
    """A small file's text; `default` if it cannot be read."""
    try:
        with open(path, "rb") as handle:  # noqa: PTH123 (read every second: a Path costs as much as the reading)
            return handle.read().decode("utf-8", "replace").strip()
    except OSError:
        return default


def output_of(*argv: str, limit_s: float = 30) -> str:
    """Output of a command; empty if it cannot run or times out: a missing tool only means a missing fact."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=limit_s, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()


def cpu_latency_us(root: str = "") -> int | None:
    """Longest time that PM QoS lets an idle CPU take to wake up, in µs; None without a limit, or if unreadable."""
    try:
        with Path(f"{root}{CPU_LATENCY}").open("rb", buffering=0) as handle:
            limit_us = int.from_bytes(handle.read(4), sys.byteorder, signed=True)
    except OSError:
        return None
    return None if limit_us >= _NO_LIMIT_US else limit_us


def forbid_deep_sleep() -> IO[bytes] | None:
    """Keep idle CPUs out of deep sleep as long as the returned file is open; None if this machine does not allow it.

    They rest in the lightest state, as with tuned's profile latency-performance. In a virtual machine with the driver
    haltpoll that state is the halt, from which its host may wake it milliseconds late: its CPUs only poll.
    """
    polls = read("/sys/devices/system/cpu/cpuidle/current_driver") == "haltpoll"
    lightest_us = read("/sys/devices/system/cpu/cpu0/cpuidle/state1/latency")  # state 0 polls
    try:
        handle = Path(CPU_LATENCY).open("wb", buffering=0)  # noqa: SIM115 (the caller keeps it)
        handle.write((0 if polls else int(lightest_us or 1)).to_bytes(4, sys.byteorder))
    except OSError:
        return None
    return handle


def all_pids() -> list[str]:
    return [name for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 (names are all we need)


def stat_fields(pid: str) -> list[str]:
    """/proc/PID/stat after the command's name: index 0 is the state."""
    return read(f"/proc/{pid}/stat").rpartition(")")[2].split()


def process_ns(pid: str) -> int:
    """CPU time in ns of all threads of a process, including those that have ended; 0 if the process is gone.

    Read from the process's CPU clock, whose ID is computed as clock_getcpuclockid(3) does.
    """
    try:
        return time.clock_gettime_ns((~int(pid) << 3) | 2)
    except OSError:
        return 0


def processes_cpu(pids: Iterable[str]) -> CpuTimes:
    """CPU seconds of these processes, their threads and the children they have waited for."""
    total, user, system = 0.0, 0.0, 0.0
    for pid in pids:
        fields = stat_fields(pid)
        if len(fields) < 15:
            continue
        own_user, own_system, child_user, child_system = (int(f) / TICKS for f in fields[11:15])
        total += process_ns(pid) / 1e9 + child_user + child_system
        user += own_user + child_user
        system += own_system + child_system
    return {"total_s": total, "user_s": user, "system_s": system, "method": "cpu-clock"}


def pss_kib(pids: Iterable[str]) -> int:
    """Memory of these processes in KiB; shared pages are divided among the processes that share them."""
    total = 0
    for pid in pids:
        for line in read(f"/proc/{pid}/smaps_rollup").splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1])
                break
    return total


def rss_kib(pid: str) -> int:
    """Memory of a process that is resident, in KiB, with pages that KSM has merged; 0 if the process is gone."""
    fields = read(f"/proc/{pid}/statm").split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") // 1024 if len(fields) > 1 else 0


def memory(root: str = "") -> dict[str, int]:
    """The machine's memory in KiB: `total_kib`, `available_kib`; of a kernel that merges equal pages also `ksm` (1: it
    does so now) and `merged_kib`, what that saves.
    """
    sizes = dict(re.findall(r"^(\w+):\s+(\d+) kB$", read(f"{root}/proc/meminfo"), re.MULTILINE))
    figures = {"total_kib": int(sizes.get("MemTotal", 0)), "available_kib": int(sizes.get("MemAvailable", 0))}
    run, sharing = (read(f"{root}/sys/kernel/mm/ksm/{name}") for name in ("run", "pages_sharing"))
    if run and sharing:
        figures |= {"ksm": int(run == "1"), "merged_kib": int(sharing) * os.sysconf("SC_PAGE_SIZE") // 1024}
    return figures


def other_vhost_threads(pid: str) -> list[str]:
    """vhost threads that older kernels keep outside the QEMU process."""
    return [other for other in all_pids() if other != pid and read(f"/proc/{other}/comm") == f"vhost-{pid}"]


def cpu_seconds() -> dict[str, float]:
    """user+nice, system+irq, idle+iowait and steal of the CPUs that this process may use."""
    allowed = {f"cpu{n}" for n in os.sched_getaffinity(0)}
    sums = [0.0] * 8
    # The CPUs' lines come first; the rest, from the interrupts on, is far longer and not needed.
    for line in read("/proc/stat").partition("\nintr ")[0].splitlines():
        fields = line.split()
        if fields[0] in allowed:
            for i in range(8):
                sums[i] += int(fields[i + 1]) / TICKS
    user, nice, system, idle, iowait, irq, softirq, steal = sums
    return {"user_s": user + nice, "system_s": system + irq + softirq, "idle_s": idle + iowait, "steal_s": steal}


def net_bytes() -> dict[str, float]:
    """Bytes received and sent by every interface but the loopback."""
    received = sent = 0
    for line in read("/proc/net/dev").splitlines()[2:]:
        name, _, rest = line.partition(":")
        if name.strip() != "lo":
            fields = rest.split()
            received, sent = received + int(fields[0]), sent + int(fields[8])
    return {"rx_bytes": received, "tx_bytes": sent}


def pressure_us() -> int:
    """Microseconds in which some task waited for a CPU."""
    some_line = read("/proc/pressure/cpu").partition("\n")[0]
    return int(some_line.rpartition("total=")[2] or 0)


def counters() -> dict[str, float]:
    """One reading of everything that the sampler records."""
    load1 = float(read("/proc/loadavg", "0").split()[0])
    reading = {"time_s": time.time(), "load1": load1, "pressure_us": float(pressure_us())}
    return {**reading, **cpu_seconds(), **net_bytes()}


def read_kib() -> int:
    """KiB that this kernel has read from its disks since boot, without reads that the page cache answered."""
    match = re.search(r"^pgpgin (\d+)$", read("/proc/vmstat"), re.MULTILINE)
    return int(match[1]) if match else 0


def drop_caches() -> None:
    """Write back dirty pages, then drop all clean pages, dentries and inodes. Raises RuntimeError where that is not
    allowed, as in a container, which shares its host's kernel.
    """
    os.sync()
    try:
        DROP.write_text("3\n", encoding="ascii")
    except OSError as error:
        raise RuntimeError(f"this machine may not drop its caches: {error}") from error


def energy_uj(folder: str = POWERCAP) -> dict[str, list[int]]:
    """Energy counters of RAPL (powercap), in µJ: zone → [counter, value at which it wraps to zero].

    The zones are the processors, and memory if it has its own counter. A zone of the whole platform, or of a part of a
    processor, would count the same energy twice. Empty if there is no such counter, as in a guest, or if this user may
    not read it: only root may.
    """
    counters_by_zone = {}
    for zone in sorted(Path(folder).glob("intel-rapl:*")):  # AMD's processors have this name, too
        name = read(f"{zone}/name")
        now, end = read(f"{zone}/energy_uj"), read(f"{zone}/max_energy_range_uj")
        if (name.startswith("package") or name == "dram") and now.isdigit() and end.isdigit() and int(end) > 0:
            counters_by_zone[zone.name] = [int(now), int(end)]
    return counters_by_zone

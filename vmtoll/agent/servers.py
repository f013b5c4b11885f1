"""Start and stop servers, and read the CPU time that they use."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from vmtoll.agent.machine import all_pids, output_of, processes_cpu, read, stat_fields
from vmtoll.agent.protocol import CpuTimes, MetricsSpec, ServerSpec


class UnitServer:
    """A server that systemd starts and stops."""

    def __init__(self, spec: ServerSpec) -> None:
        self.unit = str(spec["unit"])
        self._group = ""

    def start(self, limit_s: float) -> None:
        self._systemctl("start", limit_s)

    def stop(self, limit_s: float) -> None:
        self._systemctl("stop", limit_s)

    def _systemctl(self, verb: str, limit_s: float) -> None:
        done = subprocess.run(
            ["systemctl", verb, self.unit], capture_output=True, text=True, timeout=limit_s, check=False
        )
        if done.returncode:
            log = output_of("journalctl", "-u", self.unit, "-n", "5", "-o", "cat", "--no-pager")
            raise RuntimeError(f"systemctl {verb} {self.unit}: {done.stderr.strip()} {log}")

    def folders(self) -> list[str]:
        """The unit's control-group folders that exist; version 2 first, also on hybrid machines."""
        if not self._group:
            self._group = output_of("systemctl", "show", "-p", "ControlGroup", "--value", self.unit)
        group = self._group or f"/system.slice/{self.unit}"
        bases = ("/sys/fs/cgroup/unified", "/sys/fs/cgroup", "/sys/fs/cgroup/systemd")
        return [base + group for base in bases if Path(base + group, "cgroup.procs").exists()]

    def pids(self) -> list[str]:
        for folder in self.folders():
            pids = read(f"{folder}/cgroup.procs").split()
            if pids:
                return pids
        return []

    def cpu(self, pids: list[str]) -> CpuTimes:
        """CPU seconds: of the whole unit if control groups of version 2 count them, else of its processes."""
        for folder in self.folders():
            stat = dict(line.split() for line in read(f"{folder}/cpu.stat").splitlines())
            if int(stat.get("usage_usec", 0)) and read(f"{folder}/cgroup.procs"):
                total, user, system = (int(stat[f"{k}_usec"]) / 1e6 for k in ("usage", "user", "system"))
                return {"total_s": total, "user_s": user, "system_s": system, "method": "cgroup"}
        return processes_cpu(pids)


class CommandServer:
    """A server that the agent starts as a foreground command, for machines without systemd."""

    def __init__(self, spec: ServerSpec) -> None:
        self.command = [str(word) for word in spec["command"]]
        self.process: subprocess.Popen[bytes] | None = None
        self.start_lock = threading.Lock()

    def start(self, limit_s: float) -> None:
        del limit_s
        devnull = subprocess.DEVNULL
        with self.start_lock:  # so that stop() misses no server that is just starting
            self.process = subprocess.Popen(
                self.command, stdin=devnull, stdout=devnull, stderr=devnull, start_new_session=True
            )

    def stop(self, limit_s: float) -> None:
        with self.start_lock:
            process = self.process
        if process is None:
            return
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(min(limit_s, 10.0))
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def pids(self) -> list[str]:
        if self.process is None:
            return []
        children = []
        for pid in all_pids():
            fields = stat_fields(pid)
            if len(fields) > 3 and fields[3] == str(self.process.pid) and fields[0] != "Z":
                children.append(pid)
        return children

    def cpu(self, pids: list[str]) -> CpuTimes:
        return processes_cpu(pids)


def threads_outside(pids: Iterable[str], cpus: set[int]) -> list[int]:
    """The threads of these processes that may use CPUs other than these."""
    threads = []
    for task in (task for pid in pids for task in Path(f"/proc/{pid}/task").glob("*")):
        with contextlib.suppress(ProcessLookupError):
            if os.sched_getaffinity(int(task.name)) - cpus:
                threads.append(int(task.name))
    return threads


def confine(threads: Iterable[int], cpus: set[int]) -> None:
    """Restrict these threads, and all that they start from now on, to these CPUs."""
    for thread in threads:
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(thread, cpus)


def listens(port: int, address: str = "127.0.0.1") -> bool:
    """Return whether something accepts connections on the port, by default on this machine."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.settimeout(2)
        return probe.connect_ex((address, port)) == 0


def metrics_page(metrics: MetricsSpec, limit_s: float) -> str | None:
    """A server's metrics page, fetched over the loopback; None if the server does not answer with a page.

    `limit_s`: for connecting, and for each piece of the answer.
    """
    connection = http.client.HTTPConnection("127.0.0.1", metrics["port"], timeout=limit_s)
    try:
        connection.request("GET", metrics["path"], headers={"Connection": "close"})
        response = connection.getresponse()
        return response.read().decode() if response.status == 200 else None
    except (OSError, http.client.HTTPException, UnicodeDecodeError):
        return None
    finally:
        connection.close()


def wait_until(condition: Callable[[], bool], limit_s: float, complaint: str) -> None:
    """Wait for a condition. Raises RuntimeError with the complaint when it does not come true in time."""
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError(f"{complaint} within {limit_s:g} s")
        time.sleep(0.01)

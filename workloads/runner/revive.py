"""Machines that were lost are brought back before the next trial."""

import os
import time
from collections.abc import Callable
from datetime import UTC, datetime

from workloads.runner.bench import Bench
from workloads.runner.booted import wait_until_booted
from workloads.runner.errors import AgentError, HostLostError, ResultsError, RunnerError
from workloads.runner.inventory import Host
from workloads.runner.transport import AgentLine

# How long a machine may take to answer again, unless its vmtoll_back_s says otherwise: an emulated guest boots for
# a minute or two, a server's firmware for longer.
BACK_S = 300.0
QUICK_S = 10.0
OPEN_S = 30.0
# How long a dead run's agent may take to stop its server and let go of its lock.
LOCK_S = 20.0


def take(bench: Bench, host: Host) -> None:
    """Hold a machine for this run and stop what a dead one left there. Raises ResultsError when it is held."""
    line = bench.line(host)
    since = datetime.now(UTC).isoformat(timespec="seconds")
    owner = f"run {bench.run_id} of {bench.resolved.experiment.name} (process {os.getpid()}, since {since})"
    deadline = time.monotonic() + LOCK_S
    while held_by := line.call("lock", owner=owner)["held_by"]:
        if time.monotonic() > deadline:
            raise ResultsError(f"{host.name} is in use by {held_by}")
        time.sleep(0.25)
    if host.role in ("metal", "kvm_guest"):
        line.call("stop_all", 180, names=bench.resolved.servers)


def restore(bench: Bench, say: Callable[[str], None]) -> None:
    """Make every lost machine answer again, reviving guests on their host. Raises RunnerError when one cannot."""
    for host in sorted(bench.inventory.hosts(), key=lambda host: host.role != "kvm_host"):
        line = bench.line(host)
        if not line.lost_because:
            continue
        say(f"{host.name} is gone ({line.lost_because}); bringing it back, or waiting up to {_back_s(host):g} s for it")
        try:
            try:
                _open(line, QUICK_S)  # perhaps only the connection was lost
            except HostLostError:
                _bring_back(bench, host, line)
            if host.role != "kvm_host":
                take(bench, host)
        except (HostLostError, AgentError) as error:
            raise RunnerError(f"{host.name} does not come back: {error}; resume the run when it does") from error
        say(f"{host.name} is back")


def _back_s(host: Host) -> float:
    return float(host.get("vmtoll_back_s", BACK_S))


def _bring_back(bench: Bench, host: Host, line: AgentLine) -> None:
    complaint, deadline = _revive(bench, host), time.monotonic() + _back_s(host)
    while True:
        try:
            return _open(line, OPEN_S)
        except HostLostError as error:
            if time.monotonic() > deadline:
                raise HostLostError(f"{error}; {complaint}" if complaint else str(error)) from error
        time.sleep(0.5)


def _open(line: AgentLine, limit_s: float) -> None:
    line.open(limit_s)
    wait_until_booted(line)


def _revive(bench: Bench, host: Host) -> str:
    """Run the guest's revive commands on its host, by default libvirt's start; what the first that failed said.

    A failure is no verdict: a guest that restarts by itself is running already when it is to be started.
    """
    kvm_host = bench.inventory.kvm_host(host)
    if kvm_host is None:
        return ""
    start = ["virsh", "-c", kvm_host.libvirt_uri, "start", host.get("vmtoll_domain")]
    for argv in host.get("vmtoll_revive", [start]):
        try:
            done = bench.line(kvm_host).call("exec", 200, argv=[str(a) for a in argv], limit_s=180)
        except AgentError as error:
            return str(error)
        if done["exit_status"]:
            words = " ".join((done["stderr"] or done["stdout"]).split())
            return f"{kvm_host.name}: {' '.join(argv)}: {words[:300]}"
    return ""

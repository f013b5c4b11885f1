"""Lock the machines of a run, and bring lost ones back before the next trial."""

import contextlib
import os
import time
from collections.abc import Sequence
from datetime import UTC, datetime

from vmtoll.agent.protocol import Done
from vmtoll.machines.connection import AgentLine
from vmtoll.machines.panics import stop_panicked
from vmtoll.machines.session import Session
from vmtoll.model.errors import AgentError, HostLostError, ResultsError, VmtollError
from vmtoll.model.event import Absence, Listener, MachineStep
from vmtoll.model.inventory import Host

BOOT_S = 120.0


def wait_until_booted(line: AgentLine) -> None:
    """Wait until systemd has finished the boot; return at once without systemd.

    Raises HostLostError when the machine is lost or is shutting down; its line is then given up.
    """
    with contextlib.suppress(AgentError):
        argv = ["systemctl", "is-system-running", "--wait"]
        state = line.call("exec", BOOT_S + 10, argv=argv, limit_s=BOOT_S)
        # When a machine shuts down, D-Bus fails first, sometimes mid-reply (state unknown).
        if state["stdout"].strip() in ("stopping", "unknown") or "Connection refused" in state["stderr"]:
            line.give_up("it is shutting down")
            raise line.lost_error()


QUICK_S = 10.0
OPEN_S = 30.0
# How long the agent of a killed run may take to stop its server and release its lock.
LOCK_S = 20.0


def take(session: Session, host: Host) -> None:
    """Lock a machine for this run, stop the servers that a killed run left there, keep a client's CPUs awake.

    Raises ResultsError when another run holds it, HostLostError, AgentError.
    """
    line = session.line(host)
    since = datetime.now(UTC).isoformat(timespec="seconds")
    our_mark = f"run {session.run_id} "
    owner = f"{our_mark}of {session.resolved.experiment.name} (process {os.getpid()}, since {since})"
    deadline = time.monotonic() + LOCK_S
    while held_by := line.call("lock", owner=owner)["held_by"]:
        # After an outage this run's old agent holds the machine until the kernel there notices the dead connection.
        ours_s = host.vars.back_s if held_by.startswith(our_mark) else 0
        if time.monotonic() > deadline + ours_s:
            raise ResultsError(f"{host.name} is in use by {held_by}")
        time.sleep(0.25)
    if host.role == "client":
        line.call("stay_awake")
    if host.role not in ("client", "kvm_host") and session.resolved.requests is None:
        line.call("stop_all", 180, names=session.resolved.all_servers)


def restore(session: Session, tell: Listener) -> None:
    """Reconnect every lost machine; start guests on their host if needed. Raises VmtollError if one does not return."""
    for host in sorted(session.inventory.hosts(), key=lambda host: host.role != "kvm_host"):
        line = session.line(host)
        if not line.lost_because:
            continue
        tell(MachineStep(host.name, Absence.LOST, host.vars.back_s, line.lost_because))
        try:
            try:
                _open(line, QUICK_S)  # perhaps only the connection was lost
            except HostLostError:
                _bring_back(session, host, line)
            if host.role != "kvm_host":
                take(session, host)
        except (HostLostError, AgentError) as error:
            raise VmtollError(f"{host.name} does not come back: {error}; resume the run when it does") from error
        tell(MachineStep(host.name, Absence.BACK))


def _bring_back(session: Session, host: Host, line: AgentLine) -> None:
    reopen(session, line, _revive(session, host))


def reopen(session: Session, line: AgentLine, complaint: str = "") -> None:
    """Open the line to a machine that boots, once it answers and has booted. Raises HostLostError, with `complaint`, if
    it does not in time, or at once if it is a guest whose kernel has panicked, which is then stopped.
    """
    host, deadline = line.host, time.monotonic() + line.host.vars.back_s
    while True:
        try:
            return _open(line, OPEN_S)
        except HostLostError as error:
            if panic := _panic(session, host):
                raise HostLostError(panic, host.name) from error
            if time.monotonic() > deadline:
                raise HostLostError(f"{error}; {complaint}" if complaint else str(error), host.name) from error
        time.sleep(0.5)


def _panic(session: Session, host: Host) -> str:
    """Why a guest does not answer, if its kernel has panicked; it is then stopped. Empty if that is not known."""
    with contextlib.suppress(AgentError, HostLostError):
        if host.guest_name and (on_host := session.on_host(host)):
            return stop_panicked(on_host)
    return ""


def _open(line: AgentLine, limit_s: float) -> None:
    line.open(limit_s)
    wait_until_booted(line)


def _revive(session: Session, host: Host) -> str:
    """Run the revive commands of a guest or container on its host, by default the one that starts it; return the
    message of the first that failed.

    A failed start proves nothing: the guest may have restarted itself.
    """
    is_contained = host.container_name is not None
    carrier = session.inventory.host(host) if is_contained else session.inventory.kvm_host(host)
    if carrier is None:
        return ""
    try:
        for argv in _start_commands(session, host, session.line(carrier)):
            done: Done = session.line(carrier).call("exec", 200, argv=argv, limit_s=180)
            if done["exit_status"]:
                words = " ".join((done["stderr"] or done["stdout"]).split())
                return f"{carrier.name}: {' '.join(argv)}: {words[:300]}"
    except AgentError as error:
        return str(error)
    return ""


def _start_commands(session: Session, host: Host, carrier: AgentLine) -> Sequence[Sequence[str]]:
    """The commands that start a guest or container on its host. Raises AgentError for a container that is not there."""
    if host.vars.revive is not None:
        return host.vars.revive
    if host.container_name:
        return [[carrier.call("container_engine", name=host.container_name), "start", host.container_name]]
    on_host = session.on_host(host)
    return [on_host.start_command()] if on_host else []

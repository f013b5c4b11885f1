"""Pause guests that idle on the physical machine under test: the timers, emulators and balloons of an idle guest use
CPU that no arm is charged for.
"""

import contextlib
from collections.abc import Collection, Sequence

from vmtoll import hypervisors
from vmtoll.machines.clock import clock_offset
from vmtoll.machines.recovery import restore
from vmtoll.machines.session import Paused, Session, TrialReporter
from vmtoll.model.errors import AgentError, HostLostError
from vmtoll.model.event import Listener, NotPaused
from vmtoll.model.inventory import Host
from vmtoll.model.trial import TrialSpec

# A paused guest's clock stands still; vmtoll corrects it after the pause only if it is off by more than this.
BEHIND_S = 0.005
_LOOKS = 3


def settle(session: Session, tell: TrialReporter) -> None:
    """Before a trial: resume the guests that it needs, bring back lost machines, pause the guests that idle there.

    Raises VmtollError when a machine does not come back.
    """
    idle = idle_beside(session, tell.spec)
    pause_only(session, idle, tell.listener)
    _record_threads(session, tell.spec)
    session.guests_paused = sum(guest.name in session.paused for guest in idle) if idle else None


def pause_only(session: Session, idle: Sequence[Host], tell: Listener) -> None:
    """Resume all other guests, bring back lost machines, pause these.

    Raises VmtollError when a machine does not come back.
    """
    for name in list(session.paused):
        if name not in {guest.name for guest in idle} or session.lines[name].lost_because:
            resume(session, session.paused.pop(name))
    restore(session, tell)
    for guest in idle if session.resolved.experiment.pause_idle_guests else []:
        if guest.name not in session.paused and guest.name not in session.unpausable:
            try:
                session.paused[guest.name] = _pause(session, guest)
            except (AgentError, HostLostError) as error:
                session.unpausable.add(guest.name)
                tell(NotPaused(guest.name, str(error)))


def _record_threads(session: Session, spec: TrialSpec) -> None:
    """Record thread IDs of the virtual CPUs of the trial's guests, whose CPU time counts separately.

    If what runs a guest does not answer, the threads' names decide.
    """
    for guest in session.inventory.machines.get(spec.arm.environment, ()):
        on_host = session.on_host(guest) if guest.guest_name else None
        if on_host:
            with contextlib.suppress(AgentError):
                session.vcpus[guest.name] = on_host.threads()


def idle_beside(session: Session, spec: TrialSpec) -> list[Host]:
    """The run's guests that share the trial's physical machine but have no part in the trial."""
    machines = session.machines(spec.arm, spec.scenario.load, session.senders(spec))
    busy = {line.host.name for line in (*machines.serving, *machines.idle)}
    if not machines.suts:
        return []
    return _beside(session, busy, machines.host.host if machines.host else machines.suts[0].host)


def guests_beside(session: Session, guests: Sequence[Host]) -> list[Host]:
    """The run's guests that share the physical machine of these."""
    return _beside(session, {guest.name for guest in guests}, session.inventory.kvm_host(guests[0]) or guests[0])


def _beside(session: Session, busy: Collection[str], measured: Host) -> list[Host]:
    guests = []
    for guest in session.inventory.under_test:
        host = session.inventory.kvm_host(guest)
        if host and guest.guest_name and guest.name not in busy and same_machine(host, measured):
            guests.append(guest)
    return guests


def same_machine(first: Host, second: Host) -> bool:
    """Return whether two names of the inventory are one physical machine."""
    if first.name == second.name:
        return True
    return first.is_local == second.is_local and (first.is_local or first.ssh_host == second.ssh_host)


def _pause(session: Session, guest: Host) -> Paused:
    """Pause a guest. Raises AgentError when its host fails, HostLostError."""
    line, on_host = session.line(guest), _on_host(session, guest)
    ahead_s = clock_offset(line, _LOOKS).ahead_s
    line.suspend()
    try:
        on_host.pause()
    except (AgentError, HostLostError):
        line.resume()
        raise
    return Paused(guest, ahead_s)


def resume(session: Session, paused: Paused) -> None:
    """Resume a guest and set its clock forward by as much as it fell behind.

    Failures are ignored: either the guest's line is lost then, or its clock stays behind, which its gates report.
    """
    line, on_host = session.line(paused.guest), _on_host(session, paused.guest)
    with contextlib.suppress(AgentError, HostLostError):  # a host's agent resumes its guests when it ends
        on_host.resume()
    line.resume()
    with contextlib.suppress(AgentError, HostLostError):
        behind_s = paused.ahead_s - clock_offset(line, _LOOKS).ahead_s
        if abs(behind_s) > BEHIND_S:
            line.call("shift_clock", by_s=behind_s)


def resume_all(session: Session) -> None:
    """Resume all paused guests."""
    while session.paused:
        resume(session, session.paused.popitem()[1])


def resume_left(session: Session) -> None:
    """Resume guests that a killed run left paused, because they would not answer. Needs open lines to the KVM hosts."""
    for guest in session.inventory.under_test:
        if session.inventory.kvm_host(guest) and guest.guest_name:
            with contextlib.suppress(AgentError):  # without virsh nothing was paused either
                _on_host(session, guest).resume_left()


def _on_host(session: Session, guest: Host) -> hypervisors.Guest:
    """A guest as its KVM host has it. Raises AgentError if that host is not known."""
    on_host = session.on_host(guest)
    if on_host is None:
        raise AgentError(f"{guest.name}: its KVM host is not known")
    return on_host

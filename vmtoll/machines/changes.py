"""Bring a machine into the state that an arm is about: with its change, or without any."""

import contextlib
from dataclasses import dataclass

from vmtoll.machines.boots import boot_machine
from vmtoll.machines.connection import AgentLine
from vmtoll.machines.session import Session
from vmtoll.model.errors import AgentError, HostLostError
from vmtoll.model.event import Listener, NotReverted
from vmtoll.model.experiment import Change
from vmtoll.model.inventory import Host

# What a command may take beyond its own time limit, and how long a machine may take to revert.
_TRAVEL_S = 15.0
REVERT_S = 1200.0


@dataclass(frozen=True)
class Place:
    """A machine under test, and the machine that runs the commands of its changes: itself or its KVM host."""

    sut: Host
    runs_on: Host


def alter(session: Session, environment: str, tell: Listener) -> None:
    """Put the change of an environment in place, or revert the one that is there; boot the machine if the change needs
    it. Does nothing in an experiment without changes.

    Raises AgentError when a command fails, HostLostError, VmtollError when the machine does not come back.
    """
    experiment = session.resolved.experiment
    wanted = experiment.changes.get(environment)
    for sut in session.inventory.machines.get(environment, ()) if experiment.changes else ():
        changes = [change for change in experiment.changes.values() if change.of == experiment.machine_of(environment)]
        ran = False
        for place in places(session, sut, changes):
            is_here = wanted is not None and place.runs_on == _runs_on(session, sut, wanted)
            line = session.line(place.runs_on)
            ran |= _apply(line, environment, wanted) if is_here and wanted else _revert(line)
        if ran and any(change.boots for change in changes):
            session.line(sut).call("keep_change")
            boot_machine(session, sut, tell)


def _apply(line: AgentLine, name: str, change: Change) -> bool:
    answer = line.call(
        "apply", 2 * max(change.limit_s, REVERT_S) + _TRAVEL_S, name=name, apply=change.apply, revert=change.revert,
        limit_s=change.limit_s, boots=change.boots,
    )  # fmt: skip
    return bool(answer["ran"])


def _revert(line: AgentLine) -> bool:
    return bool(line.call("revert", REVERT_S)["ran"])


def places(session: Session, sut: Host, changes: list[Change]) -> list[Place]:
    """Where the commands of these changes of a machine run, each place once."""
    hosts = {host.name: host for change in changes if (host := _runs_on(session, sut, change))}
    return [Place(sut, host) for host in hosts.values()]


def _runs_on(session: Session, sut: Host, change: Change) -> Host | None:
    return sut if change.on == "machine" else session.inventory.kvm_host(sut)


def revert_left(session: Session) -> None:
    """Revert what a killed run left on the machines of this run. Raises AgentError when a command fails."""
    for line in _lines(session):
        _revert(line)


def revert_all(session: Session, tell: Listener) -> None:
    """Revert every change at the end of a run; a change that stays in place is reported, with the way out."""
    if not session.resolved.experiment.changes:
        return
    for line in _lines(session):
        try:
            if not line.lost_because:
                _revert(line)
        except AgentError as error:
            tell(NotReverted(line.host.name, str(error)))
        except HostLostError:
            with contextlib.suppress(Exception):
                line.close()


def _lines(session: Session) -> list[AgentLine]:
    """The lines to the machines under test, and to KVM hosts that run commands of changes."""
    inventory, changes = session.inventory, session.resolved.experiment.changes.values()
    on_hosts = any(change.on == "host" for change in changes)
    hosts = [host for sut in inventory.under_test if on_hosts and (host := inventory.kvm_host(sut))]
    return list({host.name: session.line(host) for host in (*inventory.under_test, *hosts)}.values())

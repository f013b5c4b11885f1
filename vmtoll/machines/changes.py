"""Bring a machine into the state that an arm is about: with its change, or without any."""

import contextlib
from dataclasses import dataclass

from vmtoll.machines.boots import boot_machine
from vmtoll.machines.connection import AgentLine
from vmtoll.machines.idle_guests import same_machine
from vmtoll.machines.recovery import reopen
from vmtoll.machines.session import Session
from vmtoll.model.change import Change
from vmtoll.model.errors import AgentError, ExperimentError, HostLostError, VmtollError
from vmtoll.model.event import Listener, NotReverted
from vmtoll.model.inventory import Host

# What a command may take beyond its own time limit, and how long a machine may take to revert.
_TRAVEL_S = 15.0
REVERT_S = 1200.0


@dataclass(frozen=True)
class Place:
    """Where a change of a machine under test is made: there, or on its host, as the change of the guest."""

    line: AgentLine
    guest: str = ""
    # the inventory names the KVM host of the guest, or the machine whose kernel the container shares
    has_host: bool = False

    def apply(self, name: str, change: Change) -> bool:
        """Put what a change does here in place, unless it is, or revert what is here, where it does nothing; return
        whether anything was done. Raises AgentError, HostLostError.
        """
        runs_here = bool(self.guest) == (change.on == "host")
        values = change.values if bool(self.guest) == self.has_host else {}
        sysctls = {} if self.guest else change.sysctls
        if not (values or sysctls or (runs_here and change.apply)):
            return self.revert()["ran"]
        limit_s = 2 * max(change.limit_s, REVERT_S) + _TRAVEL_S
        commands = {"apply": change.apply, "revert": change.revert} if runs_here else {"apply": "", "revert": ""}
        answer = self.line.call(
            "apply", limit_s, name=name, **commands, limit_s=change.limit_s, boots=change.boots, guest=self.guest,
            settings=values, sysctls=sysctls,
        )  # fmt: skip
        return bool(answer["ran"])

    def revert(self, *, boots: bool = True) -> dict[str, bool]:
        """Revert the change in place; `ran`: there was one; `boots`: the machine under test must boot to be without it.

        `boots`: also a change for which it must. Raises AgentError, HostLostError.
        """
        answer: dict[str, bool] = self.line.call("revert", REVERT_S, guest=self.guest, boots=boots)
        return answer


def check_settings(session: Session) -> None:
    """Set the settings and kernel parameters of each change once, and restore them: a value that does not stick would
    spoil every trial of its environment.

    Raises ExperimentError for a value that a machine does not take, or cannot have; AgentError, HostLostError.
    """
    for name, change in session.resolved.experiment.changes.items():
        settings = change.model_copy(update={"apply": "", "revert": "", "boots": False})
        for sut in session.inventory.machines.get(name, ()):
            for place in _places(session, sut):
                try:
                    place.apply(name, settings)
                except AgentError as error:
                    raise ExperimentError(str(error), session.resolved.file) from error
                place.revert()


def alter(session: Session, environment: str, tell: Listener) -> None:
    """Put the change of an environment in place, or revert the one that is there, or what an operation has left; boot
    the machine if the change needs it. What the change of another machine did to a host that both may share is
    reverted. Does nothing in an experiment without changes and operations.

    Raises AgentError when a command fails, HostLostError, VmtollError when the machine does not come back.
    """
    experiment = session.resolved.experiment
    wanted = experiment.changes.get(environment)
    if experiment.changes:
        _revert_on_hosts(session, environment)
    for sut in session.inventory.machines.get(environment, ()) if experiment.variants else ():
        changes = [change for change in experiment.changes.values() if change.of == experiment.machine_of(environment)]
        ran = False
        for place in _places(session, sut):
            ran |= place.apply(environment, wanted) if wanted else place.revert()["ran"]
        if ran and any(change.boots for change in changes):
            session.line(sut).call("keep_change")
            boot_machine(session, sut, tell)


def _revert_on_hosts(session: Session, environment: str) -> None:
    """Revert the changes that hosts have in place for machines of other environments, those of metal on the same
    physical machine included, without those that a machine has booted with: they are its own. A host that is lost is
    left alone. Raises AgentError.
    """
    measured = session.inventory.machines.get(environment, ())
    physical = [session.inventory.host(sut) or sut for sut in measured]
    for sut in session.inventory.under_test:
        if sut not in measured:
            for place in _places(session, sut):
                is_shared = place.guest or (not place.has_host and any(same_machine(sut, host) for host in physical))
                if is_shared and not place.line.lost_because:
                    with contextlib.suppress(HostLostError):  # who measures that machine is told
                        place.revert(boots=False)


def _places(session: Session, sut: Host) -> list[Place]:
    """Where a change of this machine may be made: a container has its kernel's settings from its host. A guest that is
    paused does not answer, and is brought into the state of its arm before it is measured again.
    """
    host = session.inventory.host(sut)
    if host is None:
        return [Place(session.line(sut))]
    on_host = Place(session.line(host), sut.name, has_host=True)
    return [on_host] if sut.name in session.paused else [Place(session.line(sut), has_host=True), on_host]


def undo_operations(session: Session) -> bool:
    """Undo what an operation of a killed run has left on guests that do not answer; return whether there was anything.

    Failures are ignored: the guest then stays away, which its caller reports.
    """
    undone = False
    for guest in session.inventory.under_test:
        kvm_host = session.inventory.kvm_host(guest)
        if kvm_host and session.line(guest).lost_because and not session.line(kvm_host).lost_because:
            with contextlib.suppress(AgentError, HostLostError):
                if session.line(kvm_host).call("revert", REVERT_S, guest=guest.name, boots=False)["ran"]:
                    undone = True
                    reopen(session, session.line(guest))  # it may have to boot
    return undone


def revert_left(session: Session, tell: Listener) -> None:
    """Revert what a killed run left on the machines of this run, and boot the machines that it had booted with it.

    Raises AgentError when a command fails, HostLostError, VmtollError when a machine does not come back.
    """
    for sut in session.inventory.under_test:
        _restore(session, sut, tell)


def revert_all(session: Session, tell: Listener) -> None:
    """Revert every change at the end of a run, and boot the machines that the run had booted with it; a change that
    stays in place is reported, with the way out.
    """
    for sut in session.inventory.under_test if session.resolved.experiment.variants else ():
        try:
            if not any(place.line.lost_because for place in _places(session, sut)):
                _restore(session, sut, tell)
        except HostLostError:
            with contextlib.suppress(Exception):
                session.line(sut).close()
        except VmtollError as error:
            tell(NotReverted(sut.name, str(error)))


def _restore(session: Session, sut: Host, tell: Listener) -> None:
    reverted = [place.revert() for place in _places(session, sut)]
    if any(answer["boots"] for answer in reverted):
        boot_machine(session, sut, tell)

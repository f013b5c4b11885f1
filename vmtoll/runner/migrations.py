"""Check, before the first trial, that guests can move to the hosts that an experiment moves them to."""

from vmtoll.hypervisors.operations import script
from vmtoll.machines.session import Session
from vmtoll.model.errors import AgentError, ExperimentError


def check_migrations(session: Session) -> None:
    """Raise ExperimentError for a guest that cannot move to its target: one lacks its network, its pool, its CPU.
    AgentError, HostLostError.
    """
    experiment, inventory = session.resolved.experiment, session.inventory
    for name, operation in experiment.during.items():
        for guest in inventory.machines.get(name, ()) if operation.to else ():
            if on_host := session.on_host(guest):
                try:
                    script(operation, on_host, session.lines[operation.to])
                except AgentError as error:
                    raise ExperimentError(f"{session.resolved.file}: during.{name}: {error}") from None

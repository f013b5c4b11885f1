"""Check, before the first trial, that the operations of an experiment can be done to its guests."""

from vmtoll.hypervisors.operations import script
from vmtoll.machines.session import Session
from vmtoll.model.errors import AgentError, ExperimentError


def check_operations(session: Session) -> None:
    """Raise ExperimentError for a guest that an operation cannot be done to: it has no balloon, its disk is no file, or
    the host that it moves to lacks its network. AgentError, HostLostError.
    """
    experiment, inventory = session.resolved.experiment, session.inventory
    for name, operation in experiment.during.items():
        for guest in inventory.machines.get(name, ()) if operation.do != "command" else ():
            if on_host := session.on_host(guest):
                try:
                    script(operation, on_host, session.lines[operation.to] if operation.to else None)
                except AgentError as error:
                    raise ExperimentError(f"during.{name}: {error}", session.resolved.file) from None

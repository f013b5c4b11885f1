"""Errors with a cause that a user can act on, as one tree; each message is one sentence."""

from pathlib import Path


class VmtollError(Exception):
    """Base of all errors that vmtoll raises on purpose: what is wrong, where (file, key, machine), and the way out."""


class ExperimentError(VmtollError):
    """An experiment, workload or site is not valid; nothing has been started.

    `file`: the file or folder that the message names first, None where it names none; `sentence`: the message without.
    """

    def __init__(self, sentence: str, file: Path | None = None) -> None:
        super().__init__(sentence if file is None else f"{file}: {sentence}")
        self.sentence, self.file = sentence, file

    def without(self, file: Path) -> "ExperimentError":
        """The same error; of this file, which no user wrote, the sentence alone."""
        return ExperimentError(self.sentence) if self.file == file else self


class InventoryError(VmtollError):
    """The inventory lacks something the runner needs, or contradicts itself."""


class WrongLinkError(InventoryError):
    """The client's link is not the one that the experiment prescribes."""


class MachineError(VmtollError):
    """Something went wrong on a machine; `machine` is its name, None where it is not known."""

    def __init__(self, message: str, machine: str | None = None) -> None:
        super().__init__(message)
        self.machine = machine


class HostLostError(MachineError):
    """A machine no longer answers."""


class AgentError(MachineError):
    """The agent answered that an operation failed."""


class ResultsError(VmtollError):
    """The results directory cannot be used: locked, or not what it claims to be."""


class RunInterruptedError(KeyboardInterrupt):
    """^C during a run that has kept trials, or a campaign that has begun a run; the argument is the folder."""


class UserError(VmtollError):
    """A command cannot do what was asked."""


class SiteError(VmtollError):
    """A site's YAML cannot be used; the message names file and key."""


class LogError(VmtollError):
    """Access logs cannot be used, or their workload cannot be written; the message quotes no text of the log."""


class ToolError(MachineError):
    """A load tool did not follow its command line; the message says what vmtoll observed instead. `machine`: the client
    that it ran on.
    """


class CapacityError(ToolError):
    """The capacity that a share is taken of could not be measured; the message names the arm and its findings."""


class ToolTimeoutError(ToolError):
    """A load tool did not end within its time limit: the server did not answer its requests in time."""


class ServiceFailingError(ToolError):
    """Requests to a service failed, or it fell silent, and vmtoll stopped the load."""


class LoadError(VmtollError, ValueError):
    """A run directory cannot be analyzed; the message names the file and the column or key."""

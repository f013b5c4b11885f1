"""What may go wrong in a run, as one family."""


class RunnerError(Exception):
    """Base of all errors that the runner raises on purpose; the message is one clear sentence."""


class ExperimentError(RunnerError):
    """An experiment, workload or site says something it may not; nothing has been started."""


class InventoryError(RunnerError):
    """The inventory lacks something the runner needs, or contradicts itself."""


class WrongLinkError(InventoryError):
    """The client's link is not the one that the experiment was made for."""


class HostLostError(RunnerError):
    """A machine no longer answers."""


class AgentError(RunnerError):
    """The agent answered that an operation failed."""


class ResultsError(RunnerError):
    """The results directory cannot be used: locked, or not what it claims to be."""

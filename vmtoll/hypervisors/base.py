"""The interface: what vmtoll reads of a guest on its host, and what it does to one."""

from abc import ABC, abstractmethod
from typing import Any, Protocol

from vmtoll.agent.protocol import Done, GuestAddress, Process
from vmtoll.hypervisors.definition import Definition
from vmtoll.model.errors import AgentError
from vmtoll.model.inventory import Host

_LIMIT_S = 180.0


class Line(Protocol):
    """The line to the agent of the guest's host; see vmtoll.machines.connection."""

    host: Host

    def call(self, op: str, timeout_s: float = 30.0, **args: Any) -> Any:
        """Ask the agent. Raises AgentError, HostLostError."""


class Guest(ABC):
    """A guest on its host. Each method raises AgentError if the host fails, HostLostError."""

    def __init__(self, guest: Host, host: Line) -> None:
        self.guest, self.host = guest, host
        self.name = guest.guest_name or guest.name

    @property
    @abstractmethod
    def address(self) -> GuestAddress:
        """How the agent of the host finds the guest."""

    def pause(self) -> None:
        """Stop its virtual CPUs until `resume`; the agent resumes it if the runner is gone."""
        self.host.call("pause", guest=self.address)

    def resume(self) -> None:
        """Resume it."""
        self.host.call("resume", guest=self.address)

    def resume_left(self) -> None:
        """Resume it if a killed run left it paused."""
        self.host.call("resume_left", guest=self.address)

    def process(self) -> Process:
        """Its process and threads. Raises AgentError if it does not run."""
        process: Process | None = self.host.call("process", guest=self.address)
        if process is None:
            raise AgentError(f"{self.host.host.name}: {self.name} does not run: {self.missing}", self.host.host.name)
        return process

    @property
    def missing(self) -> str:
        """Text for the error when it does not run: which process is missing."""
        return f"no process of the domain {self.name}"

    def threads(self) -> list[int]:
        """Thread IDs of its virtual CPUs; empty if the threads' names show which they are."""
        return []

    @abstractmethod
    def definition(self) -> Definition:
        """Its definition as it runs, as libvirt would write it."""

    def version(self) -> str:
        """Name and version of what runs it; empty if the host's facts have them."""
        return ""

    @abstractmethod
    def start_command(self) -> list[str]:
        """The command that starts it on its host."""

    @abstractmethod
    def shut_down(self) -> None:
        """Ask the guest to shut down, as its power button does."""

    @abstractmethod
    def power_off(self) -> None:
        """End its process without asking the guest."""

    def panic(self) -> str:
        """The panic of its kernel and its console's last lines; empty if it has not panicked, as far as is known."""
        return str(self.host.call("panics", _LIMIT_S, guests=[self.address])[self.name])

    @abstractmethod
    def is_off(self) -> bool:
        """Return whether it is off."""

    def output(self, argv: list[str]) -> Done:
        """Run a command on the host and return how it ended, whatever its exit status."""
        done: Done = self.host.call("exec", _LIMIT_S + 20, argv=argv, limit_s=_LIMIT_S, env={"LC_ALL": "C"})
        return done

    def run(self, argv: list[str]) -> str:
        """Run a command on the host and return its output. Raises AgentError with its message if it fails."""
        done = self.output(argv)
        if done["exit_status"]:
            words = " ".join((done["stderr"] or done["stdout"]).split())[:300]
            raise AgentError(f"{self.host.host.name}: {' '.join(argv)}: {words}", self.host.host.name)
        return done["stdout"].strip()

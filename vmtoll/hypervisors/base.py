"""The interface: what vmtoll reads of a guest on its host, and what it does to one."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from vmtoll.agent.protocol import Done, GuestAddress, Process
from vmtoll.model.errors import AgentError
from vmtoll.model.inventory import Host

_LIMIT_S = 180.0


class Line(Protocol):
    """The line to the agent of the guest's host; see vmtoll.machines.connection."""

    host: Host

    def call(self, op: str, timeout_s: float = 30.0, **args: Any) -> Any:
        """Ask the agent. Raises AgentError, HostLostError."""


def output_on(host: Line, argv: Sequence[str], files: Mapping[str, str] | None = None) -> Done:
    """Run a command on a host and return how it ended, whatever its exit status."""
    done: Done = host.call(
        "exec", _LIMIT_S + 20, argv=list(argv), limit_s=_LIMIT_S, env={"LC_ALL": "C"}, files={**(files or {})}
    )
    return done


def words_of(done: Done) -> str:
    """What a command that failed has printed, on one line."""
    return " ".join((done["stderr"] or done["stdout"]).split())[:300]


@dataclass(frozen=True)
class Virsh:
    """virsh on a host, by default of the libvirt that its variables name."""

    host: Line
    uri: str = ""

    def words(self, *words: str) -> list[str]:
        """The command."""
        return ["virsh", "-q", "-c", self.uri or self.host.host.libvirt_uri, *words]

    def output(self, *words: str, files: Mapping[str, str] | None = None) -> Done:
        """Run it and return how it ended. Raises AgentError if the host fails, HostLostError."""
        return output_on(self.host, self.words(*words), files)

    def __call__(self, *words: str, files: Mapping[str, str] | None = None) -> str:
        """Run it and return what it prints. Raises AgentError with its message if it fails, HostLostError."""
        done, host = self.output(*words, files=files), self.host.host.name
        if done["exit_status"]:
            raise AgentError(f"{host}: virsh {words[0]}: {words_of(done)}", host)
        return done["stdout"]

    def names(self, *words: str) -> list[str]:
        """The names that it lists, which may have blanks. Raises AgentError, HostLostError."""
        return [line.strip() for line in self(*words).splitlines() if line.strip()]


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
    def definition(self) -> str:
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
        return output_on(self.host, argv)

    def run(self, argv: list[str]) -> str:
        """Run a command on the host and return its output. Raises AgentError with its message if it fails."""
        done = self.output(argv)
        if done["exit_status"]:
            raise AgentError(f"{self.host.host.name}: {' '.join(argv)}: {words_of(done)}", self.host.host.name)
        return done["stdout"].strip()

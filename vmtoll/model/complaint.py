"""What a check found on a machine or in an inventory, and the way out."""

from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "warn", "fail"]


@dataclass(frozen=True)
class Complaint:
    """What was found on `machine` (empty: in the inventory as a whole); `advice`: the way out, empty where it is ok.

    `fail`: nothing would run, or its figures would mean nothing. `warn`: a run is possible, but the user should know.
    """

    machine: str
    level: Level
    found: str
    advice: str = ""

    def __str__(self) -> str:
        prefix = f"{self.machine}: " if self.machine else ""
        return f"{prefix}{self.found}; {self.advice[:1].lower()}{self.advice[1:]}"


def ok(machine: str, observation: str) -> Complaint:
    """A passed check."""
    return Complaint(machine, "ok", observation)


def warn(machine: str, observation: str, advice: str) -> Complaint:
    """A warning."""
    return Complaint(machine, "warn", observation, advice)


def fail(machine: str, observation: str, advice: str) -> Complaint:
    """An error."""
    return Complaint(machine, "fail", observation, advice)

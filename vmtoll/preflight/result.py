"""The result of a check."""

from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "warn", "fail"]


@dataclass(frozen=True)
class CheckResult:
    """Result of a check on `machine` (empty: the inventory as a whole); `advice` is one sentence, empty where ok.

    `fail`: nothing would run, or its figures would mean nothing. `warn`: a run is possible, but the user should know.
    """

    machine: str
    level: Level
    found: str
    advice: str = ""


def ok(machine: str, observation: str) -> CheckResult:
    """A passed check."""
    return CheckResult(machine, "ok", observation)


def warn(machine: str, observation: str, advice: str) -> CheckResult:
    """A warning."""
    return CheckResult(machine, "warn", observation, advice)


def fail(machine: str, observation: str, advice: str) -> CheckResult:
    """An error."""
    return CheckResult(machine, "fail", observation, advice)

"""The result of a check."""

from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "warn", "fail"]


@dataclass(frozen=True)
class CheckResult:
    """What a check found on `machine` (empty: the inventory as a whole); `advice` is one sentence, empty where ok.

    `fail`: nothing would run, or its figures would mean nothing. `warn`: a run is possible; know this.
    """

    machine: str
    level: Level
    found: str
    advice: str = ""


def ok(machine: str, found: str) -> CheckResult:
    """A passed check."""
    return CheckResult(machine, "ok", found)


def warn(machine: str, found: str, advice: str) -> CheckResult:
    """A warning."""
    return CheckResult(machine, "warn", found, advice)


def fail(machine: str, found: str, advice: str) -> CheckResult:
    """An error."""
    return CheckResult(machine, "fail", found, advice)

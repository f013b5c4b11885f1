"""What a check found."""

from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "warn", "fail"]


@dataclass(frozen=True)
class Finding:
    """What was found on `machine` (empty: the inventory as a whole); `advice` is one sentence, none where all is well.

    `fail`: what is measured here would be worth nothing, or nothing would run. `warn`: it may run; know this.
    """

    machine: str
    level: Level
    found: str
    advice: str = ""


def ok(machine: str, found: str) -> Finding:
    return Finding(machine, "ok", found)


def warn(machine: str, found: str, advice: str) -> Finding:
    return Finding(machine, "warn", found, advice)


def fail(machine: str, found: str, advice: str) -> Finding:
    return Finding(machine, "fail", found, advice)

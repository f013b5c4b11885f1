"""How far a machine's clock is ahead of the controller's."""

import time
from dataclasses import dataclass

from vmtoll.machines.connection import AgentLine

# Readings of a machine's clock; the quickest answer counts.
_READINGS = 7
_LIMIT_S = 15.0


@dataclass(frozen=True, order=True)
class Offset:
    """A clock is `ahead_s` ahead of ours, ± `error_s`: half of the round trip."""

    error_s: float
    ahead_s: float


def clock_offset(line: AgentLine, readings: int = _READINGS, limit_s: float = _LIMIT_S) -> Offset:
    """Offset of a machine's clock, from the shortest of `readings` round trips. Raises HostLostError."""
    return _offset(line, "time_s", readings, limit_s)


def uptime_offset(line: AgentLine, readings: int = _READINGS, limit_s: float = _LIMIT_S) -> Offset:
    """Offset of a machine's monotonic clock, which starts at 0 when it boots. Raises HostLostError."""
    return _offset(line, "monotonic_s", readings, limit_s)


def _offset(line: AgentLine, clock: str, readings: int, limit_s: float) -> Offset:
    def read_offset() -> Offset:
        sent_s, begin_s = time.time(), time.monotonic()
        machine_s = float(line.call("ping", limit_s)[clock])
        error_s = (time.monotonic() - begin_s) / 2
        return Offset(error_s, machine_s - sent_s - error_s)

    return min(read_offset() for _ in range(readings))

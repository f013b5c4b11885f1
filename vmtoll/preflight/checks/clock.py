"""The clocks of all machines agree."""

import time
from collections.abc import Iterator
from dataclasses import dataclass

from vmtoll.preflight.finding import Finding, fail, ok, warn
from vmtoll.preflight.lab import Lab
from workloads.runner.errors import HostLostError
from workloads.runner.machine_gates import STEP_S
from workloads.runner.transport import AgentLine

ORDER = 50
# The series of a trial are by the second. An emulated guest begins up to a second behind: its hardware clock tells
# whole seconds only.
_WORTHLESS_S = 2.0
_LOOKS = 12
_LIMIT_S = 30.0


@dataclass(frozen=True)
class Offset:
    """A clock is `ahead_s` of this machine's, right to `error_s`: half of the shortest round trip."""

    ahead_s: float
    error_s: float


def check(lab: Lab) -> Iterator[Finding]:
    """Every machine against the first that answers; whether that one is right is of no account."""
    offsets: dict[str, Offset] = {}
    for host in lab.answering():  # one after the other: a busy machine answers late
        try:
            offsets[host.name] = offset(lab.lines[host.name])
        except HostLostError as error:
            yield fail(host.name, f"does not tell the time: {error}", "See what keeps it busy.")
    first = next(iter(offsets), "")
    for name, seen in offsets.items():
        ahead_s, error_s = seen.ahead_s - offsets[first].ahead_s, seen.error_s + offsets[first].error_s
        yield judge(name, first, ahead_s, error_s)


def judge(name: str, first: str, ahead_s: float, error_s: float) -> Finding:
    """Whether a clock that is so far ahead of the first machine's, give or take the error, is one of a lab."""
    if name == first:
        return ok(name, "the clock that the others are compared with")
    found = f"{abs(ahead_s) * 1000:.1f} ms {'ahead of' if ahead_s > 0 else 'behind'} {first} (± {error_s * 1000:.1f})"
    sure_s = abs(ahead_s) - error_s
    advice = "Let chrony or systemd-timesyncd set the clocks of all machines."
    if sure_s > _WORTHLESS_S:
        return fail(name, found, advice)
    return warn(name, found, advice) if sure_s > STEP_S else ok(name, found)


def offset(line: AgentLine) -> Offset:
    """Ask a machine for the time a few times; the shortest round trip tells it best. Raises HostLostError."""
    looks = (_look(line) for _ in range(_LOOKS))
    return min(looks, key=lambda seen: seen.error_s)


def _look(line: AgentLine) -> Offset:
    asked_s, begin_s = time.time(), time.monotonic()
    told_s = float(line.call("ping", _LIMIT_S)["time_s"])
    trip_s = time.monotonic() - begin_s
    return Offset(told_s - asked_s - trip_s / 2, trip_s / 2)

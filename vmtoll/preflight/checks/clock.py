"""The clocks of all machines agree."""

from collections.abc import Iterator

from vmtoll.machines.clock import Offset, clock_offset
from vmtoll.model.errors import HostLostError
from vmtoll.preflight.lab import Lab
from vmtoll.preflight.result import CheckResult, fail, ok, warn
from vmtoll.statistics.thresholds import CLOCK_STEP_S

ORDER = 50
# A trial's series have one value per second. An emulated guest starts up to a second behind: its hardware clock has
# whole seconds only.
_MAX_OFFSET_S = 2.0
_READINGS = 12
_LIMIT_S = 120.0


def check(lab: Lab) -> Iterator[CheckResult]:
    """Compare every machine's clock with that of the first that answers; whether that one is right does not matter."""
    offsets: dict[str, Offset] = {}
    for host in lab.answering_hosts():  # one after the other: a busy machine answers late
        try:
            offsets[host.name] = clock_offset(lab.lines[host.name], _READINGS, _LIMIT_S)
        except HostLostError as error:
            yield fail(host.name, f"does not tell the time: {error}", "See what keeps it busy.")
    first = next(iter(offsets), "")
    for name, offset in offsets.items():
        ahead_s, error_s = offset.ahead_s - offsets[first].ahead_s, offset.error_s + offsets[first].error_s
        yield judge(name, first, ahead_s, error_s)


def judge(name: str, first: str, ahead_s: float, error_s: float) -> CheckResult:
    """Judge a clock by its offset from the first machine's, give or take the error."""
    if name == first:
        return ok(name, "the clock that the others are compared with")
    observation = (
        f"{abs(ahead_s) * 1000:.1f} ms {'ahead of' if ahead_s > 0 else 'behind'} {first} (± {error_s * 1000:.1f})"
    )
    least_offset_s = abs(ahead_s) - error_s
    advice = "Let chrony or systemd-timesyncd set the clocks of all machines."
    if least_offset_s > _MAX_OFFSET_S:
        return fail(name, observation, advice)
    return warn(name, observation, advice) if least_offset_s > CLOCK_STEP_S else ok(name, observation)

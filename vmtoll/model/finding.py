"""Findings: why a trial is suspect or invalid. Codes and numbers here; vmtoll.report.words makes sentences of them."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from vmtoll.model.code import Code as Code  # noqa: PLC0414  (mypy: a re-export)
from vmtoll.model.payload import Payload, payload_of


class Validity(StrEnum):
    """Validity of a trial: whether it may be used."""

    VALID = "valid"
    SUSPECT = "suspect"
    INVALID = "invalid"


class Influence(StrEnum):
    """Effect of a finding on a comparison. EXCLUDES: the trial has no figure. BOUNDS: the trial is client-limited or
    link-limited, so its figure is open at one end. DISTORTS: something other than the two sides may have moved the
    figure. SYMPTOM: the server itself may be the cause, so the finding may be part of the result.
    """

    EXCLUDES = "excludes"
    BOUNDS = "bounds"
    DISTORTS = "distorts"
    SYMPTOM = "symptom"


class Role(StrEnum):
    """Purpose of a measurement: the trial's own figures, or the same load from a second tool."""

    PRIMARY = "primary"
    CROSSCHECK = "crosscheck"


@dataclass(frozen=True)
class FindingKind:
    """`severity`: of a trial with this finding; `influence`: on its comparisons; `meaning`: for readers; `fault`: how a
    test provokes the finding, in the lab (`injected`), or in synthetic readings where the lab cannot.
    """

    severity: Validity
    influence: Influence
    meaning: str
    fault: str
    injected: bool


@dataclass(frozen=True)
class Finding:
    """One gate that fired. `value` and `limit` are in the gate's unit; None for a gate without a figure."""

    code: Code
    value: float | None = None
    limit: float | None = None
    role: Role | None = None  # the measurement that it limits, None where it concerns the whole trial
    # `tool`, `machine`, `process`: where the gate saw it
    tool: str | None = None
    machine: str | None = None
    process: str | None = None
    # the payload as text, or the message of a program that failed; never a sentence of vmtoll's own. Each of the two
    # follows from the other, so a record without a payload, or a `detail` without names, needs no other reader.
    detail: str = ""
    payload: Payload | None = None  # what else it saw, for the codes that have one

    def __post_init__(self) -> None:
        if self.payload is None:
            object.__setattr__(self, "payload", payload_of(self.code, self.detail))
        elif not self.detail:
            object.__setattr__(self, "detail", self.payload.detail)

    @property
    def severity(self) -> Validity:
        """Severity of the code; failed requests up to `limit` make a trial only suspect."""
        if self.code is Code.FAILED_REQUESTS and self.value is not None and 0 < self.value <= (self.limit or 0):
            return Validity.SUSPECT
        return FINDINGS[self.code].severity

    @property
    def is_above_limit(self) -> bool:
        """Return whether the figure is known to lie above its limit."""
        return self.value is not None and self.limit is not None and self.value > self.limit


def validity(findings: Iterable[Finding]) -> Validity:
    """The worst severity of a trial's findings; VALID without any."""
    severities = {finding.severity for finding in findings}
    return next((v for v in (Validity.INVALID, Validity.SUSPECT) if v in severities), Validity.VALID)


def _suspect(influence: Influence, meaning: str, fault: str, *, injected: bool = True) -> FindingKind:
    return FindingKind(Validity.SUSPECT, influence, meaning, fault, injected)


def _invalid(meaning: str, fault: str, *, injected: bool = True) -> FindingKind:
    return FindingKind(Validity.INVALID, Influence.EXCLUDES, meaning, fault, injected)


FINDINGS: dict[Code, FindingKind] = {
    Code.CLIENT_SATURATED: _suspect(
        Influence.BOUNDS,
        "the load generator, not the server, was the bottleneck: throughput is a lower bound",
        "a tool that used 86% of the CPU time it could have had", injected=False),
    Code.CLIENT_STARVED: _suspect(
        Influence.DISTORTS,
        "other processes on the client took CPU from the load generator: it measured its own waiting",
        "three processes use the client's core alongside the load generator, or only during the cross-check"),
    Code.RATE_NOT_REACHED: _suspect(
        Influence.BOUNDS,
        "the open loop fell behind its rate, for a while or to the end: the load was not the offered one",
        "an open loop is told to send 100,000 requests per second from one core"),
    Code.CLIENT_LATE: _suspect(
        Influence.BOUNDS,
        "the load generator sent late: its own delay is a large part of the tail of the response times",
        "the p99 of the client's delay is a fifth of the p99 of the response times", injected=False),
    Code.START_SPREAD: _suspect(
        Influence.DISTORTS,
        "several clients did not begin together: for a while the load was not the offered one",
        "on one of three clients the load tool begins a second late"),
    Code.LITTLES_LAW: _suspect(
        Influence.BOUNDS,
        "users, throughput and response time do not fit together: fewer users than planned were in flight",
        "ten users with eight requests in flight", injected=False),
    Code.MEAN_OVER_P99: _suspect(
        Influence.SYMPTOM,
        "the mean lies above the 99th percentile: fewer than one request in a hundred took most of the time",
        "the server is frozen for longer than it works"),
    Code.LINK_BOUND: _suspect(
        Influence.BOUNDS,
        "the link was full: equal values are not evidence of low overhead",
        "the client's link is shaped to 50 Mbit/s, below the load"),
    Code.RETRANSMITS: _suspect(
        Influence.DISTORTS,
        "TCP sent segments again: the network, not the server, decided some response times",
        "one packet in fifty is dropped on its way to the client"),
    Code.LISTEN_DROPS: _suspect(
        Influence.SYMPTOM,
        "the kernel turned connections away because the server's listen queue was full",
        "a listen queue of one, a new connection for every request, and a server that pauses"),
    Code.PORTS_EXHAUSTED: _suspect(
        Influence.DISTORTS,
        "the client ran out of local ports toward the server, or nearly so: they were in use or in TIME_WAIT",
        "the client is left 84 local ports, which earlier connections hold in TIME_WAIT"),
    Code.STEAL: _suspect(
        Influence.DISTORTS,
        "the hypervisor took CPU time away from the machine under test",
        "0.6% stolen; an emulated guest's kernel reports no steal", injected=False),
    Code.BACKGROUND_CPU: _suspect(
        Influence.DISTORTS,
        "processes outside the measurement used the CPUs of the machine under test",
        "a neighbour keeps the core of the machine under test busy"),
    Code.HOST_BACKGROUND_CPU: _suspect(
        Influence.DISTORTS,
        "on the KVM host processes outside the measurement used the guest's CPUs",
        "a sibling guest on the same core of the KVM host"),
    Code.FREQUENCY_SPREAD: _suspect(
        Influence.DISTORTS,
        "the CPUs' clock rate moved during the measurement: turbo, power saving or heat",
        "a clock rate that falls from second to second; virtual machines do not govern theirs", injected=False),
    Code.CLOCK_SOURCE: _suspect(
        Influence.DISTORTS,
        "a machine's clock source changed since the run began: its times are not comparable",
        "the guest is switched to another clock source during the run"),
    Code.CLOCK_STEPPED: _suspect(
        Influence.DISTORTS,
        "a machine's clock was set during the measurement",
        "the guest's clock is set forward by five seconds during the load"),
    Code.WARMUP_DRIFT: _suspect(
        Influence.DISTORTS,
        "the first third of the measurement was slower than the rest: the server was not warm yet",
        "no warm-up, a page cache dropped just before, and a slow disk"),
    Code.NOT_COLD: _suspect(
        Influence.DISTORTS,
        "the disk read less than was served: some of it came from a cache",
        "the site is read once between the dropping of the caches and the load", injected=False),
    Code.STALLED: _suspect(
        Influence.SYMPTOM,
        "for a while no response came at all: the server, its machine or the network stalled",
        "the server is frozen and continues later"),
    Code.SYSCTL: _suspect(
        Influence.DISTORTS,
        "a kernel parameter differs between the sides, and the experiment does not declare it",
        "the guest gets another net.core.somaxconn"),
    Code.FAILED_REQUESTS: _invalid(
        "more than one request in a thousand failed; with fewer the trial is suspect, and it counts",
        "a server that answers 500 in one millisecond of a hundred"),
    Code.WRONG_BODY: _invalid(
        "a response was not the requested file",
        "one file of 150 is changed after the machines were compared"),
    Code.LOST_MAIL: _invalid(
        "when the queue was empty, a message that the mail server had accepted was in no mailbox, or in one twice",
        "one delivered message is removed and another one copied before the count"),
    Code.CAPACITY_UNKNOWN: _invalid(
        "the rate is a share of an unknown capacity: client or link limited its trials, or they failed",
        "three capacity trials in which the load generator used all of its CPU time", injected=False),
    Code.FINGERPRINT: _invalid(
        "binary, configuration, content or worker count differ between the sides",
        "one side has another binary of one server, and another worker count of the other server"),
    Code.TIMED_OUT: _invalid(
        "the load took longer than the time limit of its tool, which is far beyond the expected time",
        "the server stalls until the tool's time limit has passed", injected=False),
    Code.TOOL_FAILED: _invalid("the load tool failed", "the load tool is killed during the load"),
    Code.SERVER_FAILED: _invalid(
        "the server did not start or did not stay up",
        "the server's configuration breaks after the machines were compared"),
    Code.HOST_LOST: _invalid(
        "the machine under test was lost during the trial", "the guest is destroyed during the load"),
}  # fmt: skip

# These findings make a closed-loop measurement client-limited or link-limited. Too few users in flight are the client's
# fault: it pauses between two requests, or some of its users finish before the others.
CLOSED_LOOP_LIMITS = frozenset({Code.CLIENT_SATURATED, Code.LITTLES_LAW, Code.LINK_BOUND})
# In an open loop a client that lags also changes the load, and its own delay is part of the response times.
OPEN_LOOP_LIMITS = CLOSED_LOOP_LIMITS | {Code.CLIENT_STARVED, Code.RATE_NOT_REACHED, Code.CLIENT_LATE}
# vmtoll repeats a trial that ends with one of these: a failure, not a finding about the server. A load that timed out
# is not one: the machine under test was too slow for it.
ACCIDENTS = frozenset({Code.HOST_LOST, Code.TOOL_FAILED, Code.SERVER_FAILED})

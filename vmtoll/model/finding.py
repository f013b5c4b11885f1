"""Findings: why a trial is suspect or invalid. Each code has its meaning and its sentence in FINDINGS."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from vmtoll.model.code import Code as Code  # noqa: PLC0414  (mypy: a re-export)
from vmtoll.model.message import message
from vmtoll.model.payload import Payload, Unsent, payload_of


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

    @property
    def text(self) -> str:
        """What it does to a value, below the heading "effect on its value"."""
        return "is a symptom" if self is Influence.SYMPTOM else f"{self.value} it"


class Role(StrEnum):
    """Purpose of a measurement: the trial's own figures, or the same load from a second tool."""

    PRIMARY = "primary"
    CROSSCHECK = "crosscheck"


@dataclass(frozen=True)
class FindingKind:
    """`severity`: of a trial with this finding; `influence`: on its comparisons; `meaning`: for readers; `fault`: how a
    test provokes the finding, in the lab (`injected`), or in synthetic readings where the lab cannot; `sentence`: what
    the check saw in one trial, with the finding's fields in its blanks; `of_tool`: it names the load tool.
    """

    severity: Validity
    influence: Influence
    meaning: str
    fault: str
    injected: bool
    sentence: str
    of_tool: bool = False


@dataclass(frozen=True)
class Finding:
    """One check that fired. `value` and `limit` are in the check's unit; None for a check without a value."""

    code: Code
    value: float | None = None
    limit: float | None = None
    role: Role | None = None  # the measurement that it limits, None where it concerns the whole trial
    # `tool`, `machine`, `process`: where the check saw it
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
    def text(self) -> str:
        """One line, what was seen where: `metal: background processes used 2.6% CPU (limit 1%), mainly rcu (PID 1)`."""
        kind, is_second = FINDINGS[self.code], self.role is Role.CROSSCHECK
        names = (self.machine, self.tool if kind.of_tool or is_second else "", "cross-check" if is_second else "")
        source = ", ".join(dict.fromkeys(name for name in names if name))
        sentence = UNSENT if isinstance(self.payload, Unsent) else kind.sentence
        values = {
            **(vars(self.payload) if self.payload else {}), "value": self.value, "limit": self.limit,
            "process": (self.process or "").replace("(pid ", "(PID "),
            "detail": self.detail.removeprefix(f"{self.machine}: ").replace(" -> ", " → "),
        }  # fmt: skip
        return f"{source}: {message(sentence, values)}" if source else message(sentence, values)

    @property
    def is_above_limit(self) -> bool:
        """Return whether the value is known to lie above its limit."""
        return self.value is not None and self.limit is not None and self.value > self.limit


def validity(findings: Iterable[Finding]) -> Validity:
    """The worst severity of a trial's findings; VALID without any."""
    severities = {finding.severity for finding in findings}
    return next((v for v in (Validity.INVALID, Validity.SUSPECT) if v in severities), Validity.VALID)


def _suspect(
    influence: Influence, meaning: str, fault: str, sentence: str, *, injected: bool = True, of_tool: bool = False
) -> FindingKind:  # fmt: skip
    return FindingKind(Validity.SUSPECT, influence, meaning, fault, injected, sentence, of_tool)


def _invalid(meaning: str, fault: str, sentence: str, *, injected: bool = True, of_tool: bool = False) -> FindingKind:
    return FindingKind(Validity.INVALID, Influence.EXCLUDES, meaning, fault, injected, sentence, of_tool)


UNSENT = "could not send {value:plural request}: no descriptor or port was left"  # CLIENT_SATURATED, of a ramp


FINDINGS: dict[Code, FindingKind] = {
    Code.CLIENT_SATURATED: _suspect(
        Influence.BOUNDS,
        "the load generator, not the server, was the bottleneck: throughput is a lower bound",
        "a tool that used 86% of the CPU time it could have had",
        "used {value:percent} of the CPU time available to its threads[ (limit {limit:percent})]"
        "[, together with {process}]",
        of_tool=True, injected=False),
    Code.CLIENT_STARVED: _suspect(
        Influence.DISTORTS,
        "other processes on the client took CPU from the load generator: it measured its own waiting",
        "three processes use the client's core alongside the load generator, or only during the cross-check",
        "background processes used {value:,.1f}% CPU[ (limit {limit:number}%)][, mainly {process}]", of_tool=True),
    Code.RATE_NOT_REACHED: _suspect(
        Influence.BOUNDS,
        "the open loop fell behind its rate, for a while or to the end: the load was not the offered one",
        "an open loop is told to send 100,000 requests per second from one core",
        "sent {value:percent} of the planned rate[ of {rate_rps:number}/s][ (limit {limit:percent})]", of_tool=True),
    Code.CLIENT_LATE: _suspect(
        Influence.BOUNDS,
        "the load generator sent late: its own delay is a large part of the tail of the response times",
        "the p99 of the client's delay is a fifth of the p99 of the response times",
        "the load generator sent up to {value:,.0f} µs late at its p99[ (limit {limit:number} µs)]",
        of_tool=True, injected=False),
    Code.START_SPREAD: _suspect(
        Influence.DISTORTS,
        "several clients did not begin together: for a while the load was not the offered one",
        "on one of three clients the load tool begins a second late",
        "the clients started {value:,.0f} ms apart[ (limit {limit:number} ms)]", of_tool=True),
    Code.LITTLES_LAW: _suspect(
        Influence.BOUNDS,
        "users, throughput and response time do not fit together: fewer users than planned were in flight",
        "ten users with eight requests in flight",
        "{value:number} requests in flight on average for {limit:plural user}", of_tool=True, injected=False),
    Code.MEAN_OVER_P99: _suspect(
        Influence.SYMPTOM,
        "the mean lies above the 99th percentile: fewer than one request in a hundred took most of the time",
        "the server is frozen for longer than it works",
        "[{kind:words}: ]mean {value:number} µs, above the p99 of {limit:number} µs", of_tool=True),
    Code.LINK_BOUND: _suspect(
        Influence.BOUNDS,
        "the link was full: equal values are not evidence of low overhead",
        "the client's link is shaped to 50 Mbit/s, below the load",
        "the link carried {value:.1f}% of its line rate[ (limit {limit:number}%)]"),
    Code.RETRANSMITS: _suspect(
        Influence.DISTORTS,
        "TCP sent segments again: the network, not the server, decided some response times",
        "one packet in fifty is dropped on its way to the client",
        "{value:.2f}% of the TCP segments were sent again[ (limit {limit:number}%)]"),
    Code.LISTEN_DROPS: _suspect(
        Influence.SYMPTOM,
        "the kernel turned connections away because the server's listen queue was full",
        "a listen queue of one, a new connection for every request, and a server that pauses",
        "the kernel turned away {value:plural connection}[ ({detail})]"),
    Code.PORTS_EXHAUSTED: _suspect(
        Influence.DISTORTS,
        "the client ran out of local ports toward the server, or nearly so: they were in use or in TIME_WAIT",
        "the client is left 84 local ports, which earlier connections hold in TIME_WAIT",
        "{value:.0f}% of the local ports were in use or in TIME_WAIT"
        "[ (limit {limit:number}%)][: {used} of {available}]"),
    Code.STEAL: _suspect(
        Influence.DISTORTS,
        "the hypervisor took CPU time away from the machine under test",
        "0.6% stolen; an emulated guest's kernel reports no steal",
        "the hypervisor took {value:.2f}% of the CPU time[ (limit {limit:number}%)]", injected=False),
    Code.BACKGROUND_CPU: _suspect(
        Influence.DISTORTS,
        "processes outside the measurement used the CPUs of the machine under test",
        "a neighbour keeps the core of the machine under test busy",
        "background processes used {value:,.1f}% CPU[ (limit {limit:number}%)][, mainly {process}]"),
    Code.HOST_BACKGROUND_CPU: _suspect(
        Influence.DISTORTS,
        "on the KVM host processes outside the measurement used the guest's CPUs",
        "a sibling guest on the same core of the KVM host",
        "background processes used {value:,.1f}%[ of the CPUs of {sut}][ (limit {limit:number}%)][, mainly {process}]"),
    Code.FREQUENCY_SPREAD: _suspect(
        Influence.DISTORTS,
        "the CPUs' clock rate moved during the measurement: turbo, power saving or heat",
        "a clock rate that falls from second to second; virtual machines do not govern theirs",
        "the CPUs' clock rate moved by {value:.1f}%[ (limit {limit:number}%)]", injected=False),
    Code.CLOCK_SOURCE: _suspect(
        Influence.DISTORTS,
        "a machine's clock source changed since the run began: its times are not comparable",
        "the guest is switched to another clock source during the run",
        "the clock source changed[: {detail}]"),
    Code.CLOCK_STEPPED: _suspect(
        Influence.DISTORTS,
        "a machine's clock was set during the measurement",
        "the guest's clock is set forward by five seconds during the load",
        "the clock was set by {value:,.3f} s[ (limit {limit:number} s)]"),
    Code.WARMUP_DRIFT: _suspect(
        Influence.DISTORTS,
        "the first third of the measurement was slower than the rest: the server was not warm yet",
        "no warm-up, a page cache dropped just before, and a slow disk",
        "the first third was {value:.0f}% slower than the rest[ (limit {limit:number}%)]"),
    Code.NOT_COLD: _suspect(
        Influence.DISTORTS,
        "the disk read less than was served: some of it came from a cache",
        "the site is read once between the dropping of the caches and the load",
        "read {value:number} MB from disk; expected at least {limit:number} MB", injected=False),
    Code.STALLED: _suspect(
        Influence.SYMPTOM,
        "for a while no response came at all: the server, its machine or the network stalled",
        "the server is frozen and continues later",
        "no response for {value:.2f} s[ (limit {limit:number} s)]"),
    Code.SYSCTL: _suspect(
        Influence.DISTORTS,
        "a kernel parameter differs between the sides, and the experiment does not declare it",
        "the guest gets another net.core.somaxconn",
        "kernel parameters differ[: {detail}]"),
    Code.FAILED_REQUESTS: _invalid(
        "more than one request in a thousand failed; with fewer the trial is suspect, and it counts",
        "a server that answers 500 in one millisecond of a hundred",
        "{value:plural request} failed[, {successful} of {planned} succeeded][ (limit {limit:number})]", of_tool=True),
    Code.WRONG_BODY: _invalid(
        "a response was not the requested file",
        "one file of 150 is changed after the machines were compared",
        "{value:plural response} had the wrong body[; the first: {detail}]"),
    Code.LOST_MAIL: _invalid(
        "when the queue was empty, a message that the mail server had accepted was in no mailbox, or in one twice",
        "one delivered message is removed and another one copied before the count",
        "{value:plural message} lost or delivered twice"),
    Code.CAPACITY_UNKNOWN: _invalid(
        "the rate is a share of an unknown capacity: client or link limited its trials, or they failed",
        "three capacity trials in which the load generator used all of its CPU time",
        "the rate is a share of an unknown capacity[: {detail}]", injected=False),
    Code.FINGERPRINT: _invalid(
        "binary, configuration, content or worker count differ between the sides",
        "one side has another binary of one server, and another worker count of the other server",
        "[{process}: ]the sides differ[: {detail}]"),
    Code.TIMED_OUT: _invalid(
        "the load took longer than the time limit of its tool, which is far beyond the expected time",
        "the server stalls until the tool's time limit has passed",
        "the load took longer than its time limit[: {detail}]", injected=False),
    Code.TOOL_FAILED: _invalid(
        "the load tool failed",
        "the load tool is killed during the load",
        "the load tool failed[: {detail}]"),
    Code.SERVER_FAILED: _invalid(
        "the server did not start or did not stay up",
        "the server's configuration breaks after the machines were compared",
        "the server failed[: {detail}]"),
    Code.HOST_LOST: _invalid(
        "the machine under test was lost during the trial",
        "the guest is destroyed during the load",
        "the machine was lost[: {detail}]"),
}  # fmt: skip

# These findings make a closed-loop measurement client-limited or link-limited. Too few users in flight are the client's
# fault: it pauses between two requests, or some of its users finish before the others.
CLOSED_LOOP_LIMITS = frozenset({Code.CLIENT_SATURATED, Code.LITTLES_LAW, Code.LINK_BOUND})
# In an open loop a client that lags also changes the load, and its own delay is part of the response times.
OPEN_LOOP_LIMITS = CLOSED_LOOP_LIMITS | {Code.CLIENT_STARVED, Code.RATE_NOT_REACHED, Code.CLIENT_LATE}
# vmtoll repeats a trial that ends with one of these: a failure, not a finding about the server. A load that timed out
# is not one: the machine under test was too slow for it.
ACCIDENTS = frozenset({Code.HOST_LOST, Code.TOOL_FAILED, Code.SERVER_FAILED})

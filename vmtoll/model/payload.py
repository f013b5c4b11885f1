"""What a finding saw beyond its figure and limit: a typed payload, tagged by the finding's code.

A record keeps a payload beside `detail`, the same content as text. Records without payloads have the text alone;
`payload_of` reads it, and nothing else does. A code without a class here has no payload: its finding is complete with
value, limit, tool, machine and process, or its `detail` is the message of a program that failed.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Annotated, Literal, get_args

from pydantic import Field

from vmtoll.model.code import Code


@dataclass(frozen=True)
class Unsent:
    """A ramp's tool had no descriptor or port left for the requests that the finding's value counts."""

    code: Literal[Code.CLIENT_SATURATED] = Code.CLIENT_SATURATED

    @property
    def detail(self) -> str:
        return "unsent"


@dataclass(frozen=True)
class OfferedRate:
    """The rate offered to the client that fell behind."""

    rate_rps: float
    code: Literal[Code.RATE_NOT_REACHED] = Code.RATE_NOT_REACHED

    @property
    def detail(self) -> str:
        return f"{self.rate_rps:.10g}"


@dataclass(frozen=True)
class TimesKind:
    """The times whose mean is above their p99."""

    kind: Literal["service_time", "response_time"]
    code: Literal[Code.MEAN_OVER_P99] = Code.MEAN_OVER_P99

    @property
    def detail(self) -> str:
        return self.kind


@dataclass(frozen=True)
class Ports:
    """Local ports toward the server."""

    used: int
    available: int
    code: Literal[Code.PORTS_EXHAUSTED] = Code.PORTS_EXHAUSTED

    @property
    def detail(self) -> str:
        return f"{self.used}/{self.available}"


@dataclass(frozen=True)
class HostedMachine:
    """The machine under test on whose CPUs its host's processes ran."""

    sut: str
    code: Literal[Code.HOST_BACKGROUND_CPU] = Code.HOST_BACKGROUND_CPU

    @property
    def detail(self) -> str:
        return self.sut


@dataclass(frozen=True)
class ClockSources:
    """The clock source at the beginning of the run, and the one that the gate saw."""

    first: str
    now: str
    code: Literal[Code.CLOCK_SOURCE] = Code.CLOCK_SOURCE

    @property
    def detail(self) -> str:
        return f"{self.first} -> {self.now}"


@dataclass(frozen=True)
class Successes:
    """Requests answered with success, of those planned."""

    successful: int
    planned: int
    code: Literal[Code.FAILED_REQUESTS] = Code.FAILED_REQUESTS

    @property
    def detail(self) -> str:
        return f"{self.successful}/{self.planned}"


@dataclass(frozen=True)
class WrongBody:
    """A description of the first wrong body."""

    first: str
    code: Literal[Code.WRONG_BODY] = Code.WRONG_BODY

    @property
    def detail(self) -> str:
        return self.first


@dataclass(frozen=True)
class Difference:
    """A setting, its value on the reference machine or as configured, and the observed one."""

    name: str
    expected: str
    observed: str

    def __str__(self) -> str:
        return f"{self.name}: {self.expected} -> {self.observed}"


@dataclass(frozen=True)
class Sysctls:
    """Kernel parameters that differ from the reference machine's."""

    differences: tuple[Difference, ...]
    code: Literal[Code.SYSCTL] = Code.SYSCTL

    @property
    def detail(self) -> str:
        return "; ".join(map(str, self.differences))


@dataclass(frozen=True)
class Fingerprint:
    """`keys` of the server's fingerprint that differ, or `differences` of its TLS parameters or of the content."""

    keys: tuple[str, ...] = ()
    differences: tuple[Difference, ...] = ()
    code: Literal[Code.FINGERPRINT] = Code.FINGERPRINT

    @property
    def detail(self) -> str:
        return ", ".join(self.keys) or "; ".join(map(str, self.differences))


Payload = Annotated[
    Unsent
    | OfferedRate
    | TimesKind
    | Ports
    | HostedMachine
    | ClockSources
    | Successes
    | WrongBody
    | Sysctls
    | Fingerprint,
    Field(discriminator="code"),
]


# Code → the class of its payload.
PAYLOADS: dict[Code, type] = {kind.code: kind for kind in get_args(get_args(Payload)[0])}


def fields_of(code: Code) -> list[str]:
    """Names of the fields of a code's payload, without the tag; none for a code without a payload."""
    return [field.name for field in fields(PAYLOADS[code]) if field.name != "code"] if code in PAYLOADS else []


def payload_of(code: Code, detail: str) -> Payload | None:
    """The payload that a finding's text stands for; None without one, or if the payload would give another text."""
    read = _READERS.get(code)
    if read is None or not detail:
        return None
    try:
        payload = read(detail)
    except ValueError:
        return None
    return payload if payload.detail == detail else None


def _pair(detail: str) -> tuple[int, int]:
    first, _, second = detail.partition("/")
    return int(first), int(second)


def _times_kind(detail: str) -> TimesKind:
    if detail == "service_time":
        return TimesKind("service_time")
    return TimesKind("response_time")


def _clock_sources(detail: str) -> ClockSources:
    first, _, now = detail.partition(" -> ")
    return ClockSources(first, now)


def _differences(detail: str) -> tuple[Difference, ...]:
    differences = []
    for text in detail.split("; "):
        name, _, values = text.partition(": ")
        expected, _, observed = values.partition(" -> ")
        differences.append(Difference(name, expected, observed))
    return tuple(differences)


def _fingerprint(detail: str) -> Fingerprint:
    if " -> " in detail:
        return Fingerprint(differences=_differences(detail))
    return Fingerprint(keys=tuple(detail.split(", ")))


_READERS: dict[Code, Callable[[str], Payload]] = {
    Code.CLIENT_SATURATED: lambda _: Unsent(),
    Code.RATE_NOT_REACHED: lambda detail: OfferedRate(float(detail)),
    Code.MEAN_OVER_P99: _times_kind,
    Code.PORTS_EXHAUSTED: lambda detail: Ports(*_pair(detail)),
    Code.HOST_BACKGROUND_CPU: HostedMachine,
    Code.CLOCK_SOURCE: _clock_sources,
    Code.FAILED_REQUESTS: lambda detail: Successes(*_pair(detail)),
    Code.WRONG_BODY: WrongBody,
    Code.SYSCTL: lambda detail: Sysctls(_differences(detail)),
    Code.FINGERPRINT: _fingerprint,
}

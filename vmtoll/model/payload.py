"""What a finding saw beyond its figure and limit: a typed payload, tagged by the finding's code.

A record keeps a payload beside `detail`, the same content as text. Records without payloads have the text alone;
`payload_of` reads it, and nothing else does. A code without a class here has no payload: its finding is complete with
value, limit, tool, machine and process, or its `detail` is the message of a program that failed.
"""

import re
from dataclasses import dataclass, fields
from functools import cache
from string import Formatter
from typing import Annotated, Any, ClassVar, Literal, Self, get_args

from pydantic import Field, TypeAdapter

from vmtoll.model.code import Code


@dataclass(frozen=True)
class _Written:
    """A payload whose text is its `form`, with its fields in the blanks."""

    form: ClassVar[str]

    @property
    def detail(self) -> str:
        """The payload as text."""
        return self.form.format(**vars(self))

    @classmethod
    def read(cls, detail: str) -> Self:
        """The payload of a text. Raises ValueError if it does not have the form."""
        parts = Formatter().parse(cls.form)
        form = "".join(re.escape(text) + (f"(?P<{name}>.*?)" if name else "") for text, name, _, _ in parts)
        match = re.fullmatch(form, detail, re.DOTALL)
        if match is None:
            raise ValueError(f"{detail!r} is not of the form {cls.form!r}")
        kind: Any = cls
        payload: Self = _adapter(kind).validate_python(match.groupdict())
        return payload


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


@dataclass(frozen=True)
class Unsent(_Written):
    """A ramp's tool had no descriptor or port left for the requests that the finding's value counts."""

    form = "unsent"
    code: Literal[Code.CLIENT_SATURATED] = Code.CLIENT_SATURATED


@dataclass(frozen=True)
class OfferedRate(_Written):
    """The rate offered to the client that fell behind."""

    form = "{rate_rps:.10g}"
    rate_rps: float
    code: Literal[Code.RATE_NOT_REACHED] = Code.RATE_NOT_REACHED


@dataclass(frozen=True)
class TimesKind(_Written):
    """The times whose mean is above their p99."""

    form = "{kind}"
    kind: Literal["service_time", "response_time"]
    code: Literal[Code.MEAN_OVER_P99] = Code.MEAN_OVER_P99


@dataclass(frozen=True)
class Ports(_Written):
    """Local ports toward the server."""

    form = "{used}/{available}"
    used: int
    available: int
    code: Literal[Code.PORTS_EXHAUSTED] = Code.PORTS_EXHAUSTED


@dataclass(frozen=True)
class HostedMachine(_Written):
    """The machine under test on whose CPUs its host's processes ran."""

    form = "{sut}"
    sut: str
    code: Literal[Code.HOST_BACKGROUND_CPU] = Code.HOST_BACKGROUND_CPU


@dataclass(frozen=True)
class ClockSources(_Written):
    """The clock source at the beginning of the run, and the one that the check saw."""

    form = "{first} -> {now}"
    first: str
    now: str
    code: Literal[Code.CLOCK_SOURCE] = Code.CLOCK_SOURCE


@dataclass(frozen=True)
class Successes(_Written):
    """Requests answered with success, of those planned."""

    form = "{successful}/{planned}"
    successful: int
    planned: int
    code: Literal[Code.FAILED_REQUESTS] = Code.FAILED_REQUESTS


@dataclass(frozen=True)
class WrongBody(_Written):
    """A description of the first wrong body."""

    form = "{first}"
    first: str
    code: Literal[Code.WRONG_BODY] = Code.WRONG_BODY


@dataclass(frozen=True)
class Difference(_Written):
    """A setting, its value on the reference machine or as configured, and the observed one."""

    form = "{name}: {expected} -> {observed}"
    name: str
    expected: str
    observed: str


def _differences_text(differences: tuple[Difference, ...]) -> str:
    return "; ".join(each.detail for each in differences)


def _differences(detail: str) -> tuple[Difference, ...]:
    return tuple(map(Difference.read, detail.split("; ")))


@dataclass(frozen=True)
class Sysctls(_Written):
    """Kernel parameters that differ from the reference machine's."""

    differences: tuple[Difference, ...]
    code: Literal[Code.SYSCTL] = Code.SYSCTL

    @property
    def detail(self) -> str:
        return _differences_text(self.differences)

    @classmethod
    def read(cls, detail: str) -> Self:
        return cls(_differences(detail))


@dataclass(frozen=True)
class Fingerprint(_Written):
    """`keys` of the server's fingerprint that differ, or `differences` of its TLS parameters or of the content."""

    keys: tuple[str, ...] = ()
    differences: tuple[Difference, ...] = ()
    code: Literal[Code.FINGERPRINT] = Code.FINGERPRINT

    @property
    def detail(self) -> str:
        return ", ".join(self.keys) or _differences_text(self.differences)

    @classmethod
    def read(cls, detail: str) -> Self:
        return cls(differences=_differences(detail)) if " -> " in detail else cls(tuple(detail.split(", ")))


Payload = Annotated[
    Unsent | OfferedRate | TimesKind | Ports | HostedMachine | ClockSources | Successes | WrongBody | Sysctls
    | Fingerprint,
    Field(discriminator="code"),
]  # fmt: skip
# Code → the class of its payload.
PAYLOADS: dict[Code, type[_Written]] = {kind.code: kind for kind in get_args(get_args(Payload)[0])}


def fields_of(code: Code) -> list[str]:
    """Names of the fields of a code's payload, without the tag; none for a code without a payload."""
    return [field.name for field in fields(PAYLOADS[code]) if field.name != "code"] if code in PAYLOADS else []


def payload_of(code: Code, detail: str) -> Payload | None:
    """The payload that a finding's text stands for; None without one, or if the payload would give another text."""
    if code not in PAYLOADS or not detail:
        return None
    try:
        payload: Any = PAYLOADS[code].read(detail)
    except ValueError:
        return None
    return payload if payload.detail == detail else None

"""Workloads: what is sent, and how. One model for each kind; `offers` are the loads it asks for."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, ValidationError, model_validator

from workloads import tools
from workloads.runner.documents import Model, check_names, mistake, read
from workloads.runner.errors import ExperimentError
from workloads.runner.registry import Registry, unknown
from workloads.tools import Adapter


@dataclass(frozen=True)
class Offer:
    """One offered load: `closed:10` users, `rate:2000` requests per second, `share:0.7` of the capacity."""

    kind: Literal["closed", "rate", "share"]
    value: float

    def __str__(self) -> str:
        return f"{self.kind}:{self.value:.10g}"


class Capacity(Model):
    """The closed loop whose throughput is the whole that a share is taken of."""

    tool: str
    users: int = Field(gt=0, le=1000)


class _Workload(Model):
    """`client: localhost`: the tool runs on the machine under test. `cores`: the server may use only so many there."""

    name: str
    description: str
    site: str
    tool: str
    twin: str | None = None
    page: str | None = None  # the only file of the site that is asked for; None: all of them, in the site's mix
    keep_alive: bool
    client: Literal["remote", "localhost"] = "remote"
    cores: int | None = Field(default=None, gt=0)

    @property
    def tools(self) -> list[str]:
        """Every load tool that this workload needs where its client is."""
        return [self.tool, *([self.twin] if self.twin else [])]


class ClosedWorkload(_Workload):
    """`users` simulated users, each sending its next request when it has the answer to its last.

    `requests`: the published number, sent at the full scale; at any other, and without it, the duration decides.
    """

    kind: Literal["closed"] = "closed"
    users: int = Field(gt=0, le=1000)
    requests: int | None = Field(default=None, gt=0)

    @model_validator(mode="after")
    def _equal_shares(self) -> "ClosedWorkload":
        if self.requests and self.requests % self.users:
            raise ValueError(f"requests: {self.requests} is no multiple of {self.users}, the users who share them")
        return self

    @property
    def offers(self) -> list[Offer]:
        return [Offer("closed", self.users)]

    def count(self, scale: str | None) -> int | None:
        """How many requests to send at this scale; None where the duration decides."""
        return self.requests if scale == "full" else None


class _OpenWorkload(_Workload):
    deadline_ms: float = Field(gt=0)
    capacity: Capacity | None = None

    @property
    def tools(self) -> list[str]:
        return [*super().tools, *([self.capacity.tool] if self.capacity else [])]


class RateWorkload(_OpenWorkload):
    """Requests at a constant rate, whether or not the server keeps up."""

    kind: Literal["rate"]
    rate_rps: float | None = Field(default=None, gt=0)
    share: float | None = Field(default=None, gt=0, le=2)

    @model_validator(mode="after")
    def _one_rate(self) -> "RateWorkload":
        _one_of("rate_rps", self.rate_rps, "share", self.share, self.capacity)
        return self

    @property
    def offers(self) -> list[Offer]:
        return [Offer("share", self.share) if self.share else Offer("rate", self.rate_rps or 0)]


class _LadderWorkload(_OpenWorkload):
    rates_rps: list[float] | None = Field(default=None, min_length=2)
    shares: list[float] | None = Field(default=None, min_length=2)

    @model_validator(mode="after")
    def _one_ladder(self) -> Self:
        _one_of("rates_rps", self.rates_rps, "shares", self.shares, self.capacity)
        rungs = self.rates_rps or self.shares or []
        if rungs[0] <= 0 or any(low >= high for low, high in itertools.pairwise(rungs)):
            raise ValueError(f"{'shares' if self.shares else 'rates_rps'}: must be above 0 and rise from rung to rung")
        return self

    @property
    def offers(self) -> list[Offer]:
        if self.shares:
            return [Offer("share", share) for share in self.shares]
        return [Offer("rate", rate) for rate in self.rates_rps or []]


class SweepWorkload(_LadderWorkload):
    """A ladder of constant rates; each rung is a scenario of its own."""

    kind: Literal["sweep"]


class RampWorkload(_LadderWorkload):
    """The same ladder for a tool that only counts what came within the deadline: no response times, no tails."""

    kind: Literal["ramp"]

    @model_validator(mode="after")
    def _no_twin(self) -> Self:
        if self.twin:
            raise ValueError("twin: a ramp has none")
        return self


class MailWorkload(_Workload):
    """`users` at once send messages, or read them, each in a session of its own; a message is as large as `page`."""

    kind: Literal["mail"]
    protocol: Literal["smtp", "submission", "imap", "pop3"]
    users: int = Field(gt=0, le=10)  # Dovecot lets ten sessions of one user in, from one address
    page: str
    keep_alive: Literal[False] = False

    @model_validator(mode="after")
    def _no_twin(self) -> Self:
        if self.twin:
            raise ValueError("twin: a mail workload has none")
        return self

    @property
    def offers(self) -> list[Offer]:
        return [Offer("closed", self.users)]

    @property
    def sends(self) -> bool:
        """Whether messages come in; else mailboxes are read."""
        return self.protocol in {"smtp", "submission"}


OpenWorkload = RateWorkload | SweepWorkload | RampWorkload
Workload = ClosedWorkload | OpenWorkload | MailWorkload
_KINDS: Mapping[str, type[Workload]] = {
    "closed": ClosedWorkload,
    "rate": RateWorkload,
    "sweep": SweepWorkload,
    "ramp": RampWorkload,
    "mail": MailWorkload,
}


def _one_of(rate_key: str, rate: object, share_key: str, share: object, capacity: Capacity | None) -> None:
    if (rate is None) == (share is None):
        raise ValueError(f"give either {rate_key} or {share_key}")
    if (share is None) != (capacity is None):
        raise ValueError(f"capacity: {share_key} needs it ({{tool: h2load, users: 10}}), {rate_key} has no use for it")


def load_workload(path: Path, registry: Registry) -> Workload:
    """Read and check a workload. Raises ExperimentError."""
    data = read(path)
    kind = data.get("kind", "closed")
    if kind not in _KINDS:
        raise ExperimentError(f"{path}: kind: {unknown('kind', kind, list(_KINDS))}")
    model = _KINDS[kind]
    try:
        workload = model(name=path.stem, **data)
    except ValidationError as error:
        raise mistake(path, model, error) from None
    check_names(path, "site", "site", [workload.site], registry.sites())
    for key, name in (("tool", workload.tool), ("twin", workload.twin)):
        if name is not None:
            _check_tool(path, key, name, workload, kind, registry)
    if isinstance(workload, OpenWorkload) and workload.capacity:
        _check_tool(path, "capacity.tool", workload.capacity.tool, workload, "closed", registry)
    return workload


def _check_tool(path: Path, key: str, name: str, workload: Workload, kind: str, registry: Registry) -> None:
    """The tool can do a load of this kind, in the way that the workload wants it."""
    check_names(path, key, "tool", [name], registry.tools())
    adapters: dict[str, Adapter] = {n: tools.get(n, registry.tools_folder()) for n in registry.tools()}
    adapter = adapters[name]
    if isinstance(workload, MailWorkload):
        if workload.protocol not in tools.mail_protocols(adapter):
            able = ", ".join(n for n, a in adapters.items() if workload.protocol in tools.mail_protocols(a))
            raise ExperimentError(f"{path}: {key}: {name} does not speak {workload.protocol}; allowed: {able}")
        return
    if tools.mail_protocols(adapter):
        able = ", ".join(n for n, a in adapters.items() if not tools.mail_protocols(a))
        raise ExperimentError(f"{path}: {key}: {name} is for `kind: mail`; allowed: {able}")
    if kind == "ramp" and not adapter.OPEN_LOOP:
        able = ", ".join(n for n, a in adapters.items() if a.OPEN_LOOP)
        raise ExperimentError(f"{path}: {key}: {name} knows users only, not rates; allowed: {able}")
    if kind in {"rate", "sweep"} and adapter.REFUSED_FOR_TAILS:
        honest = ", ".join(n for n, a in adapters.items() if not a.REFUSED_FOR_TAILS)
        raise ExperimentError(
            f"{path}: {key}: {name} is refused for tails: {adapter.REFUSED_FOR_TAILS}; allowed: {honest}"
        )
    if kind == "closed" and not adapter.CLOSED_LOOP:
        able = ", ".join(n for n, a in adapters.items() if a.CLOSED_LOOP)
        raise ExperimentError(f"{path}: {key}: {name} knows rates only, not users; allowed: {able}")
    if not workload.keep_alive and not adapter.CAN_CLOSE:
        raise ExperimentError(f"{path}: {key}: {name} cannot do keep_alive: false")
    if adapter.ONE_PAGE and workload.page is None:
        raise ExperimentError(f"{path}: page: {name} asks for one page only; name a file of the site {workload.site}")


__all__ = [
    "Capacity",
    "ClosedWorkload",
    "MailWorkload",
    "Offer",
    "OpenWorkload",
    "RampWorkload",
    "RateWorkload",
    "SweepWorkload",
    "Workload",
]

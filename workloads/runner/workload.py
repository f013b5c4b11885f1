"""Workloads: what is sent, and how. One model for each kind; `offers` are the loads it asks for."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, Self

from pydantic import Field, model_validator

from workloads.runner.beside import ALONE, Beside, Place
from workloads.runner.documents import Model


@dataclass(frozen=True)
class Offer:
    """One offered load: `closed:10` users, `rate:2000` requests per second, `share:0.7` of the capacity.

    `search:50` is none yet: a search for 50 ms, which makes it a rate or a share when the trial is due.
    """

    kind: Literal["closed", "rate", "share", "search"]
    value: float
    place: Place = ALONE

    def __str__(self) -> str:
        return " ".join([f"{self.kind}:{self.value:.10g}", *self.place.words])


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

    @property
    def offers(self) -> list[Offer]:
        """The loads that it asks for on one machine, beside nothing."""
        raise NotImplementedError

    @property
    def scenarios(self) -> list[Offer]:
        """The same in every place, each of which is a scenario."""
        places = self.places if isinstance(self, Beside) else [ALONE]
        return [replace(offer, place=place) for place in places for offer in self.offers]


class ClosedWorkload(Beside, _Workload):
    """`users` simulated users, each sending its next request when it has the answer to its last.

    `requests`: the published number, sent at the full scale; at any other, and without it, the duration decides.
    """

    kind: Literal["closed"] = "closed"
    users: int = Field(gt=0, le=1000)
    requests: int | None = Field(default=None, gt=0)
    capacity: Capacity | None = None

    @model_validator(mode="after")
    def _equal_shares(self) -> "ClosedWorkload":
        if self.takes_shares != (self.capacity is not None):
            raise ValueError("capacity: neighbour.share needs it ({tool: h2load, users: 10}), nothing else does")
        if self.requests and self.requests % self.users:
            raise ValueError(f"requests: {self.requests} is no multiple of {self.users}, the users who share them")
        return self

    @property
    def offers(self) -> list[Offer]:
        return [Offer("closed", self.users)]

    @property
    def tools(self) -> list[str]:
        return [*super().tools, *self.more_tools, *([self.capacity.tool] if self.capacity else [])]

    def count(self, scale: str | None) -> int | None:
        """How many requests to send at this scale; None where the duration decides."""
        return self.requests if scale == "full" else None


class _OpenWorkload(_Workload):
    deadline_ms: float = Field(gt=0)
    capacity: Capacity | None = None

    @property
    def tools(self) -> list[str]:
        more = self.more_tools if isinstance(self, Beside) else []
        return [*super().tools, *more, *([self.capacity.tool] if self.capacity else [])]


class RateWorkload(Beside, _OpenWorkload):
    """Requests at a constant rate, whether or not the server keeps up."""

    kind: Literal["rate"]
    rate_rps: float | None = Field(default=None, gt=0)
    share: float | None = Field(default=None, gt=0, le=2)

    @model_validator(mode="after")
    def _one_rate(self) -> "RateWorkload":
        _one_of(self, "rate_rps", "share")
        return self

    @property
    def offers(self) -> list[Offer]:
        return [Offer("share", self.share) if self.share else Offer("rate", self.rate_rps or 0)]


class _LadderWorkload(_OpenWorkload):
    rates_rps: list[float] | None = Field(default=None, min_length=2)
    shares: list[float] | None = Field(default=None, min_length=2)

    @model_validator(mode="after")
    def _one_ladder(self) -> Self:
        _one_of(self, "rates_rps", "shares")
        rungs = self.rates_rps or self.shares or []
        if rungs[0] <= 0 or any(low >= high for low, high in itertools.pairwise(rungs)):
            raise ValueError(f"{'shares' if self.shares else 'rates_rps'}: must be above 0 and rise from rung to rung")
        return self

    @property
    def offers(self) -> list[Offer]:
        if self.shares:
            return [Offer("share", share) for share in self.shares]
        return [Offer("rate", rate) for rate in self.rates_rps or []]


class SweepWorkload(Beside, _LadderWorkload):
    """A ladder of constant rates; each rung is a scenario of its own."""

    kind: Literal["sweep"]


class SearchWorkload(_OpenWorkload):
    """The highest rate at which 99% of the requests are answered within the deadline, and so many with success.

    A scenario stands once in a block; which rate it offers there follows from the blocks before (search.py).
    """

    kind: Literal["search"]
    between_rps: list[float] | None = Field(default=None, min_length=2, max_length=2)
    between_shares: list[float] | None = Field(default=None, min_length=2, max_length=2)
    availability_pct: float = Field(default=99.9, gt=0, lt=100)
    resolution_pct: float = Field(default=10.0, ge=1, le=100)

    @model_validator(mode="after")
    def _one_bracket(self) -> Self:
        _one_of(self, "between_rps", "between_shares")
        low, high = self.between
        if not 0 < low < high:
            raise ValueError(f"{'between_rps' if self.between_rps else 'between_shares'}: must be above 0 and rise")
        return self

    @property
    def between(self) -> tuple[float, float]:
        """The lowest and the highest load that is tried."""
        low, high = self.between_rps or self.between_shares or []
        return low, high

    @property
    def offers(self) -> list[Offer]:
        return [Offer("search", self.deadline_ms)]


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


OpenWorkload = RateWorkload | SweepWorkload | SearchWorkload | RampWorkload
Workload = ClosedWorkload | OpenWorkload | MailWorkload
KINDS: Mapping[str, type[Workload]] = {
    "closed": ClosedWorkload,
    "rate": RateWorkload,
    "sweep": SweepWorkload,
    "search": SearchWorkload,
    "ramp": RampWorkload,
    "mail": MailWorkload,
}


def _one_of(workload: _OpenWorkload, rate_key: str, share_key: str) -> None:
    rate, share = getattr(workload, rate_key), getattr(workload, share_key)
    if (rate is None) == (share is None):
        raise ValueError(f"give either {rate_key} or {share_key}")
    takes_shares = share is not None or (isinstance(workload, Beside) and workload.takes_shares)
    if takes_shares != (workload.capacity is not None):
        raise ValueError(f"capacity: {share_key} needs it ({{tool: h2load, users: 10}}), {rate_key} has no use for it")


__all__ = [
    "KINDS",
    "Capacity",
    "ClosedWorkload",
    "MailWorkload",
    "Offer",
    "OpenWorkload",
    "RampWorkload",
    "RateWorkload",
    "SearchWorkload",
    "SweepWorkload",
    "Workload",
]

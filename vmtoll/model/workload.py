"""Workloads: what is sent, and how. One model for each kind; `loads` are the scenarios it asks for."""

import itertools
from collections.abc import Sequence
from typing import Annotated, Literal, Self, TypeVar

from pydantic import Field, model_validator

from vmtoll.model.document import Document
from vmtoll.model.load import Load, LoadKind, NeighbourLoad
from vmtoll.model.transport import HttpVersion, Transport
from vmtoll.model.trial import ClientPlace

Value = TypeVar("Value", int, float, str)
MOST_USERS = 1000
# On one connection, of HTTP/2; every server allows at least as many.
MOST_STREAMS = 100
MOST_BODY_BYTES = 16 * 2**20  # what the servers of uploads accept
Arrivals = Literal["poisson", "constant"]


def listed(value: Value | list[Value]) -> Sequence[Value]:
    """One value or several, as a list."""
    return value if isinstance(value, list) else [value]


def rises(values: Sequence[float]) -> bool:
    """Whether there is a value, and each is above the one before it."""
    return bool(values) and all(low < high for low, high in itertools.pairwise(values))


class Capacity(Document):
    """The closed loop whose throughput is the whole that a share is taken of."""

    tool: str
    users: int = Field(gt=0, le=MOST_USERS)
    streams: int = Field(default=1, gt=0, le=MOST_STREAMS)


class Neighbour(Document):
    """Background load on one further guest of the environment, at a constant rate; a list makes a scenario of each."""

    tool: str = "vegeta"
    rate_rps: float | list[float] | None = None
    share: float | list[float] | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if (self.rate_rps is None) == (self.share is None):
            raise ValueError("give either rate_rps or share")
        values = [load.value for load in self.loads]
        if not rises(values) or values[0] < 0:
            raise ValueError("its loads must be 0 or more and rise")
        return self

    @property
    def loads(self) -> list[NeighbourLoad]:
        """One for each scenario."""
        if self.rate_rps is not None:
            return [NeighbourLoad(LoadKind.RATE, value) for value in listed(self.rate_rps)]
        return [NeighbourLoad(LoadKind.SHARE, value) for value in listed(self.share or 0.0)]


class _Workload(Document):
    """`client: localhost`: the tool runs on the machine under test. `cores`: the server may use only so many there.

    `method: POST`: each request sends a body of `body_bytes` to `page`, and the server reads it before it answers.
    """

    name: str
    description: str
    site: str
    tool: str
    crosscheck: str | None = None
    page: str | None = None  # the only file of the site that is asked for; None: all of them, in the site's mix
    keep_alive: bool
    client: Literal["remote", "localhost"] = "remote"
    cores: int | None = Field(default=None, gt=0)
    method: Literal["GET", "POST"] = "GET"
    body_bytes: int | None = Field(default=None, gt=0, le=MOST_BODY_BYTES)

    @model_validator(mode="after")
    def _bodies_are_posted(self) -> Self:
        if (self.method == "POST") != (self.body_bytes is not None):
            raise ValueError("body_bytes: method POST needs it, method GET sends no body")
        if self.method == "POST" and self.page is None:
            raise ValueError("page: method POST needs it: the page that answers the uploads")
        return self

    @property
    def client_place(self) -> ClientPlace:
        return ClientPlace(self.client)

    @property
    def transport(self) -> Transport:
        """How it reaches its server."""
        return Transport()

    @property
    def tools(self) -> list[str]:
        """Every load tool that this workload needs where its client is."""
        return [self.tool, *([self.crosscheck] if self.crosscheck else [])]

    @property
    def offers(self) -> list[Load]:
        """The loads that it asks for on one machine without a neighbour."""
        raise NotImplementedError

    @property
    def loads(self) -> list[Load]:
        """Every load that it asks for; each is a scenario."""
        return self.offers


class _WebWorkload(_Workload):
    """Requests for pages. `tls`: over TLS 1.3. `tls_resumption`: each new connection resumes an earlier session."""

    tls: bool = False
    tls_resumption: bool = False
    http: HttpVersion = "1.1"

    @model_validator(mode="after")
    def _transport_is_sound(self) -> Self:
        if self.http == "2" and not self.tls:
            raise ValueError("http: '2' needs `tls: true`, as in browsers")
        if self.http == "2" and not self.keep_alive:
            raise ValueError("http: '2' needs `keep_alive: true`: its requests share a connection")
        if self.tls_resumption and (not self.tls or self.keep_alive):
            raise ValueError("tls_resumption: needs `tls: true` and `keep_alive: false`, new connections that resume")
        return self

    @property
    def transport(self) -> Transport:
        return Transport(self.tls, self.http, self.tls_resumption)


class SharedHostWorkload(_WebWorkload):
    """A workload that may be spread over guests of one host, or meet a neighbour or cold caches.

    `guests`: the load is spread over so many guests of one KVM host; a list makes a scenario of each. `cold`: nothing
    that is asked for is in a page cache, and each file is asked for once.
    """

    guests: int | list[int] | None = None
    neighbour: Neighbour | None = None
    cold: bool = False

    @model_validator(mode="after")
    def _guests_rise(self) -> Self:
        if not rises(self._counts) or self._counts[0] < 1:
            raise ValueError("guests: must be 1 or more and rise")
        return self

    @property
    def _counts(self) -> Sequence[int]:
        return listed(1 if self.guests is None else self.guests)

    @property
    def loads(self) -> list[Load]:
        counts: Sequence[int | None] = [None] if self.guests is None else self._counts
        neighbours: Sequence[NeighbourLoad | None] = self.neighbour.loads if self.neighbour else [None]
        return [
            Load(offer.kind, offer.value, count, neighbour)
            for count in counts
            for neighbour in neighbours
            for offer in self.offers
        ]

    @property
    def guests_needed(self) -> int:
        """How many guests of one environment must stand on one host, the neighbour included."""
        return max(self._counts) + (self.neighbour is not None)

    @property
    def spread(self) -> bool:
        """Whether any scenario sends to several machines."""
        return max(self._counts) > 1

    @property
    def neighbour_takes_shares(self) -> bool:
        return self.neighbour is not None and self.neighbour.share is not None

    @property
    def tools(self) -> list[str]:
        return [*super().tools, *([self.neighbour.tool] if self.neighbour else [])]


class ClosedWorkload(SharedHostWorkload):
    """`users` simulated users, each sending its next request when it has the answer to its last; a list makes a
    scenario of each number.

    `requests`: the published number, sent at the full scale; at any other, and without it, the duration decides.
    `streams`: how many requests each user has in flight on its connection, with HTTP/2.
    """

    kind: Literal["closed"] = "closed"
    users: int | list[int]
    streams: int = Field(default=1, gt=0, le=MOST_STREAMS)
    requests: int | None = Field(default=None, gt=0)
    capacity: Capacity | None = None

    @model_validator(mode="after")
    def _equal_shares(self) -> Self:
        users = listed(self.users)
        if not rises(users) or users[0] < 1 or users[-1] > MOST_USERS:
            raise ValueError(f"users: must lie between 1 and {MOST_USERS} and rise")
        if self.neighbour_takes_shares != (self.capacity is not None):
            raise ValueError("capacity: neighbour.share needs it ({tool: h2load, users: 10}), nothing else does")
        _check_streams("streams", self.streams, self.http)
        for count in users:
            if self.requests and self.requests % count:
                raise ValueError(f"requests: {self.requests} is not a multiple of {count}, the users who share them")
        return self

    @property
    def offers(self) -> list[Load]:
        return [Load(LoadKind.CLOSED, count) for count in listed(self.users)]

    @property
    def tools(self) -> list[str]:
        return [*super().tools, *([self.capacity.tool] if self.capacity else [])]

    def count(self, scale: str | None) -> int | None:
        """How many requests to send at this scale; None where the duration decides."""
        return self.requests if scale == "full" else None


class _OpenWorkload(_WebWorkload):
    """`arrivals`: at even intervals (constant) or at random, as many users who do not know of each other send them."""

    deadline_ms: float = Field(gt=0)
    arrivals: Arrivals = "constant"
    capacity: Capacity | None = None

    @model_validator(mode="after")
    def _capacity_streams(self) -> Self:
        if self.capacity:
            _check_streams("capacity.streams", self.capacity.streams, self.http)
        return self

    @property
    def tools(self) -> list[str]:
        return [*super().tools, *([self.capacity.tool] if self.capacity else [])]


class RateWorkload(_OpenWorkload, SharedHostWorkload):
    """Requests at one rate, whether or not the server keeps up."""

    kind: Literal["rate"]
    rate_rps: float | None = Field(default=None, gt=0)
    share: float | None = Field(default=None, gt=0, le=2)

    @model_validator(mode="after")
    def _one_rate(self) -> Self:
        _one_of(self, "rate_rps", "share")
        return self

    @property
    def offers(self) -> list[Load]:
        return [Load(LoadKind.SHARE, self.share) if self.share else Load(LoadKind.RATE, self.rate_rps or 0)]


class _SteppedWorkload(_OpenWorkload):
    rates_rps: list[float] | None = Field(default=None, min_length=2)
    shares: list[float] | None = Field(default=None, min_length=2)

    @model_validator(mode="after")
    def _one_scale(self) -> Self:
        _one_of(self, "rates_rps", "shares")
        steps = self.rates_rps or self.shares or []
        if steps[0] <= 0 or not rises(steps):
            raise ValueError(f"{'shares' if self.shares else 'rates_rps'}: must be above 0 and rise from step to step")
        return self

    @property
    def offers(self) -> list[Load]:
        if self.shares:
            return [Load(LoadKind.SHARE, share) for share in self.shares]
        return [Load(LoadKind.RATE, rate) for rate in self.rates_rps or []]


class SweepWorkload(_SteppedWorkload, SharedHostWorkload):
    """A sweep of rates; each step is a scenario of its own."""

    kind: Literal["sweep"]


class SearchWorkload(_OpenWorkload):
    """The highest rate at which 99% of the requests are answered within the deadline, and so many with success.

    A scenario stands once in a block; which rate it offers there follows from the blocks before.
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
    def offers(self) -> list[Load]:
        return [Load(LoadKind.SEARCH, self.deadline_ms)]


class RampWorkload(_SteppedWorkload):
    """The same sweep for a tool that only counts what came within the deadline: no response times, no tails."""

    kind: Literal["ramp"]

    @model_validator(mode="after")
    def _no_crosscheck(self) -> Self:
        if self.crosscheck:
            raise ValueError("crosscheck: a ramp has none")
        return self


class MailWorkload(_Workload):
    """`users` at once send messages, or read them, each in a session of its own; a message is as large as `page`."""

    kind: Literal["mail"]
    protocol: Literal["smtp", "submission", "imap", "pop3"]
    users: int = Field(gt=0, le=10)  # Dovecot accepts ten sessions of one user from one address
    page: str
    keep_alive: Literal[False] = False
    method: Literal["GET"] = "GET"

    @model_validator(mode="after")
    def _no_crosscheck(self) -> Self:
        if self.crosscheck:
            raise ValueError("crosscheck: a mail workload has none")
        return self

    @property
    def offers(self) -> list[Load]:
        return [Load(LoadKind.CLOSED, self.users)]

    @property
    def sends(self) -> bool:
        """Whether messages come in; else mailboxes are read."""
        return self.protocol in {"smtp", "submission"}


OpenWorkload = RateWorkload | SweepWorkload | SearchWorkload | RampWorkload
Workload = Annotated[
    ClosedWorkload | RateWorkload | SweepWorkload | SearchWorkload | RampWorkload | MailWorkload,
    Field(discriminator="kind"),
]


def _check_streams(key: str, streams: int, http: HttpVersion) -> None:
    if streams > 1 and http != "2":
        raise ValueError(f"{key}: {streams} need `http: '2'`; HTTP/1.1 has one request at a time on a connection")


def _one_of(workload: _OpenWorkload, rate_key: str, share_key: str) -> None:
    rate, share = getattr(workload, rate_key), getattr(workload, share_key)
    if (rate is None) == (share is None):
        raise ValueError(f"give either {rate_key} or {share_key}")
    takes_shares = share is not None or (isinstance(workload, SharedHostWorkload) and workload.neighbour_takes_shares)
    if takes_shares != (workload.capacity is not None):
        raise ValueError(f"capacity: {share_key} needs it ({{tool: h2load, users: 10}}), {rate_key} has no use for it")

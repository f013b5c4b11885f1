"""Workloads: what the clients send, and how. One model for each kind; each of its `loads` is a scenario."""

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
# On one HTTP/2 connection; every server allows at least this many.
MOST_STREAMS = 100
MOST_BODY_BYTES = 16 * 2**20  # what the servers of uploads accept
Arrivals = Literal["poisson", "constant"]


def listed(value: Value | list[Value]) -> Sequence[Value]:
    """One value or several, as a list."""
    return value if isinstance(value, list) else [value]


def is_rising(values: Sequence[float]) -> bool:
    """Return whether the list is not empty and each value is above the one before it."""
    return bool(values) and all(low < high for low, high in itertools.pairwise(values))


class Capacity(Document):
    """The closed loop whose throughput is the whole that a share is taken of."""

    tool: str = Field(description="load tool of the closed loop")
    users: int = Field(gt=0, le=MOST_USERS, description="users of the closed loop")
    streams: int = Field(default=1, gt=0, le=MOST_STREAMS, description="requests in flight of each user, with HTTP/2")


class Neighbour(Document):
    """Background load on one further guest of the environment, at a constant rate; a list makes a scenario of each."""

    tool: str = Field(default="vegeta", description="load tool that sends it, from the first client")
    rate_rps: float | list[float] | None = Field(
        default=None, description="requests per second; a list makes a scenario of each"
    )
    share: float | list[float] | None = Field(
        default=None, description="share of the capacity, instead of `rate_rps`; a list makes a scenario of each"
    )

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if (self.rate_rps is None) == (self.share is None):
            raise ValueError("give either rate_rps or share")
        values = [load.value for load in self.loads]
        if not is_rising(values) or values[0] < 0:
            raise ValueError("its loads must be 0 or more, in rising order")
        return self

    @property
    def loads(self) -> list[NeighbourLoad]:
        """The neighbour loads, one for each scenario."""
        if self.rate_rps is not None:
            return [NeighbourLoad(LoadKind.RATE, value) for value in listed(self.rate_rps)]
        return [NeighbourLoad(LoadKind.SHARE, value) for value in listed(self.share or 0.0)]


class WorkloadBase(Document):
    """Keys that every kind of workload has."""

    name: str
    description: str = Field(description="what it stands for, one sentence")
    site: str = Field(description="site that the servers serve: a file of `workloads/sites`")
    tool: str = Field(description="load tool that measures")
    crosscheck: str | None = Field(
        default=None, description="cheaper tool for a closed loop, independent one for an open loop, on the same URLs"
    )
    page: str | None = Field(
        default=None, description="the only file of the site that is asked for; unset: all of them, in the site's mix"
    )
    keep_alive: bool = Field(description="whether requests share connections; false: a new connection each")
    client: Literal["remote", "localhost"] = Field(
        default="remote", description="`localhost`: the tool runs on the machine under test, against 127.0.0.1"
    )
    cores: int | None = Field(
        default=None,
        gt=0,
        description="the server may use this many cores of its machine, the first ones; its worker count stays",
    )
    method: Literal["GET", "POST"] = Field(
        default="GET",
        description="`POST` sends a body with each request to `page`, and the server reads it before it answers",
    )
    body_bytes: int | None = Field(
        default=None, gt=0, le=MOST_BODY_BYTES, description="size of the body that `POST` sends"
    )

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
        """Transport of its requests."""
        return Transport()

    @property
    def most_streams(self) -> int:
        """The most requests in flight on one connection in any of its closed loops."""
        return 1

    @property
    def tools(self) -> list[str]:
        """Every load tool that this workload needs on its client."""
        return [self.tool, *([self.crosscheck] if self.crosscheck else [])]

    @property
    def single_machine_loads(self) -> list[Load]:
        """Its loads on one machine, without a neighbour."""
        raise NotImplementedError

    @property
    def loads(self) -> list[Load]:
        """All its loads; each is a scenario."""
        return self.single_machine_loads


class WebWorkload(WorkloadBase):
    """Requests for pages."""

    tls: bool = Field(default=False, description="requests go over TLS 1.3")
    tls_resumption: bool = Field(default=False, description="each new connection resumes an earlier session")
    http: HttpVersion = Field(default="1.1", description="HTTP version; `2` needs `tls: true` and `keep_alive: true`")

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


class SharedHostWorkload(WebWorkload):
    """A workload that may be spread over guests of one host, or run with a neighbour or with cold caches."""

    guests: int | list[int] | None = Field(
        default=None,
        description="the load is spread evenly over this many guests on one KVM host; a list makes a scenario of each",
    )
    neighbour: Neighbour | None = Field(
        default=None,
        description="load on one more guest of the environment at the same time; a list makes a scenario of each load",
    )
    cold: bool = Field(
        default=False, description="page caches are dropped before the load, and each file is asked for once"
    )

    @model_validator(mode="after")
    def _guests_rise(self) -> Self:
        if not is_rising(self._counts) or self._counts[0] < 1:
            raise ValueError("guests: must be 1 or more, in rising order")
        return self

    @property
    def _counts(self) -> Sequence[int]:
        return listed(1 if self.guests is None else self.guests)

    @property
    def loads(self) -> list[Load]:
        counts: Sequence[int | None] = [None] if self.guests is None else self._counts
        neighbours: Sequence[NeighbourLoad | None] = self.neighbour.loads if self.neighbour else [None]
        return [
            Load(load.kind, load.value, count, neighbour)
            for count in counts
            for neighbour in neighbours
            for load in self.single_machine_loads
        ]

    @property
    def guests_needed(self) -> int:
        """Number of guests of one environment that must run on one host, including the neighbour."""
        return max(self._counts) + (self.neighbour is not None)

    @property
    def is_spread(self) -> bool:
        """Return whether any scenario sends to several guests."""
        return max(self._counts) > 1

    @property
    def neighbour_takes_shares(self) -> bool:
        return self.neighbour is not None and self.neighbour.share is not None

    @property
    def tools(self) -> list[str]:
        return [*super().tools, *([self.neighbour.tool] if self.neighbour else [])]


class ClosedWorkload(SharedHostWorkload):
    """Simulated users, each sending its next request after the answer to its last."""

    kind: Literal["closed"] = Field(
        default="closed", description="users who each wait for their answer before they send again"
    )
    users: int | list[int] = Field(description="how many; a list makes a scenario of each number")
    streams: int = Field(
        default=1,
        gt=0,
        le=MOST_STREAMS,
        description="requests that each user has in flight on its connection, with HTTP/2",
    )
    requests: int | None = Field(
        default=None,
        gt=0,
        description="the published number, sent at the full scale; unset, and at any other scale, the duration decides",
    )
    capacity: Capacity | None = Field(default=None, description="closed loop that the neighbour's `share` is taken of")

    @model_validator(mode="after")
    def _equal_shares(self) -> Self:
        users = listed(self.users)
        if not is_rising(users) or users[0] < 1 or users[-1] > MOST_USERS:
            raise ValueError(f"users: must lie between 1 and {MOST_USERS} and rise")
        if self.neighbour_takes_shares != (self.capacity is not None):
            raise ValueError("capacity: neighbour.share needs it ({tool: h2load, users: 10}), nothing else does")
        _check_streams("streams", self.streams, self.http)
        for count in users:
            if self.requests and self.requests % count:
                raise ValueError(f"requests: {self.requests} is not a multiple of {count}, the users who share them")
        return self

    @property
    def single_machine_loads(self) -> list[Load]:
        return [Load(LoadKind.CLOSED, count) for count in listed(self.users)]

    @property
    def most_streams(self) -> int:
        return max(self.streams, self.capacity.streams if self.capacity else 1)

    @property
    def tools(self) -> list[str]:
        return [*super().tools, *([self.capacity.tool] if self.capacity else [])]

    def count(self, scale: str | None) -> int | None:
        """Number of requests to send at this scale; None where the duration decides."""
        return self.requests if scale == "full" else None


class OpenLoopWorkload(WebWorkload):
    """Requests at rates, whether or not the server keeps up."""

    deadline_ms: float = Field(gt=0, description="a later response does not count as good")
    arrivals: Arrivals = Field(
        default="constant",
        description="`poisson`: requests are due at random, as those of many independent users; `constant`: at even "
        "intervals. A file without it is `poisson` where each of its tools can send by a schedule",
    )
    capacity: Capacity | None = Field(default=None, description="closed loop that shares are taken of")

    @model_validator(mode="after")
    def _capacity_streams(self) -> Self:
        if self.capacity:
            _check_streams("capacity.streams", self.capacity.streams, self.http)
        return self

    @property
    def most_streams(self) -> int:
        return self.capacity.streams if self.capacity else 1

    @property
    def tools(self) -> list[str]:
        return [*super().tools, *([self.capacity.tool] if self.capacity else [])]


class RateWorkload(OpenLoopWorkload, SharedHostWorkload):
    """Requests at one rate, whether or not the server keeps up."""

    kind: Literal["rate"] = Field(description="requests at one rate, whether or not the server keeps up")
    rate_rps: float | None = Field(default=None, gt=0, description="requests per second")
    share: float | None = Field(default=None, gt=0, le=2, description="share of the capacity, instead of `rate_rps`")

    @model_validator(mode="after")
    def _one_rate(self) -> Self:
        _check_rate_or_share(self, "rate_rps", "share")
        return self

    @property
    def single_machine_loads(self) -> list[Load]:
        return [Load(LoadKind.SHARE, self.share) if self.share else Load(LoadKind.RATE, self.rate_rps or 0)]


class SteppedWorkload(OpenLoopWorkload):
    rates_rps: list[float] | None = Field(
        default=None, min_length=2, description="steps, requests per second, rising; each is a scenario"
    )
    shares: list[float] | None = Field(
        default=None, min_length=2, description="steps as shares of the capacity, instead of `rates_rps`"
    )

    @model_validator(mode="after")
    def _one_scale(self) -> Self:
        _check_rate_or_share(self, "rates_rps", "shares")
        steps = self.rates_rps or self.shares or []
        if steps[0] <= 0 or not is_rising(steps):
            raise ValueError(f"{'shares' if self.shares else 'rates_rps'}: must be above 0 and rise from step to step")
        return self

    @property
    def single_machine_loads(self) -> list[Load]:
        if self.shares:
            return [Load(LoadKind.SHARE, share) for share in self.shares]
        return [Load(LoadKind.RATE, rate) for rate in self.rates_rps or []]


class SweepWorkload(SteppedWorkload, SharedHostWorkload):
    """A sweep of rates; each step is a scenario."""

    kind: Literal["sweep"] = Field(description="a rate sweep: rising offered rates")


class SearchWorkload(OpenLoopWorkload):
    """A search for the highest rate with 99% of the requests answered within the deadline and `availability_pct`
    answered at all.

    Each block has the scenario once; earlier blocks determine the rate that it offers.
    """

    kind: Literal["search"] = Field(
        description="looks for the highest rate with 99% within `deadline_ms`, and `availability_pct`"
    )
    between_rps: list[float] | None = Field(
        default=None,
        min_length=2,
        max_length=2,
        description="lowest and highest rate that is tried, requests per second",
    )
    between_shares: list[float] | None = Field(
        default=None,
        min_length=2,
        max_length=2,
        description="the same as shares of the capacity, instead of `between_rps`",
    )
    availability_pct: float = Field(default=99.9, ge=1, lt=100, description="percent of the requests that must succeed")
    resolution_pct: float = Field(
        default=10.0, ge=1, le=100, description="largest distance between two rates that are tried, percent"
    )

    @model_validator(mode="after")
    def _one_bracket(self) -> Self:
        _check_rate_or_share(self, "between_rps", "between_shares")
        low, high = self.between
        if not 0 < low < high:
            raise ValueError(f"{'between_rps' if self.between_rps else 'between_shares'}: must be above 0 and rise")
        return self

    @property
    def between(self) -> tuple[float, float]:
        """The lowest and the highest load that the search tries: requests per second, or shares."""
        low, high = self.between_rps or self.between_shares or []
        return low, high

    @property
    def single_machine_loads(self) -> list[Load]:
        return [Load(LoadKind.SEARCH, self.deadline_ms)]


class RampWorkload(SteppedWorkload):
    """A rate sweep for a tool that only counts answers within the deadline: no response times, no tails."""

    kind: Literal["ramp"] = Field(
        description="a rate sweep by a tool that only counts what came within the deadline: no tails"
    )

    @model_validator(mode="after")
    def _no_crosscheck(self) -> Self:
        if self.crosscheck:
            raise ValueError("crosscheck: a ramp has none")
        return self


class MailWorkload(WorkloadBase):
    """Users who send or read messages at the same time, each in a separate session."""

    kind: Literal["mail"] = Field(description="users who at once send messages as large as `page`, or read them")
    protocol: Literal["smtp", "submission", "imap", "pop3"] = Field(
        description="`smtp` and `submission` send, `imap` and `pop3` read"
    )
    users: int = Field(gt=0, le=10, description="sessions at once")
    page: str = Field(description="file of the site; a message is as large")
    keep_alive: Literal[False] = Field(default=False, description="each message or mailbox has a separate session")
    method: Literal["GET"] = Field(default="GET", description="without meaning for mail")

    @model_validator(mode="after")
    def _no_crosscheck(self) -> Self:
        if self.crosscheck:
            raise ValueError("crosscheck: a mail workload has none")
        return self

    @property
    def single_machine_loads(self) -> list[Load]:
        return [Load(LoadKind.CLOSED, self.users)]

    @property
    def sends(self) -> bool:
        """Return whether the users send messages; else they read mailboxes."""
        return self.protocol in {"smtp", "submission"}


OpenWorkload = RateWorkload | SweepWorkload | SearchWorkload | RampWorkload
Workload = Annotated[
    ClosedWorkload | RateWorkload | SweepWorkload | SearchWorkload | RampWorkload | MailWorkload,
    Field(discriminator="kind"),
]


def _check_streams(key: str, streams: int, http: HttpVersion) -> None:
    if streams > 1 and http != "2":
        raise ValueError(f"{key}: {streams} need `http: '2'`; HTTP/1.1 has one request at a time on a connection")


def _check_rate_or_share(workload: OpenLoopWorkload, rate_key: str, share_key: str) -> None:
    rate, share = getattr(workload, rate_key), getattr(workload, share_key)
    if (rate is None) == (share is None):
        raise ValueError(f"give either {rate_key} or {share_key}")
    takes_shares = share is not None or (isinstance(workload, SharedHostWorkload) and workload.neighbour_takes_shares)
    if takes_shares != (workload.capacity is not None):
        raise ValueError(f"capacity: {share_key} needs it ({{tool: h2load, users: 10}}), {rate_key} has no use for it")


def sends_alone(workload: Workload) -> bool:
    """Return whether one machine sends the load: the machine under test itself, or the first client (mail, ramps)."""
    return workload.client == "localhost" or isinstance(workload, MailWorkload | RampWorkload)

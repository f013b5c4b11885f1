"""Loads, commands and results of load tools, and the properties that an adapter declares for its tool."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vmtoll.model.errors import ToolError, ToolTimeoutError
from vmtoll.model.percentiles import columns_without_enough_requests, out_of_order_columns
from vmtoll.model.transport import HttpVersion


@dataclass(frozen=True)
class Guard:
    """Terms of a load on a service that vmtoll did not install: the load stops when requests fail."""

    at_most_rps: float  # what a closed loop may not exceed
    in_flight: int  # the most requests in flight
    silence_s: float  # time without any result after which the service counts as failing
    duration_s: float  # when a closed loop ends
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    # PEM of the authority that signed its certificate, empty for the client's own list
    ca: str = field(default="", repr=False)
    verify: bool = True  # whether it must be valid


@dataclass(frozen=True)
class ClosedLoad:
    """A closed loop: `users` users send `requests` requests in all, walking through `urls`."""

    urls: Sequence[str]
    users: int
    requests: int
    keep_alive: bool
    timeout_s: float = 10.0
    http: HttpVersion = "1.1"
    streams: int = 1  # requests in flight per user, with HTTP/2
    resumption: bool = False  # new connections resume an earlier TLS session

    @property
    def in_flight(self) -> int:
        """Number of requests in flight at any moment."""
        return self.users * self.streams

    body_bytes: int | None = None  # POST a body of this size; None: GET
    guard: Guard | None = None


@dataclass(frozen=True)
class OpenLoad:
    """An open loop: `requests` requests, whether or not the server keeps up, one every 1/`rate_rps` seconds or, with
    `due_ns`, each at its time in ns after the start.
    """

    urls: Sequence[str]
    rate_rps: float
    requests: int
    keep_alive: bool
    timeout_s: float = 10.0
    http: HttpVersion = "1.1"
    resumption: bool = False  # as in ClosedLoad
    body_bytes: int | None = None  # POST a body of this size; None: GET
    due_ns: Sequence[int] | None = None
    guard: Guard | None = None
    in_flight: int = 500  # requests that may wait for their answers before further ones are sent late


@dataclass(frozen=True)
class MailLoad:
    """A mail load: `users` concurrent users send or read `requests` messages in all, each in its own session.

    Users are `user0@<domain>` and so on, all with `password`. A sent message has `message_bytes` and a Message-Id that
    ends in `@<tag>`; the body of a message read must have the digest `body_sha256`.
    """

    host: str
    port: int
    protocol: str
    domain: str
    users: int
    requests: int
    message_bytes: int
    tag: str
    password: str
    body_sha256: str
    timeout_s: float = 30.0
    # an open loop, whose sessions are due at even intervals; times then count from when each was due. None: each user
    # starts its next session after its last.
    rate_rps: float | None = None

    @property
    def in_flight(self) -> int:
        """Number of sessions open at any moment."""
        return self.users


def over_tls(load: ClosedLoad | OpenLoad) -> bool:
    """Return whether a load goes over TLS; all of its URLs have one scheme."""
    return any(url.startswith("https:") for url in load.urls[:1])


# Kinds of load that a tool can send.
ToolLoad = ClosedLoad | OpenLoad | MailLoad

# The file with the body of an upload, in the tool's working directory.
BODY = "body"


def body_file(load: ClosedLoad | OpenLoad) -> dict[str, str]:
    """File name → content: the file BODY for a load that sends bodies; empty for one that does not."""
    if load.body_bytes is None:
        return {}
    line = "0123456789abcdefghijklmnopqrstuvwxyz"
    return {BODY: (line * (load.body_bytes // len(line) + 1))[: load.body_bytes]}


@dataclass(frozen=True)
class Command:
    """A command line for a fresh directory that holds `files`; the agent returns the files `outputs`."""

    argv: Sequence[str]
    files: Mapping[str, str]
    outputs: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    threads: int = 1  # the most threads of the tool that can be busy at once
    finish: Sequence[str] = ()  # a command that makes `outputs` after the tool has ended, outside of the measured time


@dataclass(frozen=True)
class Output:
    """Output of a tool."""

    stdout: str
    stderr: str
    exit_status: int  # negative if a signal killed the tool
    files: Mapping[str, bytes] = field(default_factory=dict)
    timed_out: bool = False
    interrupted: bool = False  # vmtoll interrupted it before the end of its plan


@dataclass(frozen=True)
class ToolResult:
    """Measurements of a tool.

    If the tool logs every request, `latencies_us` holds the time that each took and `sent_us` its intended send, in µs
    from any fixed moment, both in the same order.

    Closed loop: `latencies_us` are service times of all requests. Open loop: they are response times, from the intended
    send, of successful requests.
    """

    transactions: int
    successful: int
    failed: int
    elapsed_s: float
    transferred_mb: float | None = None
    availability_pct: float | None = None
    response_time_mean_ms: float | None = None
    concurrency: float | None = None
    longest_ms: float | None = None
    shortest_ms: float | None = None
    latencies_us: NDArray[np.int64] | None = None
    sent_us: NDArray[np.int64] | None = None
    # the intended sends of all requests, by the same clock as `sent_us`, if the tool tells them
    due_us: NDArray[np.int64] | None = None
    lateness_us: NDArray[np.int64] | None = None  # the delay of each request after its own, if the tool reports it
    behind_us: float | None = None  # the delay of the last request relative to the first, if the log has only that
    planned: int | None = None  # for a tool that sends whole connections of requests; None: the load's `requests`
    late: int = 0  # given up at the load's timeout, if that is a deadline (`ramp`)
    unsent: int = 0  # never sent, because the client had no descriptor or port left
    # columns of trials.csv that only this tool's own summary can fill
    columns: Mapping[str, float] = field(default_factory=dict)
    dropped: int = 0  # number of printed figures that `without_impossible_figures` has left out


_AVERAGES = ("elapsed_s", "transferred_mb", "availability_pct", "response_time_mean_ms", "concurrency", "longest_ms",
             "shortest_ms")  # fmt: skip
# A number as C's printf writes it, including nan and inf.
NUMBER = r"(-?(?:[0-9.]+|nan|inf))"


def without_impossible_figures(result: ToolResult) -> ToolResult:
    """The result without impossible printed figures: `nan` and `inf`, percentiles of fewer requests than they need, and
    all percentiles of a kind if they do not rise with their share.
    """
    numbers = {name: value for name in _AVERAGES if (value := getattr(result, name)) is not None}
    odd = {name for name, value in numbers.items() if not math.isfinite(value)}
    columns = {name: value for name, value in result.columns.items() if math.isfinite(value)}
    few = columns_without_enough_requests(columns, result.transactions)
    columns = {name: value for name, value in columns.items() if name not in few}
    wrong = out_of_order_columns(columns)
    columns = {name: value for name, value in columns.items() if name not in wrong}
    dropped = result.dropped + len(odd) + len(result.columns) - len(columns)
    missing = {name: 0.0 if name == "elapsed_s" else None for name in odd}
    return replace(result, **missing, columns=columns, dropped=dropped)  # type: ignore[arg-type]


@dataclass(frozen=True, kw_only=True)
class Adapter:
    """A load tool. `command` turns a load into a command line and its files, `parse` the output into a result; both
    get only the kinds of load that the tool can send, and `parse` raises ToolError.
    """

    command: Callable[[Any], Command]
    parse: Callable[[Any, Output], ToolResult]
    # its Debian package; None: the Makefile in the tool's folder builds the program, named after the folder
    package: str | None
    tick_s: float  # the resolution of its times
    masked_units: tuple[str, ...] = ()  # units of that package that must not start
    # `closed_loop`, `open_loop`: it sends a ClosedLoad (users), an OpenLoad (a rate)
    closed_loop: bool = False
    open_loop: bool = False
    # the protocols that it speaks to a mail server (MailLoad); none for a web tool
    mail_protocols: tuple[str, ...] = ()
    # why it yields no response times at a rate, or none to trust; None: it passes the stall test
    refused_for_tails: str | None = None
    can_close: bool = True  # it can work without keep-alive
    one_page: bool = False  # it requests only one page, which the workload must name
    one_host: bool = False  # it sends everything to the host of its first URL, as a tool with `one_page` does
    lockstep: bool = False  # all its users start at the first line of the URL list
    at_random: bool = False  # it draws its URLs at random
    tls: bool = False  # it speaks TLS 1.3 and accepts a self-signed certificate
    refused_for_tls: str | None = None  # why vmtoll does not use it over TLS although it speaks it
    http2: bool = False  # it speaks HTTP/2 over TLS
    resumes: bool = False  # it can resume TLS sessions, and does so only on request
    sends_bodies: bool = False  # it can POST a body with each request (`body_bytes` of a load)
    # on an interrupt it ends and reports what it has sent, and `parse` accepts an Output with `interrupted`
    interruptible: bool = False
    schedules: bool = False  # it can follow a load's schedule (`due_ns`); other tools send only at even intervals


def raise_if_killed(output: Output, tool: str) -> None:
    """Raise ToolTimeoutError if the tool was killed at its time limit, ToolError if another signal killed it."""
    if output.timed_out:
        raise ToolTimeoutError(f"{tool} did not end within its bound and was killed; {last_words(output)}")
    if output.exit_status < 0:
        raise ToolError(f"{tool} was killed by signal {-output.exit_status}; {last_words(output)}")


def integers(data: bytes, columns: int, tool: str) -> NDArray[np.int64]:
    """A log with `columns` integers per line, as an array of shape (lines, columns).

    Raises ToolError for a log that is cut off or holds anything else.
    """
    if data and not data.endswith(b"\n"):
        raise ToolError(f"{tool}: the request log ends in the middle of a line")
    try:
        return np.array(data.split(), dtype=np.int64).reshape(-1, columns)
    except ValueError as error:
        raise ToolError(f"{tool}: the request log is not lines of {columns} numbers: {error}") from None


def last_words(output: Output) -> str:
    """The last line that the tool printed, as part of an error message."""
    lines = [line.strip() for line in (output.stdout + "\n" + output.stderr).splitlines() if line.strip()]
    return f"its last line: {lines[-1][:200]!r}" if lines else "it printed nothing"

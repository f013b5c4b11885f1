"""Loads, commands and results of load tools, and the properties that an adapter declares of its tool."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vmtoll.model.errors import ToolError, ToolTimeoutError
from vmtoll.model.percentiles import falling, of_too_few
from vmtoll.model.transport import HttpVersion


@dataclass(frozen=True)
class ClosedLoad:
    """A closed loop: `users` users send `requests` requests in all, walking through `urls`.

    `http`: the version; `streams`: with HTTP/2, how many requests each user has in flight. `resumption`: new
    connections resume an earlier TLS session.
    """

    urls: Sequence[str]
    users: int
    requests: int
    keep_alive: bool
    timeout_s: float = 10.0
    http: HttpVersion = "1.1"
    streams: int = 1
    resumption: bool = False

    @property
    def in_flight(self) -> int:
        """Requests that are under way at any moment."""
        return self.users * self.streams

    body_bytes: int | None = None  # POST a body of this size; None: GET


@dataclass(frozen=True)
class OpenLoad:
    """An open loop: `requests` requests, whether or not the server keeps up: one every 1/`rate_rps` seconds or, with
    `due_ns`, each so long after the start. `http`, `resumption`: as of a
    closed loop.
    """

    urls: Sequence[str]
    rate_rps: float
    requests: int
    keep_alive: bool
    timeout_s: float = 10.0
    http: HttpVersion = "1.1"
    resumption: bool = False
    body_bytes: int | None = None  # POST a body of this size; None: GET
    due_ns: Sequence[int] | None = None


@dataclass(frozen=True)
class MailLoad:
    """`users` at once send `requests` messages in all, or read as many; each in a session of its own.

    Users are `user0@<domain>` and so on, all with `password`. What is sent has `message_bytes` and a Message-Id that
    ends in `@<tag>`; what is read must have a body of this digest.
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

    @property
    def in_flight(self) -> int:
        """Sessions that are under way at any moment."""
        return self.users


def over_tls(load: ClosedLoad | OpenLoad) -> bool:
    """Return whether a load goes over TLS; all of its URLs have one scheme."""
    return any(url.startswith("https:") for url in load.urls[:1])


# Kinds of load that a tool can send.
ToolLoad = ClosedLoad | OpenLoad | MailLoad

# The file with the body of an upload, in the tool's folder.
BODY = "body"


def body_file(load: ClosedLoad | OpenLoad) -> dict[str, str]:
    """The file BODY of a load that sends bodies; no file for one that does not."""
    if load.body_bytes is None:
        return {}
    line = "0123456789abcdefghijklmnopqrstuvwxyz"
    return {BODY: (line * (load.body_bytes // len(line) + 1))[: load.body_bytes]}


@dataclass(frozen=True)
class Command:
    """A command line, run in a fresh directory that holds `files`; `outputs` are fetched afterwards.

    `threads` is how many threads of the tool can be busy at once. `finish` is run after the tool, outside of the
    measured time, to make `outputs` of what it left.
    """

    argv: Sequence[str]
    files: Mapping[str, str]
    outputs: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    threads: int = 1
    finish: Sequence[str] = ()


@dataclass(frozen=True)
class Output:
    """Output of a tool.

    `exit_status` is negative when the tool was killed; `ended`: vmtoll interrupted it before it had sent all that was
    planned.
    """

    stdout: str
    stderr: str
    exit_status: int
    files: Mapping[str, bytes] = field(default_factory=dict)
    timed_out: bool = False
    ended: bool = False


@dataclass(frozen=True)
class ToolResult:
    """Measurements of a tool.

    If it logs every request, `latencies_us` holds one time each and `sent_us` when each was to be sent, in µs from any
    fixed moment; both in the same order. `columns` are columns of trials.csv that only this tool's own summary can
    fill.

    Closed loop: service times of all requests. Open loop: response times, from the intended send, of the requests that
    succeeded; `lateness_us` is how long after its intended time each was sent, if the tool reports it, and `behind_us`,
    if its log has that alone, how much later after the first request than planned the last one was sent. `dropped`: how
    many figures that the tool printed `sound` has left out.
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
    lateness_us: NDArray[np.int64] | None = None
    behind_us: float | None = None
    planned: int | None = None  # of a tool that sends whole connections of requests; else as many as the load has
    late: int = 0  # given up at the load's timeout, where that is a deadline (`ramp`)
    unsent: int = 0  # never sent, because the client had no descriptor or port left
    columns: Mapping[str, float] = field(default_factory=dict)
    dropped: int = 0


_AVERAGES = ("elapsed_s", "transferred_mb", "availability_pct", "response_time_mean_ms", "concurrency", "longest_ms",
             "shortest_ms")  # fmt: skip
# A number as C's printf writes it, also one that is none.
NUMBER = r"(-?(?:[0-9.]+|nan|inf))"


def sound(result: ToolResult) -> ToolResult:
    """The result without the printed figures that cannot be: `nan` and `inf`, percentiles of fewer requests than they
    need, and all percentiles of a kind that do not rise with their share.
    """
    numbers = {name: value for name in _AVERAGES if (value := getattr(result, name)) is not None}
    odd = {name for name, value in numbers.items() if not math.isfinite(value)}
    columns = {name: value for name, value in result.columns.items() if math.isfinite(value)}
    few = of_too_few(columns, result.transactions)
    columns = {name: value for name, value in columns.items() if name not in few}
    wrong = falling(columns)
    columns = {name: value for name, value in columns.items() if name not in wrong}
    dropped = result.dropped + len(odd) + len(result.columns) - len(columns)
    missing = {name: 0.0 if name == "elapsed_s" else None for name in odd}
    return replace(result, **missing, columns=columns, dropped=dropped)  # type: ignore[arg-type]


@dataclass(frozen=True, kw_only=True)
class Adapter:
    """A load tool. `command` turns a load into a command line and its files, `parse` what came back into a result;
    both get only the kinds of load that the tool can send, and `parse` raises ToolError.

    `package`: Debian's; None: the Makefile in the tool's folder makes the program, which has the folder's name.
    `masked_units`: of that package, kept from starting.
    `closed_loop`, `open_loop`: it sends users (ClosedLoad), rates (OpenLoad).
    `mail_protocols`: what it speaks to a mail server (MailLoad); a web tool speaks none.
    `refused_for_tails`: why it yields no response times at a rate, or none to believe; None: it passes the stall test.
    `can_close`: it can do without keep-alive. `tick_s`: the resolution of its times.
    `one_page`: it asks for one page only, which the workload has to name.
    `one_host`: it sends everything to the host of its first URL, as a tool with `one_page` does.
    `lockstep`: all its users start at the first line of the URL list. `at_random`: it draws its URLs at random.
    `tls`: it speaks TLS 1.3 and takes a certificate that no authority has signed; `refused_for_tls`: why it is not used
    over TLS although it speaks it. `http2`: it speaks HTTP/2 inside of
    TLS. `resumes`: it can resume TLS sessions, and does so only on request.
    `sends_bodies`: it can POST a body with each request (`body_bytes` of a load).
    `schedules`: it sends by the schedule of a load (`due_ns`); others send at even intervals alone.
    `ends`: it ends at an interrupt with what it has sent so far, and `parse` takes an Output that was `ended`.
    """

    command: Callable[[Any], Command]
    parse: Callable[[Any, Output], ToolResult]
    package: str | None
    tick_s: float
    masked_units: tuple[str, ...] = ()
    closed_loop: bool = False
    open_loop: bool = False
    mail_protocols: tuple[str, ...] = ()
    refused_for_tails: str | None = None
    can_close: bool = True
    one_page: bool = False
    one_host: bool = False
    lockstep: bool = False
    at_random: bool = False
    tls: bool = False
    refused_for_tls: str | None = None
    http2: bool = False
    resumes: bool = False
    sends_bodies: bool = False
    ends: bool = False
    schedules: bool = False


def require(output: Output, tool: str) -> None:
    """Raise ToolTimeoutError when the tool was killed at its bound, ToolError when a signal killed it."""
    if output.timed_out:
        raise ToolTimeoutError(f"{tool} did not end within its bound and was killed; {last_words(output)}")
    if output.exit_status < 0:
        raise ToolError(f"{tool} was killed by signal {-output.exit_status}; {last_words(output)}")


def integers(data: bytes, columns: int, tool: str) -> NDArray[np.int64]:
    """A log of `columns` whole numbers a line, as an array of lines by columns.

    Raises ToolError for a log that is cut off or holds anything else.
    """
    if data and not data.endswith(b"\n"):
        raise ToolError(f"{tool}: the request log ends in the middle of a line")
    try:
        return np.array(data.split(), dtype=np.int64).reshape(-1, columns)
    except ValueError as error:
        raise ToolError(f"{tool}: the request log is not lines of {columns} numbers: {error}") from None


def last_words(output: Output) -> str:
    """The last line that the tool printed, for a message."""
    lines = [line.strip() for line in (output.stdout + "\n" + output.stderr).splitlines() if line.strip()]
    return f"its last line: {lines[-1][:200]!r}" if lines else "it printed nothing"

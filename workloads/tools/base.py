"""What a load is, what a tool is told and what it yields."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray


class ToolError(Exception):
    """The tool did not do what it was told; the message says what was seen instead."""


@dataclass(frozen=True)
class Load:
    """A closed loop: `users` users send `requests` requests in all, walking through `urls`."""

    urls: Sequence[str]
    users: int
    requests: int
    keep_alive: bool
    timeout_s: float = 10.0


@dataclass(frozen=True)
class OpenLoad:
    """An open loop: `requests` requests, one every 1/`rate_rps` seconds, whether or not the server keeps up."""

    urls: Sequence[str]
    rate_rps: float
    requests: int
    keep_alive: bool
    timeout_s: float = 10.0


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


# What a trial may offer.
AnyLoad = Load | OpenLoad | MailLoad


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
    """What came back. `exit_status` is negative when the tool was killed; `ended`: it was interrupted by us, before it
    had sent all that was planned.
    """

    stdout: str
    stderr: str
    exit_status: int
    files: Mapping[str, bytes] = field(default_factory=dict)
    timed_out: bool = False
    ended: bool = False


@dataclass(frozen=True)
class ToolResult:
    """What the tool saw. Where it logs every request, `latencies_us` holds one time each and `sent_us` when each
    was to be sent, in µs from any fixed moment; both in the same order. `columns` are columns of trials.csv that
    only this tool's own summary can fill.

    Closed loop: service times of all requests. Open loop: response times, from the intended send, of the requests
    that succeeded; `lateness_us` is how long after its intended time each was sent, where the tool tells.
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
    late: int = 0  # given up at the load's timeout, where that is a deadline (`ramp`)
    unsent: int = 0  # never sent, because the client had no descriptor or port left
    columns: Mapping[str, float] = field(default_factory=dict)


def require(output: Output, tool: str) -> None:
    """Raise ToolError when the tool was killed by us or by a signal."""
    if output.timed_out:
        raise ToolError(f"{tool} did not end within its bound and was killed; {last_words(output)}")
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

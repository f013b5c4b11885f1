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
class Command:
    """A command line, run in a fresh directory that holds `files`; `outputs` are fetched afterwards.

    `threads` is how many threads of the tool can be busy at once.
    """

    argv: Sequence[str]
    files: Mapping[str, str]
    outputs: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    threads: int = 1


@dataclass(frozen=True)
class Output:
    """What came back. `exit_status` is negative when the tool was killed."""

    stdout: str
    stderr: str
    exit_status: int
    files: Mapping[str, bytes] = field(default_factory=dict)
    timed_out: bool = False


@dataclass(frozen=True)
class ToolResult:
    """The tool's own summary. `latencies_us` holds one service time a request, where the tool logs them."""

    transactions: int
    successful: int
    failed: int
    elapsed_s: float
    transferred_mb: float
    availability_pct: float | None = None
    response_time_mean_ms: float | None = None
    concurrency: float | None = None
    longest_ms: float | None = None
    shortest_ms: float | None = None
    latencies_us: NDArray[np.int64] | None = None


def require(output: Output, tool: str) -> None:
    """Raise ToolError when the tool was killed by us or by a signal."""
    if output.timed_out:
        raise ToolError(f"{tool} did not end within its bound and was killed; {last_words(output)}")
    if output.exit_status < 0:
        raise ToolError(f"{tool} was killed by signal {-output.exit_status}; {last_words(output)}")


def last_words(output: Output) -> str:
    """The last line that the tool printed, for a message."""
    lines = [line.strip() for line in (output.stdout + "\n" + output.stderr).splitlines() if line.strip()]
    return f"its last line: {lines[-1][:200]!r}" if lines else "it printed nothing"

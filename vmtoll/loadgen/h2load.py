"""h2load: a cheap closed loop that logs every request in microseconds; siege's cross-check.

All its users start at the first line of the URL list, and it always keeps connections alive. It falls back to HTTP/1.1
if a server does not accept HTTP/2; its summary says so.
"""

import math
import re

import numpy as np
from numpy.typing import NDArray

from vmtoll.loadgen.base import (
    BODY,
    Adapter,
    ClosedLoad,
    Command,
    Output,
    ToolResult,
    body_file,
    integers,
    last_words,
    raise_if_killed,
)
from vmtoll.model.errors import ToolError
from vmtoll.model.transport import ALPN

_LOG = "requests.log"
_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


def planned(load: ClosedLoad) -> int:
    """Number of requests that h2load will send: the same for each user."""
    return max(1, math.ceil(load.requests / load.users)) * load.users


def command(load: ClosedLoad) -> Command:
    """h2load in one thread, with a log of every request."""
    timeout = f"{math.ceil(load.timeout_s)}s"
    version = ["--h1"] if load.http == "1.1" else ["-m", str(load.streams)]
    argv = ["h2load", *version, "-t", "1", "-c", str(load.users), "-n", str(planned(load))]
    argv += ["-T", timeout, "-N", timeout, "-i", "urls.txt", f"--log-file={_LOG}"]
    argv += ["-d", BODY] if load.body_bytes else []
    files = {"urls.txt": "\n".join(load.urls) + "\n", **body_file(load)}
    return Command(argv=argv, files=files, outputs=[_LOG], threads=1)


def in_flight(log: NDArray[np.int64]) -> float | None:
    """Mean number of requests in flight between the first start and the last end; None for an empty log."""
    starts, latencies = log[:, 0], log[:, 2]
    span = int((starts + latencies).max() - starts.min()) if len(log) else 0
    return float(latencies.sum()) / span if span else None


def parse(load: ClosedLoad, output: Output) -> ToolResult:
    """Read the summary on stdout and the request log; both must agree.

    Raises ToolError if a line is missing, if fewer requests were done than planned, if the log holds another number, or
    if h2load spoke another protocol. Failed and non-2xx requests count as failed.
    """
    raise_if_killed(output, "h2load")
    text = output.stdout
    finished = re.search(r"^finished in ([0-9.]+)(us|ms|s|m|h), ", text, re.MULTILINE)
    requests = re.search(
        r"^requests: (\d+) total, (\d+) started, (\d+) done, (\d+) succeeded, (\d+) failed, (\d+) errored, "
        r"(\d+) timeout",
        text,
        re.MULTILINE,
    )
    statuses = re.search(r"^status codes: (\d+) 2xx", text, re.MULTILINE)
    traffic = re.search(r"^traffic: \S+ \((\d+)\) total", text, re.MULTILINE)
    if not (finished and requests and statuses and traffic):
        raise ToolError(f"h2load: its summary is missing or cut short; {last_words(output)}")
    total, _, done, succeeded, _, _, _ = (int(n) for n in requests.groups())
    if total != planned(load) or done < total:
        raise ToolError(f"h2load: finished {done} of {planned(load)} requests")
    protocol = re.search(r"^Application protocol: (\S+)", text, re.MULTILINE)
    if protocol and protocol[1] != ALPN[load.http]:
        raise ToolError(f"h2load: spoke {protocol[1]} with the server, not {ALPN[load.http]}")
    log = integers(output.files.get(_LOG, b""), 3, "h2load")
    codes, latencies = log[:, 1], log[:, 2]  # column 0: start, µs since the epoch
    if len(codes) != done:
        raise ToolError(f"h2load: its log holds {len(codes)} requests, its summary {done}")
    good = int(np.count_nonzero((codes >= 200) & (codes < 300)))
    return ToolResult(
        transactions=done,
        successful=min(succeeded, good),
        failed=done - min(succeeded, good),
        elapsed_s=float(finished[1]) * _UNITS[finished[2]],
        transferred_mb=int(traffic[1]) / 1e6,
        response_time_mean_ms=float(latencies.mean()) / 1000 if len(latencies) else None,
        concurrency=in_flight(log),
        latencies_us=latencies,
        sent_us=log[:, 0],
    )


TOOL = Adapter(
    command=command,
    parse=parse,
    package="nghttp2-client",
    closed_loop=True,
    refused_for_tails="it failed the stall test: with --rps it reports a p99 of 5 ms where 360 ms are true",
    can_close=False,
    one_host=True,
    sends_bodies=True,
    tick_s=1e-6,
    lockstep=True,
    tls=True,
    http2=True,
)

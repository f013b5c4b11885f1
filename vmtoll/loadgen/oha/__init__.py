"""oha: the open loop's cross-check, and a cheap closed loop that can work without keep-alive.

With `--latency-correction` it counts a response time from the moment when it queued the request, so waiting for a
connection counts. Unlike vegeta, it does not report how late it queued a request. Its log has the actual starts, so
the time between the first and the last shows whether it kept its rate. It draws URLs at random. Over TLS every
connection makes a full handshake.
"""

import numpy as np
from numpy.typing import NDArray

from vmtoll.loadgen.base import (
    BODY,
    Adapter,
    ClosedLoad,
    Command,
    OpenLoad,
    Output,
    ToolResult,
    body_file,
    last_words,
    over_tls,
    raise_if_killed,
)
from vmtoll.model.errors import ToolError

Log = np.ndarray[tuple[int, int], np.dtype[np.float64]]

_LOG = "requests.csv"
_HEADING = b"request-start,DNS,DNS+dialup,Response-delay,request-duration,bytes,status\n"
# Connections of an open loop; a request that finds none free waits in oha's queue, and the wait counts.
_CONNECTIONS = 64
# With HTTP/2, the requests in flight on the one connection that they share, as vegeta's do.
_STREAMS = 64


def command(load: ClosedLoad | OpenLoad) -> Command:
    """oha for a number of requests, not for a time, at whose end it would drop those in flight."""
    argv = ["oha", "--no-tui", "-n", str(load.requests), "-t", f"{load.timeout_s:g}s", "--disable-compression"]
    if isinstance(load, OpenLoad):
        users, streams = (_CONNECTIONS, 1) if load.http == "1.1" else (1, _STREAMS)
        argv += ["-c", str(users), "-q", f"{load.rate_rps:.9g}", "--latency-correction"]
    else:
        streams = load.streams
        argv += ["-c", str(load.users)]
    if load.http == "2":
        argv += ["--http2", "-p", str(streams)]
    if over_tls(load):
        argv.append("--insecure")
    if load.body_bytes:
        argv += ["-m", "POST", "-D", BODY]
    if not load.keep_alive:
        argv.append("--disable-keepalive")
    return Command(
        argv=[*argv, "--output-format", "csv", "-o", _LOG, "--urls-from-file", "urls.txt"],
        files={"urls.txt": "\n".join(load.urls) + "\n", **body_file(load)},
        outputs=[_LOG],
        threads=1000,  # it can use every CPU
    )


def parse(load: ClosedLoad | OpenLoad, output: Output) -> ToolResult:
    """Read the log, which holds all answered requests; the missing ones count as failed.

    Raises ToolError if the log is missing, cut short, or holds more requests than planned.
    """
    raise_if_killed(output, "oha")
    data = output.files.get(_LOG, b"")
    if output.exit_status or not data.startswith(_HEADING):
        raise ToolError(f"oha: ended with {output.exit_status} and without its log; {last_words(output)}")
    log = _read(data.removeprefix(_HEADING))
    if len(log) > load.requests:
        raise ToolError(f"oha: its log holds {len(log)} requests, {load.requests} were planned")
    sent_s, answered_s, took_s, transferred = log[:, 0], log[:, 0] + log[:, 3], log[:, 4], log[:, 5]
    is_good = (log[:, 6] >= 200) & (log[:, 6] < 300)
    is_counted = is_good if isinstance(load, OpenLoad) else np.full(len(log), fill_value=True)
    successful = int(np.count_nonzero(is_good))
    elapsed_s = float(answered_s.max() - sent_s.min()) if len(log) else 0.0
    is_closed = isinstance(load, ClosedLoad) and elapsed_s > 0
    return ToolResult(
        transactions=len(log),
        successful=successful,
        failed=load.requests - successful,
        elapsed_s=elapsed_s,
        transferred_mb=float(transferred.sum()) / 1e6,
        availability_pct=100 * successful / load.requests,
        concurrency=float(took_s.sum()) / elapsed_s if is_closed else None,
        latencies_us=(took_s[is_counted] * 1e6).astype(np.int64),
        sent_us=(sent_s[is_counted] * 1e6).astype(np.int64),
        behind_us=_behind_us(load, sent_s) if isinstance(load, OpenLoad) else None,
        columns=_phases(log) if is_closed else {},
    )


def _behind_us(load: OpenLoad, sent_s: NDArray[np.float64]) -> float | None:
    """Delay of the last request relative to the first, compared with the plan, in µs; None without requests."""
    planned_s = (load.requests - 1) / load.rate_rps
    return (float(sent_s.max() - sent_s.min()) - planned_s) * 1e6 if len(sent_s) else None


def _phases(log: Log) -> dict[str, float]:
    """The times that http_load prints, in ms: opening a connection, and then waiting for the first byte."""
    has_opened, has_answer = log[:, 2] > 0, log[:, 3] > 0
    spans = {"connect": (log[:, 2] - log[:, 1])[has_opened], "first_response": (log[:, 3] - log[:, 2])[has_answer]}
    return {
        f"{phase}_{statistic}_ms": float(figure * 1e3)
        for phase, span_s in spans.items()
        if len(span_s)
        for statistic, figure in (("mean", span_s.mean()), ("max", span_s.max()), ("min", span_s.min()))
    }


def _read(data: bytes) -> Log:
    if data and not data.endswith(b"\n"):
        raise ToolError("oha: its log ends in the middle of a line")
    try:
        return np.array(data.replace(b",", b" ").split(), dtype=np.float64).reshape(-1, 7)
    except ValueError as error:
        raise ToolError(f"oha: its log is not lines of seven numbers: {error}") from None


TOOL = Adapter(
    command=command,
    parse=parse,
    package=None,
    closed_loop=True,
    open_loop=True,
    tick_s=1e-9,
    at_random=True,
    sends_bodies=True,
    tls=True,
    http2=True,
)

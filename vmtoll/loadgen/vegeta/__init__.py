"""vegeta: the open loop. It sends at even intervals or by a schedule, and logs every request in nanoseconds, so that
its own lateness is known.

vegeta's latencies count from the actual send. Its log has each request's place in the schedule, which gives the
intended send and so the response time: request `n` was due at `t0 + n / rate`, or at `t0` plus its time in the schedule
(schedule.go.txt makes vegeta read one). vegeta never sends early, so `t0` is the minimum, over all requests, of the
send minus the time after `t0`. The error is the delay of the most punctual request, some tens of microseconds. vegeta
is built with a sleep that is exact to about 0.1 ms (sleep.go.txt). The timestamps are monotonic, so setting the clock
does not matter.

A load with a guard runs under guard.py, which follows the results and stops vegeta when the service fails. Its closed
loop is vegeta with a worker for each user, and a rate that they do not exceed; then latencies count from the send.
"""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vmtoll.loadgen.base import (
    BODY,
    Adapter,
    ClosedLoad,
    Command,
    Guard,
    OpenLoad,
    Output,
    ToolResult,
    body_file,
    integers,
    last_words,
    over_tls,
    raise_if_killed,
)
from vmtoll.model.errors import ServiceFailingError, ToolError

_GUARD = Path(__file__).with_name("guard.py")
_STOPPED, _CA = "stopped.json", "ca.pem"
_LOG, _ERRORS, _SCHEDULE = "requests.log", "errors.log", "schedule.txt"
# Repeats the list up to the last request: vegeta ends when it has no more targets, so it sends each planned request
# however late it is. A request that finds all workers waiting for the server is sent late, and its lateness counts;
# without the bound on workers, a tool that is short of CPU drowns in its own connections.
_ATTACK = """\
awk '{{ url[n++] = $0 }} END {{ for (i = 0; i < {requests}; i++) print "{method} " url[i % n] }}' urls.txt |
    {schedule}vegeta attack -lazy -targets=/dev/stdin \\
    -rate=1/{interval_ns}ns -timeout={timeout_s:g}s -keepalive={keep_alive} -redirects=-1 -max-body=0 \\
    -max-workers={workers} {transport} {body}-output=requests.gob
"""
# Writes timestamp (ns), status, latency (ns) and place in the schedule; and the first 20 lines with an error.
_FINISH = f"""\
vegeta encode -to=csv requests.gob |
    awk -F, '{{ print $1, $2, $3, $(NF - 3) }} $6 != "" && n++ < 20 {{ print substr($0, 1, 200) >"{_ERRORS}" }}' >{_LOG}
"""


def _interval_ns(load: OpenLoad) -> int:
    return round(1e9 / load.rate_rps)


def _due_ns(load: OpenLoad) -> NDArray[np.int64]:
    """Intended send times of the requests, in ns from the start."""
    if load.due_ns is not None:
        return np.array(load.due_ns[: load.requests], dtype=np.int64)
    return np.arange(load.requests) * _interval_ns(load)


def command(load: OpenLoad | ClosedLoad) -> Command:
    """vegeta under its guard, or alone, which sends an OpenLoad only. Raises ToolError for another load."""
    if load.guard:
        return _guarded(load, load.guard)
    if isinstance(load, ClosedLoad):
        raise ToolError("vegeta: sends a closed loop only under its guard")
    return _alone(load)


def _guarded(load: OpenLoad | ClosedLoad, guard: Guard) -> Command:
    is_closed = isinstance(load, ClosedLoad)
    rate_rps = guard.at_most_rps if isinstance(load, ClosedLoad) else load.rate_rps
    argv = [
        *("vegeta", "attack", "-lazy", "-format=json", "-targets=/dev/stdin", f"-rate=1/{round(1e9 / rate_rps)}ns"),
        *(
            f"-timeout={load.timeout_s:g}s",
            f"-keepalive={str(load.keep_alive).lower()}",
            "-redirects=-1",
            "-max-body=0",
        ),
        f"-max-workers={load.users if isinstance(load, ClosedLoad) else guard.in_flight}",
        f"-http2={str(load.http == '2').lower()}",
        *([f"-root-certs={_CA}"] if guard.ca else []),
        *([] if guard.verify else ["-insecure"]),
    ]
    plan = {
        "argv": argv, "urls": list(load.urls), "headers": dict(guard.headers), "requests": load.requests,
        "interval_s": 1 / rate_rps, "duration_s": guard.duration_s if is_closed else None,
        "users": load.users if isinstance(load, ClosedLoad) else None, "silence_s": guard.silence_s,
    }  # fmt: skip
    files = {"guard.py": _GUARD.read_text(encoding="utf-8"), "plan.json": json.dumps(plan)}
    return Command(
        argv=["python3", "guard.py"],
        files=files | ({_CA: guard.ca} if guard.ca else {}),
        outputs=[_LOG, _ERRORS, _STOPPED],
        env={"VEGETA_CAPPED": "1"} if is_closed else {},
        threads=1000,  # it can use every CPU
    )


def _alone(load: OpenLoad) -> Command:
    """vegeta, walking through the URL list; with HTTP/2 on one connection while it has a free stream. The schedule is
    an output too, so that the run keeps it.
    """
    files = {"urls.txt": "\n".join(load.urls) + "\n", **body_file(load)}
    if load.due_ns is not None:
        files[_SCHEDULE] = "".join(f"{ns}\n" for ns in load.due_ns)
    transport = [f"-http2={str(load.http == '2').lower()}"]
    if over_tls(load):
        transport += ["-insecure", f"-session-tickets={str(load.resumption).lower()}"]
    attack = _ATTACK.format(
        schedule="" if load.due_ns is None else f"VEGETA_SCHEDULE={_SCHEDULE} ",
        requests=load.requests,
        workers=load.in_flight,
        interval_ns=_interval_ns(load),
        timeout_s=load.timeout_s,
        keep_alive=str(load.keep_alive).lower(),
        transport=" ".join(transport),
        method="POST" if load.body_bytes else "GET",
        body=f"-body={BODY} " if load.body_bytes else "",
    )
    return Command(
        argv=["sh", "-c", attack],
        files=files,
        outputs=[_LOG, _ERRORS, *([_SCHEDULE] if _SCHEDULE in files else [])],
        threads=1000,  # it can use every CPU
        finish=["sh", "-c", _FINISH],
    )


def parse(load: OpenLoad | ClosedLoad, output: Output) -> ToolResult:
    """Read the log of all requests.

    Raises ToolError if the log is missing, cut short, or does not hold each planned request once; ServiceFailingError
    if the guard stopped the load.
    """
    raise_if_killed(output, "vegeta")
    if stopped := output.files.get(_STOPPED):
        raise ServiceFailingError(_why_stopped(stopped))
    if output.exit_status:
        raise ToolError(f"vegeta: ended with {output.exit_status}; {last_words(output)}")
    log = integers(output.files.get(_LOG, b""), 4, "vegeta")
    log = log[np.argsort(log[:, 3])]
    return _closed_result(log) if isinstance(load, ClosedLoad) else _open_result(load, log, output)


def _why_stopped(content: bytes) -> str:
    """The guard's stopped.json in words."""
    stopped = json.loads(content)
    if stopped["why"] == "silent":
        return f"the service fell silent after {stopped['results']} answers; vmtoll stopped the load"
    return (
        f"{stopped['failed']} of the last {stopped['of']} requests failed, after {stopped['results']} in this load "
        f"({stopped['error']}); vmtoll stopped the load"
    )


def _closed_result(log: NDArray[np.int64]) -> ToolResult:
    """The result of a closed loop, which ended at its time: it has sent what the log holds."""
    if not len(log):
        raise ToolError("vegeta: its log is empty")
    timestamps_ns, codes, latencies_ns, _ = log.T
    successful = int(np.count_nonzero((codes >= 200) & (codes < 300)))
    elapsed_s = float((timestamps_ns + latencies_ns).max() - timestamps_ns.min()) / 1e9
    return ToolResult(
        transactions=int(np.count_nonzero(codes)),
        successful=successful,
        failed=len(log) - successful,
        elapsed_s=elapsed_s,
        availability_pct=100 * successful / len(log),
        concurrency=float(latencies_ns.sum()) / 1e9 / elapsed_s if elapsed_s > 0 else None,
        latencies_us=latencies_ns // 1000,
        sent_us=timestamps_ns // 1000,
        planned=len(log),
    )


def _open_result(load: OpenLoad, log: NDArray[np.int64], output: Output) -> ToolResult:
    if output.interrupted:
        load = replace(load, requests=_requests_begun(log))
    if len(log) < load.requests or not np.array_equal(log[:, 3], np.arange(len(log))):
        raise ToolError(f"vegeta: its log holds {len(log)} of {load.requests} requests; {last_words(output)}")
    timestamps_ns, codes, latencies_ns, _ = _without_unsent(log, load.requests).T
    due_ns = _due_ns(load)
    due_ns = (timestamps_ns - due_ns).min() + due_ns
    lateness_ns = timestamps_ns - due_ns
    ends_ns = timestamps_ns + latencies_ns
    is_good = (codes >= 200) & (codes < 300)
    successful = int(np.count_nonzero(is_good))
    return ToolResult(
        transactions=int(np.count_nonzero(codes)),
        successful=successful,
        failed=load.requests - successful,
        elapsed_s=float(ends_ns.max() - due_ns[0]) / 1e9,
        availability_pct=100 * successful / load.requests,
        latencies_us=(ends_ns - due_ns)[is_good] // 1000,
        sent_us=due_ns[is_good] // 1000,
        due_us=due_ns // 1000,
        lateness_us=lateness_ns // 1000,
    )


def _requests_begun(log: NDArray[np.int64]) -> int:
    """Number of requests up to the last one answered before the interrupt. Raises ToolError if none was answered."""
    places = log[log[:, 1] != 0, 3]
    if not len(places):
        raise ToolError("vegeta: it was interrupted before anything was answered")
    return int(places.max()) + 1


def _without_unsent(log: NDArray[np.int64], requests: int) -> NDArray[np.int64]:
    """The log, in order, without requests that were never sent: when the targets are used up, each waiting worker logs
    one more request, without a status. It may have the place of the last real request, which then has a later one: two
    workers can draw their places in one order and their targets in the other.
    """
    surplus = max(0, len(log) - requests)
    return np.delete(log, np.flatnonzero(log[:, 1] == 0)[-surplus:] if surplus else [], axis=0)


TOOL = Adapter(
    command=command, parse=parse, package=None, open_loop=True, tick_s=1e-9, sends_bodies=True, interruptible=True,
    tls=True, http2=True, resumes=True, schedules=True,
)  # fmt: skip

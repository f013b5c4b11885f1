"""ab: the closed loop of most published experiments. It requests one page repeatedly over HTTP/1.0, also over TLS.

It exits 0 even if every answer is a 404, counts an answer whose length differs from the first one's as failed, and
stops at the first broken connection. It logs no requests. `-e` writes every whole percentile in ms, to the µs; with up
to 50 requests it reads the 99th from beyond the end of its list of times, and `without_impossible_figures` leaves it
out.
"""

import re

from vmtoll.loadgen.base import (
    BODY,
    NUMBER,
    Adapter,
    ClosedLoad,
    Command,
    Output,
    ToolResult,
    body_file,
    last_words,
    over_tls,
    raise_if_killed,
)
from vmtoll.model.errors import ToolError
from vmtoll.model.transport import PROTOCOL

_PERCENTILES = "percentiles.csv"
_HEADING = b"Percentage served,Time in ms\n"
_FIELDS = {
    "elapsed_s": rf"Time taken for tests:\s+{NUMBER} seconds",
    "complete": r"Complete requests:\s+(\d+)",
    "failed": r"Failed requests:\s+(\d+)",
    "transferred": r"Total transferred:\s+(\d+) bytes",
    "mean_ms": rf"Time per request:\s+{NUMBER} \[ms\] \(mean\)",
}


def planned(load: ClosedLoad) -> int:
    """Number of requests that ab will send: it refuses to send fewer than it has users."""
    return max(load.requests, load.users)


def command(load: ClosedLoad) -> Command:
    """ab, single-threaded, on the only page of the list."""
    argv = ["ab", "-q", "-n", str(planned(load)), "-c", str(load.users), "-s", f"{load.timeout_s:.0f}"]
    argv += ["-k"] if load.keep_alive else []
    argv += ["-p", BODY, "-T", "application/octet-stream"] if load.body_bytes else []
    argv += ["-f", PROTOCOL.replace("TLSv", "TLS")] if over_tls(load) else []
    argv += ["-e", _PERCENTILES, load.urls[0]]
    return Command(argv=argv, files=body_file(load), outputs=[_PERCENTILES])


def parse(load: ClosedLoad, output: Output) -> ToolResult:
    """Read the summary and the percentiles.

    An answer that is not 2xx usually has another length as well, and ab counts it under both, so `failed` is the larger
    of the two counts. The mean is ab's own, users × time / requests.
    Raises ToolError if ab stopped early, if a line is missing, or if requests are fewer than planned.
    """
    raise_if_killed(output, "ab")
    if output.exit_status:
        raise ToolError(f"ab: ended with {output.exit_status}; {last_words(output)}")
    figures: dict[str, float] = {}
    for name, pattern in _FIELDS.items():
        match = re.search(rf"^{pattern}$", output.stdout, re.MULTILINE)
        if not match:
            raise ToolError(f"ab: its summary has no {pattern.partition(':')[0]!r}; {last_words(output)}")
        figures[name] = float(match[1])
    complete = int(figures["complete"])
    if complete != planned(load):
        raise ToolError(f"ab: made {complete} of {planned(load)} requests")
    other_status = re.search(r"^Non-2xx responses:\s+(\d+)$", output.stdout, re.MULTILINE)
    failed = min(complete, max(int(figures["failed"]), int(other_status[1]) if other_status else 0))
    at_ms = _percentiles(output.files.get(_PERCENTILES, b""))
    return ToolResult(
        transactions=complete,
        successful=complete - failed,
        failed=failed,
        elapsed_s=figures["elapsed_s"],
        transferred_mb=figures["transferred"] / 1e6,
        availability_pct=100 * (complete - failed) / complete,
        response_time_mean_ms=figures["mean_ms"],
        longest_ms=at_ms[100],
        shortest_ms=at_ms[0],
        columns={f"service_time_p{share}_us": at_ms[share] * 1000 for share in (50, 90, 99)},
    )


def _percentiles(data: bytes) -> list[float]:
    """Milliseconds by whole percent, 0 to 100."""
    rows = [line.split(b",") for line in data.removeprefix(_HEADING).splitlines()]
    try:
        return [float(ms) for _, (_, ms) in zip(range(101), rows, strict=True)]
    except ValueError:
        raise ToolError(f"ab: {_PERCENTILES} does not hold the percentiles from 0 to 100") from None


TOOL = Adapter(
    command=command,
    parse=parse,
    package="apache2-utils",
    closed_loop=True,
    refused_for_tails="it knows users, not rates",
    one_page=True,
    sends_bodies=True,
    tick_s=1e-6,
    lockstep=True,
    tls=True,
)

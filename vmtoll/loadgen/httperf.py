"""httperf: connections at a constant rate, and the replies that came within a deadline; autobench ran it in a loop.

The deadline is its timeout, which it checks every millisecond: it gives up requests without a reply by then. It prints
means but no percentiles, so it is used for a `ramp` and not for tails. It spins while it waits, so its CPU does not
show its limits; missing descriptors and ports do. It can use 1,024 descriptors, whatever the machine allows.
Over TLS (`--ssl`) it stalls: of 20 replies of 9,000 bytes from nginx over TLS 1.3 none arrived within a second; with
5,000 and with 20,000 bytes all did. It waits for its socket while the rest of a record is already in OpenSSL's buffer.
It sends no bodies: httperf reads them only from session files (`--wsesslog`), not from the URL list that it walks here.
"""

import re
from urllib.parse import urlsplit

from vmtoll.loadgen.base import NUMBER, Adapter, Command, OpenLoad, Output, ToolResult, last_words, raise_if_killed
from vmtoll.model.errors import ToolError

# Requests per connection with keep-alive: autobench's own default.
_CALLS = 10
_LINES = {
    "total": rf"Total: connections (\d+) requests (\d+) replies (\d+) test-duration {NUMBER} s",
    "connections": rf"Connection rate: {NUMBER} conn/s ",
    "requests": rf"Request rate: {NUMBER} req/s ",
    "replies": rf"Reply rate \[replies/s\]: min {NUMBER} avg {NUMBER} max {NUMBER} stddev {NUMBER} \((\d+) samples\)",
    "time": rf"Reply time \[ms\]: response {NUMBER} transfer {NUMBER}",
    "size": rf"Reply size \[B\]: header {NUMBER} content {NUMBER} ",
    "status": r"Reply status: 1xx=(\d+) 2xx=(\d+) 3xx=(\d+) 4xx=(\d+) 5xx=(\d+)",
    "errors": r"Errors: total (\d+) client-timo (\d+) socket-timo (\d+) connrefused (\d+) connreset (\d+)",
    "unsent": r"Errors: fd-unavail (\d+) addrunavail (\d+) ftab-full (\d+) other (\d+)",
}


def calls(load: OpenLoad) -> int:
    """Requests on each connection."""
    return _CALLS if load.keep_alive else 1


def connections(load: OpenLoad) -> int:
    """Number of connections that httperf will open."""
    return max(1, round(load.requests / calls(load)))


def command(load: OpenLoad) -> Command:
    """httperf over HTTP/1.1, walking through the URL list repeatedly; never `--hog`, which may spin forever."""
    first = urlsplit(load.urls[0])
    argv = ["httperf", "--server", str(first.hostname), "--port", str(first.port or 80)]
    argv += ["--rate", f"{load.rate_rps / calls(load):.9g}", "--timeout", f"{load.timeout_s:.9g}"]
    argv += ["--num-conns", str(connections(load)), "--num-calls", str(calls(load)), "--wlog", "y,urls"]
    return Command(argv=argv, files={"urls": "".join(f"{urlsplit(url).path}\0" for url in load.urls)})


def parse(load: OpenLoad, output: Output) -> ToolResult:
    """Read the summary. Late requests count as `late`, not as failed.

    When httperf gives up a connection, the requests that were to follow on it count as late as well. The mean response
    time is to the first byte of the replies that came.
    Raises ToolError if a line is missing, or if there were fewer connections than planned.
    """
    raise_if_killed(output, "httperf")
    figures: dict[str, list[float]] = {}
    for name, pattern in _LINES.items():
        match = re.search(rf"^{pattern}", output.stdout, re.MULTILINE)
        if not match:
            raise ToolError(f"httperf: its summary has no {pattern.partition(':')[0]!r}; {last_words(output)}")
        figures[name] = [float(word) for word in match.groups()]
    opened, _, replies, elapsed_s = figures["total"]
    given_up, lost, unsent = figures["errors"][1], sum(figures["errors"][2:]), sum(figures["unsent"])
    if opened + unsent < connections(load):
        raise ToolError(f"httperf: opened {opened:.0f} of {connections(load)} connections; {last_words(output)}")
    planned, successful = connections(load) * calls(load), int(figures["status"][1])
    missing = planned - int(unsent) * calls(load) - int(replies)
    late = missing - int(lost) if given_up else 0
    return ToolResult(
        transactions=int(replies),
        successful=successful,
        failed=int(replies) - successful + missing - late,
        elapsed_s=elapsed_s,
        transferred_mb=replies * sum(figures["size"]) / 1e6,
        availability_pct=100 * successful / planned,
        response_time_mean_ms=figures["time"][0],
        planned=planned,
        late=late,
        unsent=int(unsent) * calls(load),
        columns=_rates(figures),
    )


def _rates(figures: dict[str, list[float]]) -> dict[str, float]:
    """Rates that autobench calls con_rate, req_rate, and min, avg, max and stddev of rep_rate.

    httperf samples the reply rate every five seconds, so a shorter load has none.
    """
    *replies, samples = figures["replies"]
    names = ("reply_rps_min", "reply_rps_mean", "reply_rps_max", "reply_rps_stddev")
    sampled = dict(zip(names, replies, strict=True)) if samples else {}
    return {"connection_rps": figures["connections"][0], "request_rps": figures["requests"][0], **sampled}


TOOL = Adapter(
    command=command,
    parse=parse,
    package="httperf",
    open_loop=True,
    refused_for_tails="it prints means and no percentiles",
    refused_for_tls="it stalls on replies of 8 to 16 KB",
    tick_s=1e-3,
)

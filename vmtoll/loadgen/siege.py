"""siege: the closed-loop tool of many published experiments; it counts time in ticks of 10 ms, so it yields no tails.

Its exit status means nothing and `-t` may hang, so the load is a number of repetitions, and its summary must account
for all planned requests. With keep-alive it counts a failure for each connection that the server closes, even properly.
User i starts at line i × lines ÷ users of the URL list.
"""

import math
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
    raise_if_killed,
)
from vmtoll.model.errors import ToolError

# A complete file: `-R` replaces the system's file entirely, so no setting of a machine remains.
_SIEGERC = """\
verbose = false
color = off
quiet = false
logging = false
show-logfile = false
json_output = false
csv = false
timestamp = false
display-id = false
fullurl = false
gmethod = GET
parser = false
internet = false
benchmark = true
delay = 0
protocol = HTTP/1.1
chunked = true
cache = false
cookies = false
follow-location = false
accept-encoding = identity
connection = {connection}
limit = {limit}
timeout = {timeout}
failures = {failures}
user-agent = vmtoll-siege
"""

_FIELDS = {
    "transactions": "Transactions",
    "availability_pct": "Availability",
    "elapsed_s": "Elapsed time",
    "transferred_mb": "Data transferred",
    "response_time_s": "Response time",
    "concurrency": "Concurrency",
    "successful": "Successful transactions",
    "failed": "Failed transactions",
    "longest_s": "Longest transaction",
    "shortest_s": "Shortest transaction",
}


def planned(load: ClosedLoad) -> int:
    """Number of requests that siege will actually send: the same for each user."""
    return repetitions(load) * load.users


def repetitions(load: ClosedLoad) -> int:
    return max(1, math.ceil(load.requests / load.users))


def command(load: ClosedLoad) -> Command:
    """siege with a complete configuration, a bounded number of repetitions and its own home directory."""
    siegerc = _SIEGERC.format(
        connection="keep-alive" if load.keep_alive else "close",
        limit=load.users + 1,
        timeout=math.ceil(load.timeout_s),
        failures=planned(load) + 1,
    )
    post = f" POST <{BODY}" if load.body_bytes else ""
    argv = ["siege", "-R", "siegerc", "-c", str(load.users), "-r", str(repetitions(load)), "-b"]
    return Command(
        argv=[*argv, "-f", "urls.txt"],
        files={"siegerc": siegerc, "urls.txt": "".join(f"{url}{post}\n" for url in load.urls), **body_file(load)},
        env={"HOME": "."},  # siege writes a template and a cookie jar there
        threads=load.users,
    )


def parse(load: ClosedLoad, output: Output) -> ToolResult:
    """Read the summary that siege prints on stderr (or stdout).

    Raises ToolError if a line is missing, or if transactions and failures are fewer than planned. Failed or
    unsuccessful transactions are no error here: they are counted, and a gate judges them.
    """
    raise_if_killed(output, "siege")
    text = output.stderr + "\n" + output.stdout
    figures: dict[str, float] = {}
    for name, label in _FIELDS.items():
        match = re.search(rf"^{label}:\s+{NUMBER}\s*(?:hits|%|secs|MB|trans/sec|MB/sec)?\s*$", text, re.MULTILINE)
        if not match:
            raise ToolError(f"siege: its summary has no line {label!r}; {last_words(output)}")
        figures[name] = float(match[1])
    if figures["elapsed_s"] <= 0 and figures["transactions"] > 0:
        figures["elapsed_s"] = 0.01  # below a tick
    transactions, failed = int(figures["transactions"]), int(figures["failed"])
    if transactions + failed < planned(load):
        raise ToolError(f"siege: made {transactions} of {planned(load)} requests, {failed} failed")
    return ToolResult(
        transactions=transactions,
        # siege counts a page that needed another round trip as more than one success
        successful=min(int(figures["successful"]), transactions),
        failed=failed + max(0, transactions - int(figures["successful"])),
        elapsed_s=figures["elapsed_s"],
        transferred_mb=figures["transferred_mb"] * 2**20 / 1e6,  # its MB are MiB
        availability_pct=figures["availability_pct"],
        response_time_mean_ms=figures["response_time_s"] * 1000,
        concurrency=figures["concurrency"],
        longest_ms=figures["longest_s"] * 1000,
        shortest_ms=figures["shortest_s"] * 1000,
    )


TOOL = Adapter(
    command=command,
    parse=parse,
    package="siege",
    closed_loop=True,
    refused_for_tails="it knows users, not rates, and counts time in ticks of 10 ms",
    tick_s=0.01,
    tls=True,
    sends_bodies=True,
)

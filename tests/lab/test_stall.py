"""The stall test: a server that stands still for 400 ms under 2,000 requests per second, and who tells the truth.

The truth: a request that is due `x` seconds after the stall began waits until its end. Of `T` seconds of requests
at an even rate the slowest hundredth is what was due in the first `T / 100` seconds of the stall, so that the 99th
percentile is the length of the stall less `T / 100`. What server and client need to catch up comes on top: some ms, and
tens of them on a slow machine.
"""

from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.lab.faults import changed, measured, once
from tests.lab.records import BY_INJECTION, number, primary, undisturbed
from tests.lab.the_lab import Ssh
from vmtoll import loadgen
from vmtoll.analysis.histograms import goodput_rps, merged_percentiles
from vmtoll.model.event import Phase
from vmtoll.model.finding import Code

pytestmark = pytest.mark.lab

RATE_RPS, DURATION_S, DEADLINE_MS = 2000, 4.0, 50
# vegeta waits with at most 500 requests at once, fewer than are due during the stall, and sends the others late.
LATE = {"vegeta": frozenset({Code.RATE_NOT_REACHED, Code.CLIENT_LATE}), "oha": frozenset[Code]()}
STALL = (
    "pids=$(pidof lighttz); sleep {after_s}; begin=$(date +%s%N); kill -STOP $pids; sleep 0.4; "
    "kill -CONT $pids; echo $begin $(date +%s%N)"
)


def stall_s(ssh: Ssh, after_s: float = 1.0) -> float:
    """Stop the server for 400 ms; how long it really was."""
    begin_ns, end_ns = map(int, ssh("metal", STALL.format(after_s=after_s)).split())
    return (end_ns - begin_ns) / 1e9


def true_p99_us(stalled_s: float) -> float:
    return (stalled_s - DURATION_S / 100) * 1e6


@pytest.mark.injects(Code.STALLED)
@pytest.mark.parametrize("tool", ["vegeta", pytest.param("oha", marks=pytest.mark.guest_minutes)])
def test_an_honest_tool_reports_the_stall(lab: Path, ssh: Ssh, tmp_path: Path, tool: str) -> None:
    """From the tool over the stored histogram to the value: p99 has the stall and the catching up after it."""
    workload = {"kind": "rate", "tool": tool, "rate_rps": RATE_RPS, "deadline_ms": DEADLINE_MS, "users": None}
    stalled: list[Future[float]] = []
    with ThreadPoolExecutor() as pool:
        inject = once(Phase.MEASURING, lambda: stalled.append(pool.submit(stall_s, ssh)), tool)
        record = measured(tmp_path, inject, workload=workload, duration_s=DURATION_S)[0]
    truth_us = true_p99_us(stalled[0].result())
    load = primary(record)
    assert load.successful == load.requests == 8000, record.findings
    # A machine beside other work is slow to catch up. Then as many requests are late as in a longer stall.
    late_s = DURATION_S * (1 - number(load.goodput_rps) / RATE_RPS)
    p99_us = number(load.response_time.p99_us)
    assert 0.9 * truth_us < p99_us < 1.1 * true_p99_us(late_s + DEADLINE_MS / 1000)
    assert undisturbed(record) <= {Code.STALLED} | BY_INJECTION | LATE[tool]
    folder = (tmp_path / "results" / "latest").resolve()
    trials = pd.DataFrame({"record": [record], "requests": 8000, "offered_rps": RATE_RPS})
    merged = merged_percentiles(folder, trials)
    assert merged and merged[2] == pytest.approx(p99_us, rel=0.02)
    # Late is what was due in the stall, and then until the machine has caught up: as the stored latencies have it.
    late = RATE_RPS * (stalled[0].result() - DEADLINE_MS / 1000)
    assert number(load.goodput_rps) < 1.02 * RATE_RPS * (1 - late / 8000)
    assert goodput_rps(folder, trials, [DEADLINE_MS]) == pytest.approx(number(load.goodput_rps), rel=0.01)
    assert loadgen.get(tool).refused_for_tails is None


# Each prints one time a request, in µs.
DISHONEST = {
    "h2load --rps": "h2load --h1 -t 1 -c 10 -n 8000 --rps 200 --log-file=log {url} >&2 && awk '{{print $3}}' log",
    "oha without --latency-correction": "oha --no-tui -c 10 -n 8000 -q 2000 --output-format csv -o log {url} >&2 && "
    "awk -F, 'NR > 1 {{ print $5 * 1e6 }}' log",
}


@pytest.mark.parametrize("tool", DISHONEST)
def test_a_tool_that_hides_the_stall_is_refused_for_tails(lab: Path, ssh: Ssh, tool: str) -> None:
    """It sends nothing while it waits, and what it did not send has no time: p99 is a tenth of the truth or less."""
    file = ssh("metal", "cd /srv/vmtoll/sites; find office -type f -size -2 | sort | head -n 1")
    command = f"cd $(mktemp -d) && {DISHONEST[tool].format(url=f'http://198.18.0.20:8080/{file}')}"
    with changed(ssh, "metal", "systemctl start vmtoll-lighttz", "systemctl stop vmtoll-lighttz"):
        with ThreadPoolExecutor() as pool:
            times = pool.submit(ssh, "client", command)
            truth_us = true_p99_us(stall_s(ssh))
        times_us = np.array(times.result().split(), dtype=float)
    assert len(times_us) == 8000
    assert times_us.max() > 0.9 * truth_us, "it saw the stall"
    assert np.percentile(times_us, 99) < truth_us / 10
    assert loadgen.get("h2load").refused_for_tails
    assert "--latency-correction" in loadgen.get("oha").command(loadgen.OpenLoad(["u"], 1, 1, keep_alive=True)).argv

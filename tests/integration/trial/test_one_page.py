"""One page of a site, through whole runs on this machine: the real ab and httperf against a real lighttz."""

import contextlib
import itertools
import subprocess
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.measured import run
from tests.support.records import assert_sound, primary, records_of
from vmtoll import loadgen
from vmtoll.loadgen import OpenLoad, Output
from vmtoll.model.load import Load, LoadKind
from vmtoll.model.trial import TrialRecord
from vmtoll.spec.catalog import Registry

Measured = Callable[..., list[TrialRecord]]


@pytest.fixture
def measured(project: Registry, inventory: Path, tmp_path: Path, rewrite: Callable[..., Path]) -> Measured:
    """Run a workload on the page index.html of one machine; its records."""

    def go(**keys: Any) -> list[TrialRecord]:
        workload = {"description": "one page", "site": "tiny", "page": "index.html", **keys}
        project.workload_file("tiny").write_text(yaml.safe_dump(workload))
        experiment = rewrite(blocks=1, environments=["metal"], noise_floor=None, duration_s=0.3)
        return records_of(run(experiment, inventory, tmp_path / "results", registry=project))

    return go


@pytest.mark.parametrize("keep_alive", [True, False])
def test_ab_on_one_page(measured: Measured, keep_alive: bool) -> None:
    [record] = measured(tool="ab", users=5, keep_alive=keep_alive)
    assert_sound([record])
    measurement = primary(record)
    assert measurement.successful == measurement.requests == measurement.transactions
    p50, p90, p99 = (measurement.service_time.of(share) or 0 for share in ("p50", "p90", "p99"))
    assert 0 < p50 <= p90 <= p99
    assert measurement.service_time.p999_us is None, "ab knows whole percents only"


def test_a_ramp_counts_what_comes_within_the_deadline(measured: Measured) -> None:
    records = measured(kind="ramp", tool="httperf", rates_rps=[100, 300], deadline_ms=100.0, keep_alive=False)
    assert {record.scenario.load for record in records} == {Load(LoadKind.RATE, 100), Load(LoadKind.RATE, 300)}
    assert_sound(records)
    for record in records:
        ramp, offered_rps = primary(record), record.offered.offered_rps
        connections_rps = ramp.column("connection_rps") or 0
        assert (ramp.failed, record.offered.deadline_ms) == (0, 100)
        assert ramp.goodput_rps and ramp.throughput_rps and ramp.transactions and offered_rps
        assert 0 < ramp.goodput_rps <= offered_rps
        assert 0 < ramp.throughput_rps < 1.1 * offered_rps
        each = ramp.throughput_rps / ramp.transactions
        assert ramp.requests and connections_rps == pytest.approx(each * ramp.requests, rel=0.01)
        assert connections_rps < 1.1 * offered_rps
        assert ramp.response_time.p99_us is None, "httperf prints no percentiles"


class EverySecondIsSlow(BaseHTTPRequestHandler):
    """Answers every second request after six seconds, the others at once."""

    numbers = itertools.count()

    def do_GET(self) -> None:
        if next(self.numbers) % 2:
            time.sleep(6)
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        with contextlib.suppress(ConnectionError):  # httperf has given up
            self.wfile.write(b"ok")

    def log_message(self, *words: object) -> None:
        del words


class Listener(ThreadingHTTPServer):
    """A connection that did not fit into the listen queue would be a second late."""

    request_queue_size = 64


def test_httperf_finds_what_misses_the_deadline(tmp_path: Path) -> None:
    tool = loadgen.get("httperf")
    with Listener(("127.0.0.1", 0), EverySecondIsSlow) as server:
        threading.Thread(target=server.serve_forever).start()
        url = f"http://127.0.0.1:{server.server_port}/"
        load = OpenLoad([url], rate_rps=50, requests=40, keep_alive=False, timeout_s=3.0)
        command = tool.command(load)
        for name, text in command.files.items():
            (tmp_path / name).write_text(text)
        done = subprocess.run(command.argv, cwd=tmp_path, capture_output=True, text=True, check=False)
        server.shutdown()
    seen = tool.parse(load, Output(done.stdout, done.stderr, done.returncode))
    assert (seen.successful, seen.late, seen.failed) == (20, 20, 0)

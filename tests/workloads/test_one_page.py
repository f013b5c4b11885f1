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

from workloads import tools
from workloads.runner.registry import Registry
from workloads.runner.results import Store
from workloads.runner.run import run
from workloads.tools import OpenLoad, Output

Measured = Callable[..., list[dict[str, str]]]


@pytest.fixture
def measured(project: Registry, inventory: Path, tmp_path: Path, rewrite: Callable[..., Path]) -> Measured:
    """Run a workload on the page index.html of one machine; its rows."""

    def go(**keys: Any) -> list[dict[str, str]]:
        workload = {"description": "one page", "site": "tiny", "page": "index.html", **keys}
        project.workload_file("tiny").write_text(yaml.safe_dump(workload))
        experiment = rewrite(blocks=1, environments=["metal"], noise_floor=None, duration_s=0.3)
        store = Store(run(experiment, inventory, tmp_path / "results", registry=project))
        try:
            return store.rows()
        finally:
            store.close()

    return go


@pytest.mark.parametrize("keep_alive", [True, False])
def test_ab_on_one_page(measured: Measured, keep_alive: bool) -> None:
    [row] = measured(tool="ab", twin=None, users=5, keep_alive=keep_alive)
    assert row["verdict"] in {"valid", "suspect"}, row["reasons"]
    assert row["successful"] == row["requests"] == row["transactions"]
    p50, p90, p99 = (float(row[f"service_time_{share}_us"]) for share in ("p50", "p90", "p99"))
    assert 0 < p50 <= p90 <= p99
    assert row["service_time_p999_us"] == "", "ab knows whole percents only"


def test_a_ramp_counts_what_comes_within_the_deadline(measured: Measured) -> None:
    rows = measured(kind="ramp", tool="httperf", rates_rps=[100, 300], deadline_ms=100.0, keep_alive=False)
    assert {row["offered_load"] for row in rows} == {"rate:100", "rate:300"}
    for row in rows:
        assert row["verdict"] in {"valid", "suspect"}, row["reasons"]
        assert (row["failed"], row["deadline_ms"]) == ("0", "100")
        assert 0 < float(row["goodput_rps"]) <= float(row["throughput_rps"]) < 1.1 * float(row["offered_rps"])
        each = float(row["throughput_rps"]) / int(row["transactions"])
        assert float(row["connection_rps"]) == pytest.approx(each * int(row["requests"]), rel=0.01)
        assert float(row["connection_rps"]) < 1.1 * float(row["offered_rps"])
        assert row["response_time_p99_us"] == "", "httperf prints no percentiles"


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
    tool = tools.get("httperf")
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

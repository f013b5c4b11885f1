"""The server's own times in the records of whole runs on this machine: a real agent, a real lighttz."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
import yaml

from tests.support.measured import run
from tests.support.ports import free_port
from tests.support.records import crosscheck, primary, records_of
from vmtoll.agent.servers import metrics_page
from vmtoll.machines.connection import AgentLine
from vmtoll.model.columns import flat
from vmtoll.model.errors import AgentError
from vmtoll.model.inventory import Host
from vmtoll.model.trial import TrialRecord
from vmtoll.spec.catalog import Registry
from vmtoll.trial.server_times import parse

FIGURES = [f"server_{name}_{share}_us" for name in ("time", "loop_lag") for share in ("p50", "p99", "p999")]


def tell_metrics(root: Path, *, path: str = "/-/metrics") -> int:
    """Let the server of a machine tell its metrics; `path`: where the agent asks for them. Returns the port."""
    port = free_port()
    with (root / "lighttz.conf").open("a") as config:
        config.write(f"status_listen = 127.0.0.1:{port}\n")
    file = root / "etc/vmtoll/servers/lighttz.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "metrics": {"port": port, "path": path}}))
    return port


@pytest.fixture
def metal(inventory: Path, tmp_path: Path) -> Iterator[AgentLine]:
    tell_metrics(tmp_path / "metal")
    variables = yaml.safe_load(inventory.read_text())["all"]["children"]["metal_hosts"]["hosts"]["metal"]
    line = AgentLine(Host("metal", "metal", variables))
    line.open()
    line.call("server_start", name="lighttz")
    yield line
    line.close()


def figures_of(record: TrialRecord) -> list[float | None]:
    return [primary(record).column(name) for name in FIGURES]


def test_the_servers_own_times_are_in_the_record(project: Registry, inventory: Path, tmp_path: Path) -> None:
    """Of a server that tells them; of one whose answer is none of metrics the trial is as good, without figures."""
    tell_metrics(tmp_path / "metal")
    tell_metrics(tmp_path / "metal-two", path="/-/elsewhere")
    folder = run(project.experiment_file("tiny"), inventory, tmp_path / "results", registry=project)
    records = records_of(folder)
    assert len(records) == 6
    for record in records:
        assert primary(record).successful == primary(record).requests
        if record.arm.environment == "metal-two":
            assert figures_of(record) == [None] * len(FIGURES)
            continue
        assert flat(record)["crosscheck_server_time_p50_us"] == crosscheck(record).server_time.p50_us
        for measurement in (primary(record), crosscheck(record)):
            for name in ("time", "loop_lag"):
                told = [measurement.column(f"server_{name}_{share}_us") for share in ("p50", "p99", "p999")]
                values = [value for value in told if value is not None]  # no p99.9 of few requests
                assert values and values[0] > 0 and values == sorted(values) and values[-1] < 8.4e6, (name, told)
        # A client sees at least what the server takes, and the server's buckets are half an octave wide.
        seen_us = crosscheck(record).service_time.p50_us
        told_us = crosscheck(record).server_time.p50_us
        assert seen_us and told_us and told_us <= seen_us * 1.5


def test_requests_of_the_agent_are_not_counted(metal: AgentLine) -> None:
    files = json.loads((Path(metal.host.root) / "srv/vmtoll/sites/tiny.manifest.json").read_text())["files"]
    paths = [{"path": f"tiny/{file['path']}", "sha256": file["sha256"]} for file in files]
    before = parse(metal.call("server_metrics", name="lighttz"))
    for _ in range(5):
        metal.call("server_metrics", name="lighttz")
    metal.call("http_check", host="127.0.0.1", port=metal.host.port, files=paths)
    after = parse(metal.call("server_metrics", name="lighttz"))
    assert before and after
    load = after.since(before)
    assert load and sum(load.service.counts) == len(files)


def test_a_stopped_server_reports_no_times(metal: AgentLine) -> None:
    metal.call("server_stop", name="lighttz")
    assert metal.call("server_metrics", name="lighttz") is None


def test_the_port_of_the_metrics_must_be_free_too(metal: AgentLine) -> None:
    spec = json.loads((Path(metal.host.root) / "etc/vmtoll/servers/lighttz.json").read_text())
    metal.call("server_stop", name="lighttz")
    port = spec["metrics"]["port"]
    taken = pytest.raises(AgentError, match=f"port {port} .*in use .* lighttz ")
    with HTTPServer(("127.0.0.1", port), BaseHTTPRequestHandler), taken:
        metal.call("server_start", name="lighttz")


class Broken(BaseHTTPRequestHandler):
    """Answers with an error, with no text, or with less than it announces."""

    def do_GET(self) -> None:
        self.send_response(503 if self.path == "/503" else 200)
        self.send_header("Content-Length", "3")
        self.end_headers()
        self.wfile.write({"/binary": b"\xff\xfe\xfd", "/short": b"1"}.get(self.path, b"123"))

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.parametrize(("path", "answer"), [("/fine", "123"), ("/503", None), ("/binary", None), ("/short", None)])
def test_a_broken_answer_is_none(path: str, answer: str | None) -> None:
    with HTTPServer(("127.0.0.1", 0), Broken) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        assert metrics_page({"port": server.server_port, "path": path}, 5) == answer
        server.shutdown()


def test_a_server_that_does_not_answer_is_none() -> None:
    with HTTPServer(("127.0.0.1", 0), Broken) as server:
        assert metrics_page({"port": server.server_port, "path": "/"}, 0.1) is None

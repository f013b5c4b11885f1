"""Requests with bodies: the real load tools against a server that counts octets, and whole runs on this machine."""

import subprocess
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.machines import SITE
from tests.support.measured import run
from tests.support.records import assert_sound, primary, records_of
from vmtoll import loadgen
from vmtoll.loadgen import ClosedLoad, OpenLoad, Output, ToolLoad
from vmtoll.spec.catalog import Registry

BODY_BYTES = 70_001
TOOLS = [name for name in loadgen.names() if loadgen.get(name).sends_bodies]


class Counting(ThreadingHTTPServer):
    """Answers a POST when its whole body is there; `received` has path and octets of each."""

    request_queue_size = 64

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Reading)
        self.received: list[tuple[str, bytes]] = []


class _Reading(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Counting

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.received.append((self.path, body))
        self.send_response(200)
        self.send_header("Content-Length", "2")
        if self.headers.get("Connection", "").lower() == "keep-alive":  # ab wants to read it
            self.send_header("Connection", "keep-alive")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, *words: object) -> None:
        del words


@pytest.fixture
def counting() -> Iterator[Counting]:
    with Counting() as server:
        threading.Thread(target=server.serve_forever).start()
        yield server
        server.shutdown()


def loads(tool: str, url: str) -> list[ToolLoad]:
    """A load of each kind that the tool can send, with and without keep-alive."""
    adapter = loadgen.get(tool)
    keeps = [True, False] if adapter.can_close else [True]
    closed = [ClosedLoad([url], 3, 12, keep, body_bytes=BODY_BYTES) for keep in keeps if adapter.closed_loop]
    opened = [OpenLoad([url], 50, 12, keep, body_bytes=BODY_BYTES) for keep in keeps if adapter.open_loop]
    return [*closed, *opened]


@pytest.mark.usefixtures("load_tools")
@pytest.mark.parametrize("tool", TOOLS)
def test_each_octet_of_each_body_arrives(tool: str, counting: Counting, tmp_path: Path) -> None:
    adapter = loadgen.get(tool)
    for number, load in enumerate(loads(tool, f"http://127.0.0.1:{counting.server_port}/site/page.html")):
        folder = tmp_path / str(number)
        folder.mkdir()
        command = adapter.command(load)
        for name, text in command.files.items():
            (folder / name).write_text(text)
        counting.received.clear()
        done = subprocess.run(command.argv, cwd=folder, capture_output=True, text=True, check=False)
        if command.finish:
            subprocess.run(command.finish, cwd=folder, check=True)
        files = {name: (folder / name).read_bytes() for name in command.outputs if (folder / name).exists()}
        seen = adapter.parse(load, Output(done.stdout, done.stderr, done.returncode, files))
        assert (seen.successful, seen.failed) == (12, 0)
        wanted = (folder / "body").read_bytes()
        assert len(wanted) == BODY_BYTES
        assert counting.received == [("/site/page.html", wanted)] * 12


def test_the_tools_that_send_bodies() -> None:
    assert TOOLS == ["ab", "h2load", "oha", "siege", "vegeta"]


@pytest.fixture
def project(project: Registry) -> Registry:
    """The project with a page that answers uploads, and lighttz as its server."""
    project.site_file("tiny").write_text(yaml.safe_dump({**SITE, "pages": {"received.html": "received\n"}}))
    definition = project.servers_folder() / "lighttz/server.yml"
    definition.write_text(f"{definition.read_text()}uploads: tiny/received.html\n")
    return project


@pytest.fixture
def uploads(inventory: Path, tmp_path: Path) -> Path:
    """The inventory, whose lighttz answers uploads by a script."""
    script = tmp_path / "upload.lua"
    script.write_text('function handle(request) return 200, "received\\n", {["Content-Type"] = "text/html"} end\n')
    for conf in tmp_path.glob("*/lighttz.conf"):
        keys = f"lua_script = {script}\nlua_prefix = /tiny/received.html\n"
        conf.write_text(conf.read_text() + keys)
    return inventory


@pytest.mark.usefixtures("load_tools")
@pytest.mark.parametrize(
    "keys",
    [
        {"users": 2, "tool": "h2load", "crosscheck": "oha"},
        {"users": 2, "tool": "siege", "crosscheck": "ab"},
        {"kind": "rate", "rate_rps": 100, "deadline_ms": 50, "tool": "vegeta", "crosscheck": "oha"},
    ],
    ids=["h2load", "siege", "vegeta"],
)
def test_a_run_of_uploads(
    project: Registry, uploads: Path, tmp_path: Path, rewrite: Callable[..., Path], keys: dict[str, Any]
) -> None:
    posts = {"method": "POST", "body_bytes": 50_000, "page": "received.html", "keep_alive": True}
    project.workload_file("tiny").write_text(
        yaml.safe_dump({"description": "uploads", "site": "tiny", **posts, **keys})
    )
    records = records_of(run(rewrite(blocks=1, noise_floor=None), uploads, tmp_path / "results", registry=project))
    assert_sound(records)
    assert {record.arm.environment for record in records} == {"metal", "metal-two"}
    for record in records:
        assert primary(record).failed == 0
        assert primary(record).successful
        assert record.counts.bodies_wrong == 0

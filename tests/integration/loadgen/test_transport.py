"""Load tools over TLS and HTTP/2, against a real nginx that logs what each request came over."""

import os
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.ports import free_ports
from tests.support.real_servers import install, wait_for
from vmtoll import loadgen
from vmtoll.loadgen import ClosedLoad, OpenLoad, Output
from vmtoll.model.transport import CIPHER, PROTOCOL, tls_port

# r: the session was resumed; a dot: a full handshake.
_FORMAT = "$ssl_protocol $ssl_cipher $ssl_session_reused $server_protocol $connection"
FILES = 10


class Logged:
    """A running nginx; `send` gives what a tool's load came to there."""

    def __init__(self, port: int, log: Path, folder: Path) -> None:
        self.port, self.log, self.folder = port, log, folder

    def urls(self, *, resumption: bool = False) -> list[str]:
        port = tls_port(self.port, resumption=resumption)
        return [f"https://127.0.0.1:{port}/tiny/{number}.html" for number in range(FILES)]

    def send(self, tool: str, load: ClosedLoad | OpenLoad) -> tuple[Counter[str], int]:
        """How many requests came over what; on how many connections. Every request succeeds."""
        adapter, known = loadgen.get(tool), self.log.read_text().count("\n")
        command = adapter.command(load)
        for name, text in command.files.items():
            (self.folder / name).write_text(text)
        done = subprocess.run(
            list(command.argv), cwd=self.folder, capture_output=True, text=True, timeout=60, check=False,
            env={**os.environ, **command.env},
        )  # fmt: skip
        if command.finish:
            subprocess.run(list(command.finish), cwd=self.folder, check=True)
        files = {name: (self.folder / name).read_bytes() for name in command.outputs if (self.folder / name).exists()}
        result = adapter.parse(load, Output(done.stdout, done.stderr, done.returncode, files))
        assert (result.transactions, result.successful, result.failed) == (load.requests, load.requests, 0)
        wait_for(lambda: self.log.read_text().count("\n") >= known + load.requests)
        lines = [line.split() for line in self.log.read_text().splitlines()[known:]]
        assert len(lines) == load.requests
        assert {tuple(line[:2]) for line in lines} == {(PROTOCOL, CIPHER)}
        return Counter(f"{line[2]} {line[3]}" for line in lines), len({line[4] for line in lines})


@pytest.fixture
def nginx(readable_folder: Path, tmp_path: Path, load_tools: None) -> Iterator[Logged]:
    port, log = free_ports(), readable_folder / "requests.log"
    spec = install("nginx", readable_folder, port, tmp_path)
    configuration = readable_folder / "etc/vmtoll/servers/nginx/nginx.conf"
    text = configuration.read_text()
    assert "access_log off;" in text
    configuration.write_text(text.replace("access_log off;", f"log_format seen '{_FORMAT}'; access_log {log} seen;"))
    (readable_folder / "srv/vmtoll/sites/tiny").mkdir(parents=True)
    for number in range(FILES):
        (readable_folder / f"srv/vmtoll/sites/tiny/{number}.html").write_text("x" * 1000 * number)
    work = tmp_path / "work"
    work.mkdir()
    with subprocess.Popen(spec["command"], stderr=subprocess.DEVNULL) as process:
        try:
            wait_for(log.exists)
            yield Logged(port, log, work)
        finally:
            process.terminate()


@pytest.mark.parametrize("tool", ["h2load", "oha", "siege"])
def test_closed_loops_reuse_their_connections(nginx: Logged, tool: str) -> None:
    seen = nginx.send(tool, ClosedLoad(nginx.urls(), 3, 60, keep_alive=True))
    assert seen == (Counter({". HTTP/1.1": 60}), 3)


def test_ab_speaks_http_1_0_inside_of_tls(nginx: Logged) -> None:
    """One page; also where the server offers tickets it takes none."""
    for resumption in (False, True):
        (page, *_) = nginx.urls(resumption=resumption)[1:]
        assert nginx.send("ab", ClosedLoad([page], 3, 60, keep_alive=True)) == (Counter({". HTTP/1.0": 60}), 3)
        assert nginx.send("ab", ClosedLoad([page], 3, 60, keep_alive=False)) == (Counter({". HTTP/1.0": 60}), 60)


@pytest.mark.parametrize("resumption", [False, True])
@pytest.mark.parametrize("tool", ["oha", "siege"])
def test_closed_loops_make_a_full_handshake_for_every_request(nginx: Logged, tool: str, *, resumption: bool) -> None:
    """Also where the server offers tickets: these tools take none."""
    seen = nginx.send(tool, ClosedLoad(nginx.urls(resumption=resumption), 3, 60, keep_alive=False))
    assert seen == (Counter({". HTTP/1.1": 60}), 60)


@pytest.mark.parametrize("tool", ["h2load", "oha"])
def test_users_have_many_streams_on_one_connection(nginx: Logged, tool: str) -> None:
    seen = nginx.send(tool, ClosedLoad(nginx.urls(), 2, 400, keep_alive=True, http="2", streams=5))
    assert seen == (Counter({". HTTP/2.0": 400}), 2)


@pytest.mark.parametrize("tool", ["vegeta", "oha"])
def test_an_open_loop_has_one_connection_of_http2(nginx: Logged, tool: str) -> None:
    seen = nginx.send(tool, OpenLoad(nginx.urls(), 200, 100, keep_alive=True, http="2"))
    assert seen == (Counter({". HTTP/2.0": 100}), 1)


@pytest.mark.parametrize("tool", ["vegeta", "oha"])
def test_an_open_loop_makes_full_handshakes(nginx: Logged, tool: str) -> None:
    seen = nginx.send(tool, OpenLoad(nginx.urls(), 200, 100, keep_alive=False))
    assert seen == (Counter({". HTTP/1.1": 100}), 100)


def test_vegeta_resumes_sessions_only_if_configured(nginx: Logged) -> None:
    urls = nginx.urls(resumption=True)
    told_not_to = nginx.send("vegeta", OpenLoad(urls, 50, 50, keep_alive=False))
    assert told_not_to == (Counter({". HTTP/1.1": 50}), 50)
    kinds, connections = nginx.send("vegeta", OpenLoad(urls, 50, 50, keep_alive=False, resumption=True))
    assert (connections, kinds["r HTTP/1.1"] + kinds[". HTTP/1.1"]) == (50, 50)
    assert kinds["r HTTP/1.1"] > kinds[". HTTP/1.1"] > 0, "the first has nothing to resume"


def test_a_ticket_of_a_port_without_tickets_resumes_nothing(nginx: Logged) -> None:
    seen = nginx.send("vegeta", OpenLoad(nginx.urls(), 50, 50, keep_alive=False, resumption=True))
    assert seen == (Counter({". HTTP/1.1": 50}), 50)

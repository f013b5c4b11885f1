"""The TLS listeners of each server's own configuration, as a client of its port sees them."""

import re
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.support.ports import free_ports
from tests.support.real_servers import install, wait_for
from vmtoll.agent.servers import listens
from vmtoll.model.transport import tls_port
from vmtoll.model.workload import MOST_STREAMS
from vmtoll.spec.server import Tls, read_server

NO_H2O = 'VERSION_ID="13"' in Path("/etc/os-release").read_text()
H2O = pytest.param("h2o", marks=pytest.mark.skipif(NO_H2O, reason="Debian 13 does not ship h2o"))
SERVERS = ("nginx", "lighttpd", "apache-event", "caddy", H2O)


@pytest.fixture
def port(
    request: pytest.FixtureRequest, readable_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[int]:
    """The plain port of a server, named by `server`, that runs by its own configuration."""
    monkeypatch.setenv("GOMAXPROCS", "1")
    port = free_ports()
    spec = install(request.getfixturevalue("server"), readable_folder, port, tmp_path)
    (readable_folder / "srv/vmtoll/sites").mkdir(parents=True)
    (readable_folder / "srv/vmtoll/sites/index.html").write_text("x" * 1000)
    with subprocess.Popen(spec["command"], stderr=subprocess.DEVNULL) as process:
        try:
            for each in (port, *spec["tls"]["ports"]):
                wait_for(partial(listens, each))
            yield port
        finally:
            process.terminate()


def tls_of(server: str) -> Tls:
    tls = read_server(server).tls
    assert tls is not None
    return tls


@pytest.mark.parametrize("server", SERVERS)
def test_a_server_takes_as_many_streams_as_it_says(server: str, port: int) -> None:
    """A workload's streams beyond a server's limit would wait in the client."""
    url = f"https://127.0.0.1:{tls_port(port, resumption=False)}/index.html"
    done = subprocess.run(["nghttp", "-nv", url], capture_output=True, text=True, timeout=20, check=True)
    received = done.stdout.partition("recv SETTINGS")[2]
    limit = re.search(r"SETTINGS_MAX_CONCURRENT_STREAMS\(0x03\):(\d+)", received)
    assert limit, done.stdout
    most = tls_of(server).streams
    assert int(limit[1]) == most if most else int(limit[1]) >= MOST_STREAMS


def tickets(port: int) -> int:
    """How many session tickets a server sends after a full handshake, up to its first answer."""
    done = subprocess.run(
        ["openssl", "s_client", "-connect", f"127.0.0.1:{port}", "-alpn", "http/1.1", "-msg", "-ign_eof"],
        input="GET /index.html HTTP/1.1\r\nHost: vmtoll\r\nConnection: close\r\n\r\n",
        capture_output=True, text=True, timeout=20, check=False,
    )  # fmt: skip
    assert "HTTP/1.1 200" in done.stdout, done.stderr
    assert "New, TLSv1.3" in done.stdout
    return len(re.findall(r"^<<< .*NewSessionTicket", done.stdout, re.MULTILINE))


@pytest.mark.parametrize("server", SERVERS)
def test_no_ticket_arrives_on_the_port_that_never_resumes(server: str, port: int) -> None:
    """A ticket costs the server work and bytes, and this port counts handshakes."""
    assert tickets(tls_port(port, resumption=False)) == 0
    if tls_of(server).resumption:
        assert tickets(tls_port(port, resumption=True)) > 0

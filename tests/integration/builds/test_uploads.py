"""Servers of uploads, as they are provisioned: each reads the whole body of a POST before it answers."""

import contextlib
import fcntl
import json
import os
import select
import shlex
import shutil
import socket
import struct
import subprocess
import tempfile
import termios
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.machines import LIGHTTZ
from tests.support.ports import free_ports
from vmtoll.builds import certificate, servers
from vmtoll.builds.suite import guest_release
from vmtoll.model.release import RELEASES
from vmtoll.sites import SITES_DIR, build
from vmtoll.spec import server as spec
from vmtoll.spec.server import FOLDER, ServerDefinition, read_server, read_servers

BODY_BYTES = 1_000_000
UPLOADS = [server.name for server in read_servers() if server.uploads]


@dataclass(frozen=True)
class Started:
    """A server that listens; `session` holds all of its processes."""

    port: int
    session: int

    def rests(self) -> bool:
        """Whether each of its threads waits for something."""
        stats = [path.read_text() for process in self._processes() for path in process.glob("task/*/stat")]
        assert stats, "the server ended"
        return all(stat.rpartition(")")[2].split()[0] == "S" for stat in stats)

    def _processes(self) -> list[Path]:
        found = []
        for path in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                if int(path.read_text().rpartition(")")[2].split()[3]) == self.session:
                    found.append(path.parent)
        return found


Start = Callable[[str], Started]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that the servers' own user may read."""
    with tempfile.TemporaryDirectory(prefix="vmtoll-uploads-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture
def start(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Start a server from its rendered configuration; its processes are a session of their own."""
    monkeypatch.setattr(spec, "FOLDER", str(folder))
    monkeypatch.setattr(servers, "FOLDER", str(folder))
    monkeypatch.setattr(servers, "ROOT", str(folder / "sites"))
    build(SITES_DIR / "upload.yml", folder / "sites")
    started: list[subprocess.Popen[bytes]] = []

    def go(name: str) -> Started:
        definition, port = read_server(name), free_ports()
        program = _program(definition, folder)
        _configure(definition, port, folder)
        command = [word.replace(definition.binary, program) for word in shlex.split(definition.exec_start)]
        as_user = ["setpriv", "--reuid", definition.user, "--clear-groups"] if definition.user else []
        started.append(subprocess.Popen([*as_user, *command], stdin=subprocess.DEVNULL, start_new_session=True))
        _listens(port, started[-1])
        return Started(port, started[-1].pid)

    yield go
    for process in started:
        process.terminate()
        process.wait(30)


def _program(definition: ServerDefinition, folder: Path) -> str:
    """The program that serves. lighttz is made here; one that is not installed skips the test."""
    if definition.binary == read_server("lighttz").binary:
        return _lighttz(folder)
    if not Path(definition.binary).exists():
        pytest.skip(f"{definition.binary} is not installed ({', '.join(definition.packages)})")
    return definition.binary


def _lighttz(folder: Path) -> str:
    subprocess.run(["make", "-s", "-C", str(LIGHTTZ.parent.parent), "build/lighttz"], check=True)
    return str(shutil.copy(LIGHTTZ, folder / "lighttz"))


def _configure(definition: ServerDefinition, port: int, folder: Path) -> None:
    """Write the files that provisioning brings; what the unit's RuntimeDirectory is goes below `folder` too."""
    runtime, keys = folder / f"vmtoll-{definition.name}", folder / "keys"
    runtime.mkdir()
    keys.mkdir(exist_ok=True)
    for path, (content, _) in certificate.files(folder / "cache").items():
        (keys / Path(path).name).write_bytes(content)
    moved = {f"/run/vmtoll-{definition.name}": str(runtime), str(Path(certificate.CERTIFICATE).parent): str(keys)}
    for path, (content, _) in servers._files(definition, servers.Policy(port=port), guest_release()).items():
        if path.startswith(str(folder)):
            text = content.decode()
            for where, there in moved.items():
                text = text.replace(where, there)
            Path(path).parent.mkdir(exist_ok=True)
            Path(path).write_text(text)


def _listens(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        assert process.poll() is None, "the server ended"
        with contextlib.suppress(ConnectionError), socket.create_connection(("127.0.0.1", port)):
            return
        time.sleep(0.01)
    pytest.fail("the server does not listen")


def _on_its_way(connection: socket.socket) -> int:
    """Octets to the server that its kernel has not acknowledged."""
    return int(struct.unpack("i", fcntl.ioctl(connection, termios.TIOCOUTQ, b"\0" * 4))[0])


def _queued(connection: socket.socket) -> tuple[int, int]:
    """Octets in the server's socket: those that it has not read, and those of an answer that it holds back.

    nginx writes the end of a file into a socket that sends it 200 ms later (TCP_CORK).
    """
    ours, theirs = (f"{port:04X}" for port in (connection.getsockname()[1], connection.getpeername()[1]))
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, remote, _, queues, *_ = line.split()
        if local.endswith(f":{theirs}") and remote.endswith(f":{ours}"):
            answer, unread = (int(octets, 16) for octets in queues.split(":"))
            return unread, answer
    return 0, 0


def _answers(connection: socket.socket) -> bool:
    return bool(select.select([connection], [], [], 0)[0]) or _queued(connection)[1] > 0


def _answered_without_the_last_octet(server: Started, connection: socket.socket, path: str) -> bool:
    """Send a POST but its last octet; whether there is an answer once the server has read all of it and rests."""
    head = f"POST {path} HTTP/1.1\r\nHost: server\r\nContent-Length: {BODY_BYTES}\r\n\r\n".encode()
    connection.sendall(head + b"x" * (BODY_BYTES - 1))
    deadline = time.monotonic() + 30
    while not (_on_its_way(connection) == _queued(connection)[0] == 0 and server.rests()):
        assert time.monotonic() < deadline, f"the server left {_queued(connection)[0]} octets"
    return _answers(connection)


def _answer(connection: socket.socket) -> tuple[bytes, bytes]:
    """Status line and body; the connection stays open."""
    data = b""
    while b"\r\n\r\n" not in data or not data.endswith(b"received\n"):
        part = connection.recv(65536)
        assert part, f"the server closed the connection after {data!r}"
        data += part
    head, _, body = data.partition(b"\r\n\r\n")
    return head.partition(b"\r\n")[0], body


@pytest.mark.skipif(os.geteuid() != 0, reason="the servers change to their own user")
@pytest.mark.parametrize("name", UPLOADS)
def test_the_answer_comes_after_the_last_octet_of_the_body(start: Start, name: str) -> None:
    path = f"/{read_server(name).uploads}"
    server = start(name)
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        for turn in range(3):
            assert not _answered_without_the_last_octet(server, connection, path), f"upload {turn + 1}"
            connection.sendall(b"x")
            assert _answer(connection) == (b"HTTP/1.1 200 OK", b"received\n")
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: server\r\n\r\n".encode())
        assert _answer(connection) == (b"HTTP/1.1 200 OK", b"received\n"), "the page that the runner compares"


@pytest.mark.skipif(os.geteuid() != 0, reason="the server changes to its own user")
def test_a_server_that_answers_early_is_seen(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same nginx without `mirror`: it refuses the POST before it has read the body."""
    render = servers._render

    def without_mirror(*args: object) -> bytes:
        return render(*args).replace(b"mirror /-/discard;", b"")  # type: ignore[arg-type]

    monkeypatch.setattr(servers, "_render", without_mirror)
    server = start("nginx-upload")
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        assert _answered_without_the_last_octet(server, connection, "/upload/received.html")


def test_each_way_of_reading_a_body_is_tested() -> None:
    assert UPLOADS == ["apache-event", "lighttpd-upload", "lighttz-upload", "nginx-upload"]


def test_all_that_decides_about_uploads_is_part_of_the_equality_proof() -> None:
    """The files whose digest is compared between metal and guest: `configs` of the server's description."""
    files = {"apache-event": "apache2.conf", "lighttpd-upload": "upload.lua", "lighttz-upload": "upload.lua"}
    for name, file in {**files, "nginx-upload": "nginx.conf"}.items():
        content, _ = servers._files(read_server(name), servers.Policy(), RELEASES[0])[f"{FOLDER}/{name}.json"]
        assert f"{FOLDER}/{name}/{file}" in json.loads(content)["configs"]

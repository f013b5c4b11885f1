"""What the tests speak with: the server under test, and HTTP by hand over plain sockets."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
BINARY = HERE / os.environ.get("LIGHTTZ", "build/lighttz")
SANITIZED = BINARY.name != "lighttz"  # or with faults, or with counters of lines: slow, and they write files
AS_WHO = ["--user", "0"] if os.geteuid() == 0 else []  # what a start as root asks for


_returned_ports: set[int] = set()  # by free_ports()
_ports_lock = threading.Lock()


def free_port() -> int:
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """Different ones, below those that the kernel gives to clients: one of these that is free now may be a client's
    when the server binds it. No process gets one twice: a server that has not bound its port yet would lose it."""
    free: list[int] = []
    with _ports_lock:
        for port in random.sample(sorted(set(range(10_000, 32_000)) - _returned_ports), 1000):
            with socket.socket() as s, contextlib.suppress(OSError):
                s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                s.bind(("127.0.0.1", port))
                free.append(port)
            if len(free) == count:
                _returned_ports.update(free)
                return free
    raise AssertionError("no free port")


@dataclass
class Response:
    status: int
    reason: str
    fields: list[tuple[str, str]]
    body: bytes
    interim: list[int] = field(default_factory=list)

    def __getitem__(self, name: str) -> str:
        return {n.lower(): v for n, v in self.fields}.get(name.lower(), "")


def read_head(data: bytes, at: int) -> tuple[Response, int]:
    end = data.find(b"\r\n\r\n", at)
    assert end >= 0, data[at : at + 200]
    lines = data[at:end].decode("latin-1").split("\r\n")
    version, status, reason = lines[0].split(" ", 2)
    assert version == "HTTP/1.1", lines[0]
    fields = []
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        assert colon and name and "\n" not in line, line
        fields.append((name, value.strip()))
    names = [n.lower() for n, _ in fields]
    assert len(names) == len(set(names)), names
    return Response(int(status), reason, fields, b""), end + 4


def parse(data: bytes, methods: str = "", *, partial: bool = False) -> list[Response]:
    """All responses in `data`, which must end with the last one unless `partial`; `methods` are those of
    the requests."""
    responses: list[Response] = []
    interim: list[int] = []
    wanted = methods.split()
    at = 0
    while at < len(data):
        if partial and data.find(b"\r\n\r\n", at) < 0:
            break
        response, at = read_head(data, at)
        if response.status == 100:
            interim.append(100)
            continue
        response.interim, interim = interim, []
        method = wanted.pop(0) if wanted else "GET"
        if method != "HEAD" and response.status != 304:
            length = int(response["Content-Length"])
            if partial and at + length > len(data):
                break
            response.body = data[at : at + length]
            at += length
            assert len(response.body) == length, (len(response.body), length)
        responses.append(response)
    return responses


class Server:
    """A running server; use it as a context manager."""

    def __init__(
        self,
        root: Path,
        *flags: str,
        config: Path | None = None,
        limit_files: int = 0,
        binary: Path = BINARY,
        command: list[str] | None = None,
        pass_fds: tuple[int, ...] = (),
    ):
        self.killed = False  # a test ends workers on purpose
        self.port, self.status_port = free_ports(2)
        if config:
            command = [str(binary), "-c", str(config)]
        elif not command:
            command = [str(binary), "--root", str(root), "--listen", f"127.0.0.1:{self.port}", "--workers", "1"]
            command += ["--status-listen", f"127.0.0.1:{self.status_port}", *flags]
        if "--user" not in command:
            command += AS_WHO
        if SANITIZED:  # looking for leaks at the end needs /proc
            command += ["--sandbox", "off"]
        if limit_files:
            command = ["prlimit", f"--nofile={limit_files}", *command]
        env = {**os.environ, "ASAN_OPTIONS": "detect_leaks=1:exitcode=99", "UBSAN_OPTIONS": "print_stacktrace=1"}
        self.said = tempfile.TemporaryFile("a+b")  # noqa: SIM115 - it appends, wherever we read
        self.process = subprocess.Popen(command, env=env, stderr=self.said, pass_fds=pass_fds)

    def __enter__(self) -> Server:
        return self.ready()

    def ready(self) -> Server:
        deadline = time.monotonic() + 20
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                if self.workers():  # the sockets are there before them
                    return self
            except OSError:
                pass
            assert self.process.poll() is None, f"the server ended: {self.messages()}"
            assert time.monotonic() < deadline, "the server did not start"
            time.sleep(0.01)

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self, timeout: float = 20) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(timeout) == 0
        said = self.messages()
        print(said, file=sys.stderr)
        assert "Sanitizer" not in said and "runtime error" not in said
        assert self.killed or "replaced" not in said

    def messages(self) -> str:
        fd = self.said.fileno()  # whose offset the server moves, too
        return os.pread(fd, os.fstat(fd).st_size, 0).decode(errors="replace")

    def workers(self) -> list[int]:
        """All workers, also those that retire or are not let serve yet: who has an event loop."""
        return [pid for pid in descendants(self.process.pid) if runs_a_loop(pid)]

    def master(self) -> int:
        """The master that serves: the parent of the latest worker."""
        return parent(max(self.workers(), key=started))

    def connect(self, timeout: float = 10) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout)

    def raw(self, request: bytes, *, half_close: bool = True, timeout: float = 10) -> bytes:
        """Everything the server sends for `request` until it closes."""
        with self.connect(timeout) as s:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                s.sendall(request)
                if half_close:
                    s.shutdown(socket.SHUT_WR)
            return read_all(s)

    def ask(self, request: bytes, methods: str = "", **options: float) -> list[Response]:
        if not methods:
            methods = request.lstrip(b"\r\n").split(b" ", 1)[0].decode("latin-1")
        return parse(self.raw(request, **options), methods)

    def converse(self, request: bytes, methods: str, count: int) -> list[Response]:
        """`count` answers to a client that keeps its side open. Where the connection stays, another request
        and its answer show that both sides agree on where `request` ended."""
        with self.connect() as s:
            s.sendall(request)
            data = b""
            while len(responses := parse(data, methods, partial=True)) < count:
                piece = s.recv(1 << 20)
                assert piece, data[-300:]
                data += piece
            if responses[-1]["Connection"] == "close":
                return parse(data + read_all(s), methods)
            s.sendall(b"OPTIONS * HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            *responses, last = parse(data + read_all(s), methods)
            assert last.status == 200 and last["Allow"] and last["Connection"] == "close"
            return responses

    def get(self, path: str, *fields: str, method: str = "GET") -> Response:
        lines = [f"{method} {path} HTTP/1.1", "Host: test", *fields, "Connection: close", "", ""]
        (response,) = self.ask("\r\n".join(lines).encode("latin-1"), method)
        return response

    def counters(self) -> dict[str, int]:
        with socket.create_connection(("127.0.0.1", self.status_port), 5) as s:
            s.sendall(b"GET /-/status HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            (response,) = parse(read_all(s))
        return {k: int(v) for k, v in (line.split() for line in response.body.decode().splitlines())}


def descendants(pid: int) -> list[int]:
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except (FileNotFoundError, ProcessLookupError):  # it has just ended
        return []
    children = [int(word) for word in text.split()]
    return children + [below for child in children for below in descendants(child)]


def runs_a_loop(pid: int) -> bool:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return any("eventpoll" in str(fd.readlink()) for fd in Path(f"/proc/{pid}/fd").iterdir())
    return False


def listening(pid: int, port: int) -> list[str]:
    """The inodes of its sockets that listen at the port."""
    rows = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    inodes = {row[9] for row in rows if row[3] == "0A" and int(row[1].partition(":")[2], 16) == port}
    links = [str(fd.readlink()) for fd in Path(f"/proc/{pid}/fd").iterdir()]
    return [link for link in links if link.startswith("socket:[") and link[8:-1] in inodes]


def stat_fields(pid: int) -> list[str]:
    """From the third field of /proc/PID/stat on."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def parent(pid: int) -> int:
    return int(stat_fields(pid)[1])


def started(pid: int) -> int:
    return int(stat_fields(pid)[19])


def read_all(s: socket.socket) -> bytes:
    pieces = []
    while piece := s.recv(1 << 20):
        pieces.append(piece)
    return b"".join(pieces)


def read_responses(s: socket.socket, count: int, data: bytes = b"") -> list[Response]:
    """`count` responses (to GET) from a connection that stays open."""
    while len(responses := parse(data, partial=True)) < count:
        piece = s.recv(1 << 20)
        assert piece, data[-300:]
        data += piece
    return responses

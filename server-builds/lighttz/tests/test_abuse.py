"""What the server must survive: slow, rude and many clients, want of descriptors, changing files."""

from __future__ import annotations

import contextlib
import os
import random
import resource
import shutil
import signal
import socket
import struct
import subprocess
import threading
import time
from pathlib import Path

import pytest
from wire import BINARY, SANITIZED, Server, free_port, parse, read_all, read_responses

GET = b"GET /ten.txt HTTP/1.1\r\nHost: x\r\n\r\n"
LARGE = b"GET /large.bin HTTP/1.1\r\nHost: x\r\n\r\n"


def reset(s: socket.socket) -> None:
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    s.close()


def until(condition, timeout: float = 10) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_octet_by_octet(server: Server) -> None:
    with server.connect() as s:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for octet in GET + GET:
            s.sendall(bytes([octet]))
        assert [r.body for r in read_responses(s, 2)] == [b"0123456789"] * 2


def test_deep_pipeline(server: Server, root: Path) -> None:
    """Far more output than the socket takes, read slowly: every response complete and in order."""
    small, large = (root / "small.bin").read_bytes(), (root / "large.bin").read_bytes()
    requests = (GET.replace(b"ten.txt", b"small.bin") + GET + LARGE + GET.replace(b"ten", b"none")) * 60
    with server.connect() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        sender = threading.Thread(target=lambda: (s.sendall(requests), s.shutdown(socket.SHUT_WR)))
        sender.start()
        time.sleep(0.2)
        responses = parse(read_all(s))
        sender.join()
    assert [r.status for r in responses] == [200, 200, 200, 404] * 60
    bodies = [r.body for r in responses]
    assert bodies[0::4] == [small] * 60 and bodies[2::4] == [large] * 60


def test_timeouts(root: Path) -> None:
    flags = [
        "--header-timeout",
        "600ms",
        "--idle-timeout",
        "600ms",
        "--send-timeout",
        "900ms",
        "--body-timeout",
        "600ms",
    ]
    with Server(root, *flags) as server, contextlib.ExitStack() as stack:
        head, body, idle, reader, drip = (stack.enter_context(server.connect()) for _ in range(5))
        head.sendall(GET[:-2])
        body.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nabc")
        idle.sendall(GET)
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        reader.sendall(LARGE * 40)
        start = time.monotonic()
        drip.setblocking(False)
        answer = b""
        while not answer and time.monotonic() - start < 4:  # cut off although it always sends something
            drip.send(b"G")
            time.sleep(0.1)
            with contextlib.suppress(BlockingIOError):
                answer = drip.recv(1000)
        assert b" 408 " in answer and time.monotonic() - start < 2
        assert [r.status for r in parse(read_all(head))] == [408]
        assert [r.status for r in parse(read_all(body))] == [408]
        assert [r.status for r in parse(read_all(idle))] == [200]
        until(lambda: server.counters()["timeouts"] >= 5)  # the reader that does not read, too
        until(lambda: server.counters()["connections"] <= 2)


def test_resets_in_every_state(root: Path) -> None:
    with Server(root) as server:
        for start in (
            b"",
            GET[:9],
            GET[:-1],
            b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\na",
            GET,
            LARGE * 20,
            b"\0",
        ):
            for pause in (0, 0.01):
                s = server.connect()
                s.sendall(start)
                time.sleep(pause)
                reset(s)
        until(lambda: server.counters()["connections"] == 1)
        assert server.get("/ten.txt").status == 200
        assert len(server.workers()) == 1


def test_descriptors_run_out_and_come_back(root: Path) -> None:
    with Server(root, "--defer-accept", "off", limit_files=40) as server:
        clients = [server.connect() for _ in range(80)]
        for s in clients:
            s.sendall(GET[:-1])
        time.sleep(0.7)
        (worker,) = server.workers()
        before = cpu_ticks(worker)
        time.sleep(0.5)
        assert cpu_ticks(worker) - before < 15, "it spins"
        for s in clients[:60]:
            s.close()
        for s in clients[60:]:
            s.sendall(b"\n")
            assert read_responses(s, 1)[0].status == 200
            s.close()
        assert server.get("/large.bin").status == 200
        assert server.counters()["accept_pauses"] >= 1


def cpu_ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def test_max_connections(root: Path) -> None:
    with Server(root, "--max-connections", "10", "--defer-accept", "off") as server, contextlib.ExitStack() as stack:
        busy = [stack.enter_context(server.connect()) for _ in range(10)]
        for s in busy:
            s.sendall(GET[:-2])
        time.sleep(0.2)
        assert server.get("/ten.txt").status == 503
        busy[0].sendall(GET[-2:])
        assert read_responses(busy[0], 1)[0].status == 200
        assert server.get("/ten.txt").status == 200  # an idle connection makes room
        assert busy[0].recv(10) == b""


@pytest.mark.skipif(SANITIZED, reason="memory and time are of the plain build")
def test_ten_thousand_idle_connections(root: Path) -> None:
    count = 10_000
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < count + 100:
        pytest.skip("too few descriptors here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    clients: list[socket.socket] = []
    try:
        with Server(root) as server:
            (worker,) = server.workers()
            server.get("/ten.txt")
            before = pss_kib(worker)
            for i in range(count):
                s = socket.socket()
                s.bind((f"127.0.0.{2 + i % 8}", 0))
                s.connect(("127.0.0.1", server.port))
                s.sendall(GET)
                clients.append(s)
            for s in clients:
                s.settimeout(10)
                assert len(s.recv(4096)) > 200
            growth = pss_kib(worker) - before
            print(f"{before} KiB, and {growth / count:.2f} KiB per idle connection")
            assert growth < count
            assert server.get("/ten.txt").status == 200
            for s in clients:
                s.close()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def pss_kib(pid: int) -> int:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1])
    return 0


class Load(threading.Thread):
    """Requests one after the other until told to stop; counts answers, keeps failures."""

    def __init__(self, server: Server, path: str, check, keep: bool = True):
        super().__init__()
        self.server, self.check, self.keep = server, check, keep
        self.request = (
            f"GET {path} HTTP/1.1\r\nHost: x\r\n{'' if keep else 'Connection: close' + chr(13) + chr(10)}\r\n".encode()
        )
        self.done = threading.Event()
        self.answers = 0
        self.failures: list[str] = []
        self.start()

    def run(self) -> None:
        s: socket.socket | None = None
        while not self.done.is_set():
            try:
                s = s or self.server.connect()
                s.sendall(self.request)
                response = read_responses(s, 1)[0]
                self.check(response)
                self.answers += 1
                if response["Connection"] == "close":
                    s.close()
                    s = None
            except (OSError, AssertionError) as e:
                self.failures.append(repr(e))
                if s:
                    s.close()
                s = None
        if s:
            s.close()

    def finish(self) -> None:
        self.done.set()
        self.join()


def ok(response) -> None:
    assert response.status == 200


def test_mutated_requests(root: Path) -> None:
    """Whatever comes in whatever pieces: whole responses or a close, and a worker that lives on."""
    seeds = [
        GET,
        LARGE,
        b"GET /page.css HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip, br;q=0.5\r\nRange: bytes=0-4,-5\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\nX: y\r\n\r\n",
        b"HEAD /dir/../ten.txt?q HTTP/1.0\r\nConnection: keep-alive\r\nIf-None-Match: *\r\n\r\n",
        b"PUT /x HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabc",
        b"OPTIONS * HTTP/1.1\r\nHost: [::1]:80\r\n\r\n",
    ]
    pieces = [
        b"\r\n",
        b"\r",
        b"\n",
        b"\0",
        b" ",
        b":",
        b"%2e",
        b"..",
        b"/",
        b"Content-Length: 9\r\n",
        b"\xff",
        b"9" * 30,
    ]
    seed = int(os.environ.get("SEED", time.time()))
    print(f"SEED={seed}")
    chance = random.Random(seed)
    with Server(root, "--body-timeout", "1s", "--header-timeout", "1s") as server:
        workers = server.workers()
        for _ in range(int(os.environ.get("MUTATIONS", "500"))):
            data = bytearray(b"".join(chance.choices(seeds, k=chance.randint(1, 4))))
            for _ in range(chance.randint(0, 4)):
                at = chance.randrange(len(data))
                data[at : at + chance.choice([0, 0, 1, 5])] = chance.choice([*pieces, bytes([chance.randrange(256)])])
            with server.connect() as s, contextlib.suppress(OSError):  # closed on us
                cut = chance.randrange(len(data) + 1)
                s.sendall(data[:cut])
                if chance.random() < 0.2:
                    reset(s)
                    continue
                s.sendall(data[cut:])
                s.shutdown(socket.SHUT_WR)
                answer = read_all(s)
                assert answer[:9] in (b"", b"HTTP/1.1 ")
        assert server.workers() == workers
        assert server.get("/ten.txt").body == b"0123456789"


def test_files_replaced_under_load(tmp_path: Path) -> None:
    """Whatever is answered is one whole version: the letter that fills it is that of its length."""
    sizes = {b"a": 100, b"b": 30_000, b"c": 200_000, b"d": 120_000}

    def write(content: bytes) -> None:
        (tmp_path / "new").write_bytes(content * sizes[content])
        (tmp_path / "new").rename(tmp_path / "file.bin")

    def check(response) -> None:
        letter = response.body[:1]
        assert response.status == 200 and response.body == letter * sizes[letter]

    write(b"a")
    with Server(tmp_path, "--revalidate", "10ms") as server:
        loads = [Load(server, "/file.bin", check) for _ in range(3)]
        for i in range(150):
            write(random.choice(list(sizes)) if i < 149 else b"d")
            time.sleep(0.01)
        for load in loads:
            load.finish()
        assert not [failure for load in loads for failure in load.failures]
        assert all(load.answers > 5 for load in loads)
        time.sleep(0.05)
        assert server.get("/file.bin").body == b"d" * sizes[b"d"]


def test_a_change_is_seen_within_a_second(tmp_path: Path) -> None:
    file = tmp_path / "f.txt"
    file.write_text("one")
    with Server(tmp_path) as server:
        assert server.get("/f.txt").body == b"one"
        file.write_text("two")
        until(lambda: server.get("/f.txt").body == b"two", 1.5)
        file.unlink()
        until(lambda: server.get("/f.txt").status == 404, 1.5)
        (tmp_path / "f.txt.gz").write_bytes(b"z")
        file.write_text("three")
        response = server.get("/f.txt", "Accept-Encoding: gzip")
        assert response["Content-Encoding"] == "gzip" and response.body == b"z"


def test_a_file_cut_short_while_it_is_sent(tmp_path: Path) -> None:
    """Less than announced must not look complete, and more must not be made up."""
    size = 30_000_000
    file = tmp_path / "f.bin"
    file.write_bytes(b"x" * size)
    with Server(tmp_path) as server, server.connect() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        s.sendall(b"GET /f.bin HTTP/1.1\r\nHost: x\r\n\r\n")
        data = s.recv(65536)
        os.truncate(file, 1000)
        with contextlib.suppress(ConnectionResetError):
            data += read_all(s)
        assert len(data) < size
        assert set(data.partition(b"\r\n\r\n")[2]) == {ord("x")}
        assert server.counters()["aborted_files"] == 1
        assert server.get("/f.bin")["Content-Length"] == "1000"


@pytest.mark.parametrize("keep", [True, False])
def test_reload_under_load(root: Path, keep: bool) -> None:
    with Server(root) as server:
        loads = [Load(server, path, ok, keep) for path in ("/ten.txt", "/large.bin", "/small.bin")]
        for _ in range(5):
            before = server.workers()
            server.process.send_signal(signal.SIGHUP)
            until(lambda: not set(before) & set(server.workers()) and server.workers())  # noqa: B023
            time.sleep(0.05)
        for load in loads:
            load.finish()
        assert not [failure for load in loads for failure in load.failures]
        assert all(load.answers > 5 for load in loads)


def test_upgrade_under_load(root: Path) -> None:
    """SIGUSR2: the same process, new workers, not a request lost."""
    with Server(root) as server:
        loads = [Load(server, path, ok, keep) for path in ("/ten.txt", "/large.bin") for keep in (True, False)]
        for _ in range(3):
            before = server.workers()
            server.process.send_signal(signal.SIGUSR2)
            until(lambda: not set(before) & set(server.workers()) and server.workers())  # noqa: B023
            time.sleep(0.05)
        for load in loads:
            load.finish()
        assert not [failure for load in loads for failure in load.failures]
        assert all(load.answers > 5 for load in loads)
        assert server.counters()["connections"] == 1


def test_upgrade_to_a_broken_binary(root: Path, tmp_path: Path) -> None:
    binary = tmp_path / "lighttz"
    shutil.copy(BINARY, binary)
    with Server(root, binary=binary) as server:
        workers = server.workers()
        binary.unlink()
        binary.write_text("not a program")
        binary.chmod(0o755)
        server.process.send_signal(signal.SIGUSR2)
        until(lambda: "this one goes on" in server.messages())
        assert server.get("/ten.txt").status == 200
        assert server.workers() == workers


def test_stop_finishes_what_is_in_flight(root: Path) -> None:
    server = Server(root).ready()
    with server.connect() as half, server.connect() as slow, server.connect() as idle:
        idle.sendall(GET)
        assert read_responses(idle, 1)
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        slow.sendall(LARGE * 20)
        half.sendall(GET[:-2])
        time.sleep(0.2)
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.2)
        idle.sendall(GET)  # raced with the signal: still answered, and told to go
        assert parse(read_all(idle))[0]["Connection"] == "close"
        half.sendall(GET[-2:])
        assert parse(read_all(half))[0].status == 200
        response = read_responses(slow, 1)[0]
        assert response.status == 200 and len(response.body) == 300_000
    server.stop()


def test_a_worker_that_dies_is_replaced(root: Path) -> None:
    with Server(root) as server:
        time.sleep(1.1)
        (worker,) = server.workers()
        server.killed = True
        os.kill(worker, signal.SIGKILL)
        assert server.get("/ten.txt").status == 200
        assert server.workers() != [worker]


def test_full_disk_under_the_log(root: Path) -> None:
    with Server(root, "--access-log", "/dev/full") as server:
        for _ in range(50):
            assert server.get("/ten.txt").status == 200
        until(lambda: server.counters()["log_lines_dropped"] >= 50, 4)


def test_access_log(root: Path, tmp_path: Path) -> None:
    log = tmp_path / "access.log"
    with Server(root, "--access-log", str(log)) as server:
        server.get("/ten.txt", 'Referer: r"\\', "User-Agent: t\x80")
        server.raw(b"\x01\r\n\r\n")
        log_moved = tmp_path / "access.log.1"
        until(lambda: log.read_text().count("\n") == 2, 4)
        log.rename(log_moved)
        before = server.workers()
        server.process.send_signal(signal.SIGHUP)
        until(lambda: not set(before) & set(server.workers()))
        until(log.exists)
        server.get("/none")
        until(lambda: log.read_text().count("\n") == 1, 4)
    first, second = log_moved.read_text().splitlines()
    assert first.startswith("127.0.0.1 - - [")
    assert first.endswith('] "GET /ten.txt HTTP/1.1" 200 10 "r\\x22\\x5c" "t\\x80"')
    assert second.endswith('] "-" 400 16 "-" "-"')
    assert log.read_text().endswith('] "GET /none HTTP/1.1" 404 14 "-" "-"\n')


def test_reload_of_a_wrong_configuration(root: Path, tmp_path: Path) -> None:
    config = tmp_path / "lighttz.conf"
    port = free_port()
    text = f"listen = 127.0.0.1:{port}\nroot = {root}\nworkers = 2\n"
    config.write_text(text)
    server = Server(root, config=config)
    server.port = port
    with server.ready():
        until(lambda: len(server.workers()) == 2)
        workers = server.workers()
        seen: list[str] = []
        for wrong in ("workers = none", "access_log = /nowhere/log", "root = /nowhere", "listen = 192.0.2.1:80"):
            config.write_text(text + wrong + "\n")
            server.process.send_signal(signal.SIGHUP)
            until(lambda: server.messages().count("the former configuration stays in force") == len(seen) + 1)
            seen.append(wrong)
            assert server.workers() == workers
        second = free_port()
        config.write_text(text + f"workers = 1\nlisten = 127.0.0.1:{second}\n")
        server.process.send_signal(signal.SIGHUP)
        until(lambda: len(server.workers()) == 1)
        assert server.get("/ten.txt").status == 200
        server.port = second
        assert server.get("/ten.txt").status == 200


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("root = /\nlisten\n", ":2: listen: expected 'key = value'"),
        ("# c\n\nroots = /\n", ":3: roots: unknown setting"),
        ("workers = 0\n", ":1: workers: expected a value from 1 to 64"),
        ("listen = localhost:80\n", ":1: listen: expected ADDRESS:PORT with a numeric address"),
        ("idle_timeout = 5 minutes\n", ":1: idle_timeout: expected a time"),
        ("root = /\n", "no listen is set"),
        ("listen = 8080\nroot = /nowhere\n", "/nowhere: No such file or directory"),
    ],
)
def test_check_config(tmp_path: Path, text: str, wrong: str) -> None:
    config = tmp_path / "c.conf"
    config.write_text(text)
    done = subprocess.run([BINARY, "-c", config, "--check-config"], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert wrong in done.stderr


def test_command_line(tmp_path: Path) -> None:
    assert "keepalive_requests" in subprocess.check_output([BINARY, "--help"], text=True)
    assert subprocess.check_output([BINARY, "--version"], text=True).startswith("lighttz ")
    flags = ["--root", str(tmp_path), "--listen=8080"]
    assert subprocess.run([BINARY, *flags, "--check-config"], check=False).returncode == 0
    assert subprocess.run([BINARY, *flags, "--nothing"], check=False).returncode == 2


def test_port_in_use(root: Path, server: Server) -> None:
    flags = ["--root", str(root), "--listen", f"127.0.0.1:{server.port}"]
    done = subprocess.run([BINARY, *flags], capture_output=True, text=True, check=False, timeout=5)
    assert done.returncode == 1 and "Address already in use" in done.stderr


def test_keepalive_requests(root: Path) -> None:
    with Server(root, "--keepalive-requests", "3") as server:
        responses = server.ask(GET * 5, "GET GET GET")
        assert [r["Connection"] for r in responses] == ["", "", "close"]


def test_types_can_be_added(tmp_path: Path) -> None:
    (tmp_path / "a.foo").write_text("x")
    with Server(tmp_path, "--type", "foo text/x-foo; a=b") as server:
        assert server.get("/a.foo")["Content-Type"] == "text/x-foo; a=b"


def test_ipv6_and_a_file_beyond_32_bits(tmp_path: Path) -> None:
    size = 5_000_000_000
    with (tmp_path / "huge.bin").open("wb") as f:
        f.truncate(size)
        f.seek(size - 3)
        f.write(b"end")
    port = free_port()
    config = tmp_path / "c.conf"
    config.write_text(f"listen = [::1]:{port}\nlisten = 127.0.0.1:{port}\nroot = {tmp_path}\n")
    server = Server(tmp_path, config=config)
    server.port = port
    with server.ready(), socket.create_connection(("::1", port), 5) as s:
        s.sendall(b"GET /huge.bin HTTP/1.1\r\nHost: [::1]\r\nRange: bytes=-3\r\nConnection: close\r\n\r\n")
        (response,) = parse(read_all(s))
        assert response.body == b"end"
        assert response["Content-Range"] == f"bytes {size - 3}-{size - 1}/{size}"


def test_status_page(root: Path) -> None:
    with Server(root) as server:
        server.get("/ten.txt")
        assert server.counters()["responses_2xx"] == 1
        server.port = server.status_port
        text = server.get("/-/metrics").body.decode()
        assert "# TYPE lighttz_requests_total counter\nlighttz_requests_total 2\n" in text
        assert server.get("/-/status?format=prometheus").body.startswith(b"# HELP")
        assert server.get("/ten.txt").status == 404

"""Slow, rude and many clients."""

from __future__ import annotations

import contextlib
import os
import random
import re
import resource
import select
import socket
import threading
import time
from pathlib import Path

import pytest
from abuse import GET, LARGE, cpu_ticks, open_files, pss_kib, reset, unread, until
from wire import SANITIZED, Server, parse, read_all, read_responses


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
        until(lambda: unread(s) > 30_000)
        responses = parse(read_all(s))
        sender.join()
    assert [r.status for r in responses] == [200, 200, 200, 404] * 60
    bodies = [r.body for r in responses]
    assert bodies[0::4] == [small] * 60 and bodies[2::4] == [large] * 60


def test_ranges_in_a_deep_pipeline(server: Server, root: Path) -> None:
    """Parts of a file sent from memory and of one sent from its descriptor, more than the socket takes."""
    ranges = [(0, 9), (100, 10_099), (11_999, 11_999)]
    text = ",".join(f"{first}-{last}" for first, last in ranges)
    field = f"Host: x\r\nRange: bytes={text}\r\n\r\n".encode()
    names = ["small.bin", "large.bin"]
    requests = b"".join(f"GET /{name} HTTP/1.1\r\n".encode() + field for name in names) * 100
    with server.connect() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        s.sendall(requests)
        until(lambda: unread(s) > 30_000)
        responses = read_responses(s, 200)
    assert {r.status for r in responses} == {206}
    for i, response in enumerate(responses):
        content = (root / names[i % 2]).read_bytes()
        boundary = response["Content-Type"].partition("boundary=")[2].encode()
        parts = response.body.split(b"\r\n--" + boundary)
        assert parts[0] == b"" and parts[-1] == b"--\r\n"
        bodies = [part.partition(b"\r\n\r\n")[2] for part in parts[1:-1]]
        assert bodies == [content[first : last + 1] for first, last in ranges]


def test_a_line_that_never_ends_is_refused_at_once(server: Server) -> None:
    """Bare CRs in the place of line ends, from a client that waits: it gets its 400 before any time is over."""
    with server.connect() as client:
        client.sendall(b"GET / HTTP/1.1\rHost: a\r\r")
        start = time.monotonic()
        assert [r.status for r in parse(read_all(client))] == [400]
        assert time.monotonic() - start < 5, "half of the time for a head"


def test_a_head_that_takes_too_long_has_no_content(root: Path) -> None:
    with Server(root, "--header-timeout", "300ms") as server, server.connect() as client, server.connect() as other:
        client.sendall(b"HEAD / HTTP/1.1\r\nHost: a\r\n")
        other.sendall(b"GET /ten.txt HTTP/1.1\r\nHost: a\r\n\r\n\r\n")  # the empty line begins no request
        assert [(r.status, r.body) for r in parse(read_all(client), "HEAD")] == [(408, b"")]
        other.settimeout(0.6)
        received = other.recv(1000)
        with contextlib.suppress(TimeoutError):
            received += other.recv(1000)
        assert [r.status for r in parse(received)] == [200]


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
            if select.select([drip], [], [], 0.1)[0]:
                answer = drip.recv(1000)
        assert b" 408 " in answer and time.monotonic() - start < 2
        assert [r.status for r in parse(read_all(head))] == [408]
        assert [r.status for r in parse(read_all(body))] == [408]
        assert [r.status for r in parse(read_all(idle))] == [200]
        until(lambda: server.counters()["timeouts"] >= 5)  # the reader that does not read, too
        until(lambda: server.counters()["connections"] <= 2)


def test_what_is_no_request_is_refused_before_its_head_ends(server: Server) -> None:
    assert server.raw(b"HELLO there\r\n", half_close=False).startswith(b"HTTP/1.1 400 ")


def test_a_slow_reader_that_goes_on(tmp_path: Path) -> None:
    """It takes little within send_timeout, too little for the socket to tell of room, but it does."""
    (tmp_path / "f.bin").write_bytes(b"x" * 30_000_000)
    with Server(tmp_path, "--send-timeout", "1s") as server, server.connect() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        s.sendall(b"GET /f.bin HTTP/1.1\r\nHost: x\r\n\r\n")
        begin = time.monotonic()
        while time.monotonic() - begin < 4:
            assert s.recv(16384)
            time.sleep(0.1)
        assert server.counters()["timeouts"] == 0
        until(lambda: server.counters()["timeouts"] == 1)  # now that it takes nothing


def test_resets_in_every_state(root: Path, workers: int) -> None:
    with Server(root, "--workers", str(workers)) as server:
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
                time.sleep(pause)  # before and after it is read, which does not show from here
                reset(s)
        until(lambda: server.counters()["connections"] == 1)
        assert server.get("/ten.txt").status == 200
        assert len(server.workers()) == workers


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


def test_descriptors_run_out_and_come_back(root: Path) -> None:
    with Server(root, "--defer-accept", "off") as server:
        (worker,) = server.workers()
        resource.prlimit(worker, resource.RLIMIT_NOFILE, (40, 40))  # lower than what it reckoned with
        until(lambda: server.counters()["connections"] == 1)
        at_rest = open_files(worker)
        clients = [server.connect() for _ in range(80)]
        for s in clients:
            s.sendall(GET[:-1])
        until(lambda: open_files(worker) == 40)
        before = cpu_ticks(worker)
        time.sleep(0.5)  # what it would spin in
        assert cpu_ticks(worker) - before < 15, "it spins"
        for s in clients[:60]:
            s.close()
        until(lambda: open_files(worker) <= at_rest + 20)
        for s in clients[60:]:
            s.sendall(b"\n")
            assert read_responses(s, 1)[0].status == 200
            s.close()
        assert server.get("/large.bin").status == 200
        assert server.counters()["accept_pauses"] >= 1


def test_no_more_connections_than_descriptors(root: Path) -> None:
    """What is beyond the limit is refused by 503, like what is beyond max_connections, and it says so."""
    with Server(root, "--defer-accept", "off", limit_files=200) as server, contextlib.ExitStack() as stack:
        (most,) = re.findall(r"max_connections is (\d+): the limit of open files is 200", server.messages())
        clients = [stack.enter_context(server.connect()) for _ in range(int(most))]
        for s in clients:
            s.sendall(GET[:-1])
        until(lambda: server.counters()["connections"] > int(most) - 2)
        assert server.get("/ten.txt").status == 503
        assert server.counters()["accept_pauses"] == 0
        clients[0].sendall(b"\n")
        assert read_responses(clients[0], 1)[0].status == 200


@pytest.mark.parametrize("spare", range(5))
def test_cached_files_are_served_without_descriptors(root: Path, spare: int) -> None:
    """With none or few left: what lies in memory stays, and so do its neighbours and Vary."""
    ask = b"GET /page.css HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip\r\n\r\n"
    with Server(root, "--revalidate", "10ms") as server, server.connect() as client, server.connect() as other:
        for s in (client, other):
            s.sendall(ask + GET)
            assert [r.status for r in read_responses(s, 2)] == [200, 200]
        (worker,) = server.workers()
        time.sleep(2.1)  # until then they are so young that they are read again at each look
        client.sendall(ask + GET)
        read_responses(client, 2)
        limit = max(int(fd.name) for fd in Path(f"/proc/{worker}/fd").iterdir()) + 1 + spare
        resource.prlimit(worker, resource.RLIMIT_NOFILE, (limit, limit))
        for _ in range(3):
            time.sleep(0.03)  # to be looked at again
            client.sendall(ask + GET)
            zipped, plain = read_responses(client, 2)
            assert (zipped.status, zipped["Content-Encoding"], zipped["Vary"]) == (200, "gzip", "Accept-Encoding")
            assert plain.body == b"0123456789"


def test_max_connections(root: Path) -> None:
    with Server(root, "--max-connections", "10", "--defer-accept", "off") as server, contextlib.ExitStack() as stack:
        busy = [stack.enter_context(server.connect()) for _ in range(10)]
        for s in busy:
            s.sendall(GET[:-2])
        until(lambda: server.counters()["connections"] == 11)
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


def test_keepalive_requests(root: Path) -> None:
    with Server(root, "--keepalive-requests", "3") as server:
        responses = server.ask(GET * 5, "GET GET GET")
        assert [r["Connection"] for r in responses] == ["", "", "close"]

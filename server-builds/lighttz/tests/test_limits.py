"""What connections keep, and how long one turn of the loop may take."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import time
from pathlib import Path

import pytest
from abuse import GET, open_files, until
from wire import SANITIZED, Server, parse, read_all, read_responses

MIB = 1 << 20
SCRIPT = """
function handle(r)
  local n = 0
  if r.path == "/lua/spin" then while true do n = n + 1 end end
  if r.path == "/lua/work" then for i = 1, {loops} do n = n + i end end
  return 200, tostring(#r.body)
end
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "site.lua"
    path.write_text(SCRIPT.replace("{loops}", "1000000" if SANITIZED else "10000000"))
    return path


def resident(pid: int) -> int:
    """Octets."""
    fields = Path(f"/proc/{pid}/statm").read_text().split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")


def post(length: int) -> bytes:
    return f"POST /lua/ HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n".encode()


def test_bodies_for_the_script_are_bounded_together(root: Path, script: Path) -> None:
    """Many that never end: they do not fill the memory, and others are answered."""
    flags = ["--lua-script", str(script), "--connection-memory", "8m"]
    with Server(root, *flags) as server, contextlib.ExitStack() as stack:
        (worker,) = server.workers()
        before = resident(worker)
        for _ in range(60):
            s = stack.enter_context(server.connect())
            with contextlib.suppress(ConnectionResetError, BrokenPipeError):
                s.sendall(post(MIB) + b"x" * (MIB - 1))
        until(lambda: server.counters()["connections_evicted"] > 10)
        if not SANITIZED:
            assert resident(worker) - before < 20 * MIB
        (response,) = server.ask(post(900_000) + b"y" * 900_000)
        assert response.body == b"900000"
        assert server.get("/ten.txt").status == 200


def test_a_body_that_cannot_fit_is_ours_to_refuse(root: Path, script: Path) -> None:
    flags = ["--lua-script", str(script), "--connection-memory", "64k"]
    with Server(root, *flags) as server:
        (response,) = server.ask(post(200_000) + b"x" * 200_000)
        assert response.status == 503
        assert [r.status for r in server.ask(post(1000) + b"x" * 1000)] == [200]


def test_parts_of_heads_do_not_shut_others_out(root: Path) -> None:
    """They fill the memory of connections; who comes later with a head in two pieces is answered."""
    with Server(root, "--connection-memory", "256k", "--max-head", "32k") as server, contextlib.ExitStack() as stack:
        for _ in range(40):
            s = stack.enter_context(server.connect())
            s.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 16_000)
        until(lambda: server.counters()["connections_evicted"] > 10)
        for _ in range(5):
            client = stack.enter_context(server.connect())
            client.sendall(GET[:-9])
            time.sleep(0.02)
            client.sendall(GET[-9:])
            assert read_responses(client, 1)[0].status == 200


def test_the_status_port_does_not_shut_the_site_out(root: Path) -> None:
    """Half requests there: a few are waited for, and the site has all of its connections."""
    with Server(root, "--max-connections", "10") as server, contextlib.ExitStack() as stack:
        for _ in range(60):
            s = stack.enter_context(socket.create_connection(("127.0.0.1", server.status_port), 5))
            s.sendall(GET[:-2])
        clients = [stack.enter_context(server.connect()) for _ in range(10)]
        for s in clients:
            s.sendall(GET[:-9])
        for s in clients:
            s.sendall(GET[-9:])
            assert read_responses(s, 1)[0].status == 200
        (worker,) = server.workers()
        assert open_files(worker) < 60


@pytest.mark.parametrize("count", [16, 300])
@pytest.mark.parametrize("start", [b"", GET[:-2]])
def test_the_status_page_answers_behind_silent_connections(root: Path, start: bytes, count: int) -> None:
    """They have its places, and give way to whoever asks."""
    with Server(root, "--defer-accept", "off") as server, contextlib.ExitStack() as stack:
        silent = [socket.create_connection(("127.0.0.1", server.status_port), 5) for _ in range(count)]
        for s in silent:
            stack.enter_context(s)
            with contextlib.suppress(ConnectionError):  # it gave way already
                s.sendall(start)
        for _ in range(20):
            begin = time.monotonic()
            assert server.counters()["connections"] <= 17
            assert time.monotonic() - begin < 1
        assert server.counters()["connections_refused"] == 0


def test_the_status_page_keeps_no_connection(root: Path) -> None:
    """Idle ones would hold its few places."""
    with Server(root) as server:
        for _ in range(40):
            with socket.create_connection(("127.0.0.1", server.status_port), 5) as s:
                s.sendall(b"GET /-/status HTTP/1.1\r\nHost: x\r\n\r\n")
                (response,) = parse(read_all(s))
                assert response.status == 200 and response["Connection"] == "close"


def test_log_lines_of_responses_in_progress_count(root: Path, tmp_path: Path) -> None:
    """They are kept within `connection_memory`, and cut: long ones of many readers that stop do not fill the memory."""
    log = tmp_path / "access.log"
    (tmp_path / "f.bin").write_bytes(b"x" * 20_000_000)
    fields = b"Referer: " + b"\x80" * 7000 + b"\r\nUser-Agent: " + b"\x80" * 7000
    readers = 200 if SANITIZED else 600
    flags = ["--access-log", str(log), "--connection-memory", "64k", "--stop-timeout", "0"]
    with Server(tmp_path, *flags) as server, contextlib.ExitStack() as stack:
        (worker,) = server.workers()
        server.get("/f.bin")
        before = resident(worker)
        for _ in range(readers):
            s = stack.enter_context(server.connect())
            s.sendall(b"GET /f.bin HTTP/1.1\r\nHost: x\r\n" + fields + b"\r\n\r\n")
            assert s.recv(100).startswith(b"HTTP/1.1 200")
        if not SANITIZED:
            assert resident(worker) - before < readers * 10_000
        assert server.counters()["connections_evicted"] >= readers - 65536 / 1000
    lines = log.read_text().splitlines()[1:]
    assert len(lines) == readers and max(map(len, lines)) < 4096
    assert all(line.count('..."') == 2 for line in lines)


def test_scripts_in_a_pipeline_leave_others_their_turn(root: Path, script: Path) -> None:
    """Each uses its time; who asks for a file waits for one of them at most, and all are answered."""
    with Server(root, "--lua-script", str(script)) as server, server.connect(60) as client:
        client.sendall(b"GET /lua/spin HTTP/1.1\r\nHost: x\r\n\r\n" * 20 + GET)
        time.sleep(0.15)
        for _ in range(3):
            assert server.get("/ten.txt").status == 200
        assert server.counters()["responses_5xx"] < 20, "it waited for all of them"
        assert [r.status for r in read_responses(client, 21)] == [500] * 20 + [200]


def test_scripts_of_many_connections_leave_others_their_turn(root: Path, script: Path) -> None:
    """Bodies are kept meanwhile, and what follows them."""
    with Server(root, "--lua-script", str(script)) as server, contextlib.ExitStack() as stack:
        clients = [stack.enter_context(server.connect(60)) for _ in range(20)]
        for s in clients:
            s.sendall(b"GET /lua/spin HTTP/1.1\r\nHost: x\r\n\r\n" + post(3) + b"abc" + GET + post(70_000))
        time.sleep(0.15)
        assert server.get("/ten.txt").status == 200
        assert server.counters()["responses_5xx"] < 20, "it waited for all of them"
        for s in clients:
            s.sendall(b"d" * 70_000)
            bodies = [r.body for r in read_responses(s, 4)]
            assert bodies[1:] == [b"3", b"0123456789", b"70000"]


def test_a_long_pipeline_of_files_in_turns(root: Path) -> None:
    """More requests than one turn answers, from a client that ends its side at once."""
    responses = parse(answers_to(root, GET * 1500))
    assert [r.body for r in responses] == [b"0123456789"] * 1500


def answers_to(root: Path, data: bytes) -> bytes:
    with Server(root) as server, server.connect(30) as s:
        sender = threading.Thread(target=lambda: (s.sendall(data), s.shutdown(socket.SHUT_WR)))
        sender.start()
        answer = read_all(s)
        sender.join()
        return answer


def test_stolen_time_is_not_the_scripts(root: Path, script: Path) -> None:
    """The worker is stopped in the midst of a script, as a host stops a guest: that is no error of it."""
    flags = ["--lua-script", str(script), "--lua-time", "400ms"]
    with Server(root, *flags) as server, server.connect(30) as client:
        (worker,) = server.workers()
        client.sendall(b"GET /lua/work HTTP/1.1\r\nHost: x\r\n\r\n")
        time.sleep(0.01)
        os.kill(worker, signal.SIGSTOP)
        time.sleep(0.8)
        os.kill(worker, signal.SIGCONT)
        assert read_responses(client, 1)[0].status == 200


@pytest.mark.parametrize("kind", ["an error", "a missing file"])
def test_failures_of_scripts_are_told_once_a_second(root: Path, script: Path, kind: str) -> None:
    script.write_text("function handle() error('on purpose') end")
    with Server(root, "--lua-script", str(script), "--lua-reload", "on") as server:
        if kind == "a missing file":
            script.unlink()
        for _ in range(50):
            assert server.get("/lua/").status == 500
        time.sleep(1.1)
        assert server.get("/lua/").status == 500
        lines = [line for line in server.messages().splitlines() if str(script) in line]
        assert 2 <= len(lines) <= 4
        assert sum(int(line.split("(")[-1].split()[0]) if "failures)" in line else 1 for line in lines) == 51

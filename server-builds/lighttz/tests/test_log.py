"""The access log and the status page."""

from __future__ import annotations

import fcntl
import os
import re
import signal
from pathlib import Path

from abuse import GET, until
from abuse import unread as unread_octets
from wire import Server


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
    assert second.endswith('] "\\x01" 400 16 "-" "-"')
    assert log.read_text().endswith('] "GET /none HTTP/1.1" 404 14 "-" "-"\n')


def test_a_pipe_that_is_read_too_slowly(root: Path, tmp_path: Path) -> None:
    """Lines are lost, and counted; what arrives are whole lines. Without a reader it starts, too."""
    pipe = tmp_path / "log"
    os.mkfifo(pipe)
    with Server(root, "--access-log", str(pipe)) as server:
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, 4096)
        text = b""
        for _ in range(3):
            server.raw(GET * 200)
            dropped = server.counters()["log_lines_dropped"]
            until(lambda: server.counters()["log_lines_dropped"] > dropped, 5)  # noqa: B023
            text += os.read(reader, 1 << 20)
        server.get("/none")
        until(lambda: unread_octets(reader) > 0, 5)
        text += os.read(reader, 1 << 20)
        os.close(reader)
    *lines, last = text.decode().split("\n")
    assert last == "" and len(lines) > 50
    whole = re.compile(r'127\.0\.0\.1 - - \[[^]]+\] "GET /(ten.txt|none) HTTP/1\.1" (200 10|404 14) "-" "-"')
    assert not [line for line in lines if not whole.fullmatch(line)]


def test_status_page(root: Path) -> None:
    with Server(root) as server:
        server.get("/ten.txt")
        assert server.counters()["responses_2xx"] == 1
        server.port = server.status_port
        text = server.get("/-/metrics").body.decode()
        assert "# TYPE lighttz_requests_total counter\nlighttz_requests_total 2\n" in text
        assert server.get("/-/status?format=prometheus").body.startswith(b"# HELP")
        assert server.get("/ten.txt").status == 404

"""The access log and the status page."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from abuse import GET, reset, until
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
    assert before_time(first).endswith('] "GET /ten.txt HTTP/1.1" 200 10 "r\\x22\\x5c" "t\\x80"')
    assert before_time(second).endswith('] "\\x01" 400 16 "-" "-"')
    assert before_time(log.read_text()[:-1]).endswith('] "GET /none HTTP/1.1" 404 14 "-" "-"')


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 16 pages."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k,mode=777", "none", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting is not allowed here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize("locked", [False, True])
def test_lines_that_a_full_disk_tears(root: Path, small_disk: Path, workers: int, locked: bool) -> None:
    """The disk fills within a line and gets room again, before and after a reload, page by page: each line in the
    log is whole, and those that were cut are counted. Somebody who holds the lock delays nothing for long."""
    log, rest, asked, dropped = small_disk / "log", small_disk / "rest", 0, 0
    with Server(root, "--workers", str(workers), "--access-log", str(log)) as server:

        def lost() -> int:
            return server.counters()["log_lines_dropped"]

        rest.write_bytes(b"x" * (64 - 4) * 1024)
        until(log.exists)
        with log.open() as file:
            if locked:
                fcntl.flock(file, fcntl.LOCK_EX)
            for turn in range(6):
                for _ in range(80):
                    assert server.get(f"/ten.txt?{asked}").status == 200
                    asked += 1
                # Lines are written once a second. The reload forgets what its workers have dropped.
                until(lambda: log.read_bytes().count(b"\n") + dropped + lost() == asked, 20)  # noqa: B023
                if turn == 2:
                    dropped = lost()
                    before = set(server.workers())
                    server.process.send_signal(signal.SIGHUP)
                    until(lambda: set(server.workers()) and not before & set(server.workers()))  # noqa: B023
                os.truncate(rest, max(0, rest.stat().st_size - 4096))
        dropped += lost()
    lines = log.read_text().split("\n")
    assert lines.pop() == ""
    whole = re.compile(r'127\.0\.0\.1 - - \[[^]]+\] "GET /ten\.txt\?\d+ HTTP/1\.1" 200 10 "-" "-" \d+\.\d{6}')
    assert [line for line in lines if not whole.fullmatch(line)] == []
    assert dropped >= 20 and len(lines) + dropped == asked


def before_time(line: str) -> str:
    """The line without the seconds that it ends with."""
    match = re.fullmatch(r"(.*) \d+\.\d{6}", line)
    assert match, line
    return match[1]


def test_octets_and_time_of_a_download_that_is_cut(tmp_path: Path) -> None:
    """A response from a descriptor is logged when it ends, with what was sent of it."""
    size = 30_000_000
    (tmp_path / "f.bin").write_bytes(b"x" * size)
    log = tmp_path / "access.log"
    ask = b"GET /f.bin HTTP/1.1\r\nHost: x\r\n"
    with Server(tmp_path, "--access-log", str(log)) as server:
        with server.connect() as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
            s.sendall(ask + b"\r\n")
            until(lambda: unread_octets(s) > 30_000)
            time.sleep(0.3)
            reset(s)
        for fields, octets in ((b"", size), (b"Range: bytes=0-99999\r\n", 100_000), (b"Range: bytes=-5\r\n", 5)):
            (response,) = server.ask(ask + fields + b"\r\n")
            assert len(response.body) == octets
        (several,) = server.ask(ask + b"Range: bytes=0-9,20-29\r\n\r\n")
        pipeline = server.ask((ask + b"Range: bytes=0-9999\r\n\r\n") * 3)
        assert len(pipeline) == 3
        until(lambda: log.read_text().count("\n") == 8, 4)
    lines = [before_time(line) for line in log.read_text().splitlines()]
    sent = [int(line.split('"')[2].split()[1]) for line in lines]
    assert 30_000 < sent[0] < size
    assert sent[1:] == [size, 100_000, 5, len(several.body), 10_000, 10_000, 10_000]
    assert float(log.read_text().split("\n")[0].split()[-1]) >= 0.3


@pytest.mark.parametrize("workers", [2, 4])
def test_several_workers_write_whole_lines_into_a_pipe(root: Path, tmp_path: Path, workers: int) -> None:
    """Also lines that are longer than a pipe takes in one piece: they are cut, and say so."""
    pipe = tmp_path / "log"
    os.mkfifo(pipe)
    text: list[bytes] = []
    with Server(root, "--workers", str(workers), "--access-log", str(pipe)) as server:
        reader = os.open(pipe, os.O_RDONLY)
        thread = threading.Thread(target=lambda: text.extend(iter(lambda: os.read(reader, 1 << 16), b"")))
        thread.start()
        end = time.monotonic() + 4
        long = GET[:-2] + b"User-Agent: " + b"\x80" * 6000 + b"\r\nReferer: " + b"r" * 6000 + b"\r\n\r\n"
        while time.monotonic() < end:
            server.raw(GET * 300 + long + GET)
    thread.join()
    os.close(reader)
    *lines, last = b"".join(text).decode().split("\n")
    assert last == "" and len(lines) > 1000
    quoted = r'"[^"]*"'
    whole = re.compile(rf'127\.0\.0\.1 - - \[[^]]+\] "GET /ten.txt HTTP/1\.1" 200 10 {quoted} {quoted} \d+\.\d{{6}}')
    assert not [line for line in lines if not whole.fullmatch(line)]
    cut = [line for line in lines if line.count('..."') == 2]
    assert cut and max(map(len, cut)) < 4096


def histogram(page: str, name: str) -> tuple[list[float], list[int], float]:
    """The bounds in s, the counts up to each, and the sum in s."""
    buckets = re.findall(rf'^lighttz_{name}_bucket{{le="([^"]+)"}} (\d+)$', page, re.M)
    (total,) = re.findall(rf"^lighttz_{name}_count (\d+)$", page, re.M)
    (sum_s,) = re.findall(rf"^lighttz_{name}_sum ([\d.]+)$", page, re.M)
    counts = [int(count) for _, count in buckets]
    assert counts[-1] == int(total)
    return [float(bound) for bound, _ in buckets], counts, float(sum_s)


def test_histograms(root: Path) -> None:
    with Server(root, "--workers", "2") as server:
        for _ in range(20):
            server.ask(GET * 5)
        server.port = server.status_port
        page = server.get("/-/metrics").body.decode()
    for name in ("service_seconds", "loop_lag_seconds"):
        bounds, counts, sum_s = histogram(page, name)
        assert bounds == sorted(bounds) and bounds[-1] == float("inf") and counts == sorted(counts)
        assert 0 < sum_s < 5
    assert histogram(page, "service_seconds")[1][-1] == 100
    assert 18 <= histogram(page, "loop_lag_seconds")[1][-1] <= 100  # each worker counts a turn in its next one


def test_reading_the_histograms_does_not_change_them(root: Path) -> None:
    with Server(root, "--workers", "2") as server:
        server.ask(GET * 50)
        server.port = server.status_port
        pages = [server.get("/-/metrics").body.decode() for _ in range(20)]
    first, last = (histogram(page, "service_seconds") for page in (pages[0], pages[-1]))
    assert first == last and first[1][-1] == 50
    turns = [histogram(page, "loop_lag_seconds")[1][-1] for page in (pages[0], pages[-1])]
    assert turns[1] - turns[0] <= 2  # each worker's last turn with an answer


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
    whole = re.compile(r'127\.0\.0\.1 - - \[[^]]+\] "GET /(ten.txt|none) HTTP/1\.1" (200 10|404 14) "-" "-" \d+\.\d{6}')
    assert not [line for line in lines if not whole.fullmatch(line)]


def test_status_page(root: Path, workers: int) -> None:
    """The sums of all workers."""
    with Server(root, "--workers", str(workers)) as server:
        for _ in range(40):
            server.get("/ten.txt")
        assert server.counters()["responses_2xx"] == 40
        server.port = server.status_port
        text = server.get("/-/metrics").body.decode()
        assert "# TYPE lighttz_requests_total counter\nlighttz_requests_total 41\n" in text
        assert server.get("/-/status?format=prometheus").body.startswith(b"# HELP")
        assert server.get("/ten.txt").status == 404

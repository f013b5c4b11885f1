"""Files that change while they are served, and odd ones."""

from __future__ import annotations

import contextlib
import os
import random
import re
import socket
import tempfile
import threading
from pathlib import Path

import pytest
from abuse import Load, until
from wire import Server, free_port, parse, read_all


def test_files_replaced_under_load(tmp_path: Path) -> None:
    """Whatever is answered is one whole version: the letter that fills it is that of its length."""
    sizes = {b"a": 100, b"b": 12_000, b"c": 200_000, b"d": 120_000}

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
            loads[i % 3].proceed()
        for load in loads:
            load.finish()
        assert not [failure for load in loads for failure in load.failures]
        assert all(load.answers > 5 for load in loads)
        until(lambda: server.get("/file.bin").body == b"d" * sizes[b"d"], 1.5)


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


def test_a_deleted_file_is_let_go(tmp_path: Path) -> None:
    """Its room is free again when nobody has asked for it in a while."""
    file = tmp_path / "f.bin"
    file.write_bytes(b"x" * 200_000)
    with Server(tmp_path, "--revalidate", "10ms") as server:
        assert len(server.get("/f.bin").body) == 200_000
        (worker,) = server.workers()
        assert holds(worker, "f.bin")
        file.unlink()
        until(lambda: not holds(worker, "f.bin"), 10)


def holds(pid: int, name: str) -> bool:
    """Whether a process has a file of that name open."""
    found = ""
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            found += str(fd.readlink())
    return name in found


def test_the_cache_evicts_what_is_not_used(tmp_path: Path) -> None:
    """Few entries, never looked at again: the one that is asked for all the time stays."""
    for name in ("hot", *"abcdefgh"):
        (tmp_path / f"{name}.bin").write_bytes(name.encode() * 100_000)
    flags = ["--cache-entries", "3", "--cache-bytes", "2k", "--revalidate", "3600s", "--precompressed", "off"]
    with Server(tmp_path, *flags) as server:
        (worker,) = server.workers()
        for _ in range(3):
            for name in "abcdefgh":
                assert server.get("/hot.bin").body == b"hot" * 100_000
                assert server.get(f"/{name}.bin").body == name.encode() * 100_000
                assert holds(worker, "hot.bin") and holds(worker, f"{name}.bin")
        files = [fd for fd in Path(f"/proc/{worker}/fd").iterdir() if fd.readlink().suffix == ".bin"]
        assert len(files) <= 3


@pytest.mark.skipif(os.geteuid() != 0, reason="changing the user needs root")
def test_a_directory_that_may_only_be_entered() -> None:
    with tempfile.TemporaryDirectory() as folder:
        site = Path(folder)
        site.chmod(0o755)
        (site / "dir").mkdir()
        (site / "dir/index.html").write_text("index")
        (site / "secret.txt").write_text("secret")
        (site / "dir").chmod(0o711)
        (site / "secret.txt").chmod(0o600)
        with Server(site, "--user", "65534") as server:
            assert server.get("/dir/").body == b"index"
            assert (server.get("/dir").status, server.get("/dir")["Location"]) == (301, "/dir/")
            assert server.get("/secret.txt").status == 403


def test_who_writes_to_a_fifo_goes_on_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    opened = threading.Event()

    def write() -> None:
        os.close(os.open(tmp_path / "fifo", os.O_WRONLY))
        opened.set()

    writer = threading.Thread(target=write)
    with Server(tmp_path) as server:
        writer.start()
        for _ in range(20):
            assert server.get("/fifo").status == 403
        assert not opened.wait(0.1)
    os.close(os.open(tmp_path / "fifo", os.O_RDONLY | os.O_NONBLOCK))
    writer.join()


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


@pytest.mark.parametrize("size", [12_000, 200_000])
def test_files_cut_short_under_load(tmp_path: Path, size: int) -> None:
    """Each body is as long as announced and nothing but the file's octets, or the connection ends. What
    sendfile has handed over is still the file's page: there the kernel's zeros of a truncation may show."""
    file = tmp_path / "f.bin"
    file.write_bytes(b"x" * size)
    octets = {ord("x")} if size <= 12288 else {ord("x"), 0}
    wrong: list[tuple[int, set[int]]] = []

    def check(response) -> None:  # 503: it changed each time that it was read
        if response.status != 503 and (response.status != 200 or not set(response.body) <= octets):
            wrong.append((response.status, set(response.body)))

    with Server(tmp_path, "--revalidate", "10ms") as server:
        loads = [Load(server, "/f.bin", check) for _ in range(3)]
        for i, length in enumerate((1000, size, size // 2, size, 0, size) * 16):
            with file.open("r+b") as f:
                if length == size:
                    f.write(b"x" * size)
                else:
                    f.truncate(length)
            loads[i % 3].proceed()
        for load in loads:
            load.finish()
        assert not wrong
        assert all(load.answers > 5 for load in loads)
        until(lambda: server.get("/f.bin").body == b"x" * size, 1.5)


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


def test_fields_for_every_response(root: Path, tmp_path: Path) -> None:
    script = tmp_path / "site.lua"
    script.write_text('function handle(r) return 200, "lua", {["X-Frame-Options"] = "SAMEORIGIN"} end')
    flags = ["--header", "Cache-Control: max-age=60", "--header=X-Frame-Options:DENY", "--lua-script", str(script)]
    with Server(root, *flags) as server:
        tag = server.get("/ten.txt")["ETag"]
        responses = [
            server.get("/ten.txt"),
            server.get("/ten.txt", method="HEAD"),
            server.get("/large.bin"),
            server.get("/ten.txt", f"If-None-Match: {tag}"),
            server.get("/large.bin", "Range: bytes=0-9"),
            server.get("/large.bin", "Range: bytes=0-9,20-29"),
            server.get("/ten.txt", "Range: bytes=100-"),
            server.get("/none"),
            server.get("/dir"),
            server.ask(b"GET / HTTP/1.1\r\n\r\n")[0],
        ]
        assert [r.status for r in responses] == [200, 200, 200, 304, 206, 206, 416, 404, 301, 400]
        for response in responses:
            assert (response["Cache-Control"], response["X-Frame-Options"]) == ("max-age=60", "DENY")
        scripted = server.get("/lua/")
        assert (scripted["Cache-Control"], scripted["X-Frame-Options"]) == ("max-age=60", "SAMEORIGIN")
        server.port = server.status_port
        assert server.get("/-/status")["Cache-Control"] == "no-store"


def test_validators_are_weak_while_the_time_may_not_tell(tmp_path: Path) -> None:
    file = tmp_path / "f.txt"
    with Server(tmp_path, "--revalidate", "10ms") as server:
        file.write_text("0123456789")
        young = server.get("/f.txt")
        assert young["ETag"].startswith('W/"')
        conditions = [
            f"If-Range: {young['ETag']}",
            f"If-Range: {young['ETag'][2:]}",
            f"If-Range: {young['Last-Modified']}",
        ]
        for condition in conditions:
            assert server.get("/f.txt", "Range: bytes=0-1", condition).status == 200
        assert server.get("/f.txt", f"If-None-Match: {young['ETag']}").status == 304
        assert server.get("/f.txt", f"If-Match: {young['ETag']}").status == 412
        until(lambda: server.get("/f.txt")["ETag"] == young["ETag"][2:], 5)
        for condition in conditions[1:]:
            assert server.get("/f.txt", "Range: bytes=0-1", condition).status == 206
        assert server.get("/f.txt", f"If-None-Match: {young['ETag']}").status == 304
        assert server.get("/f.txt", f"If-Match: {young['ETag'][2:]}").status == 200


@pytest.mark.parametrize("when", [-62_000_000_000, -1, 300_000_000_000])
def test_dates_far_away(tmp_path: Path, when: int) -> None:
    """Whatever year a file is of: a date of 29 octets."""
    file = tmp_path / "f.txt"
    file.write_text("x")
    with contextlib.suppress(OSError, OverflowError):
        os.utime(file, (when, when))
    with Server(tmp_path) as server:
        data = server.raw(b"GET /f.txt HTTP/1.1\r\nHost: x\r\n\r\n")
        assert re.search(rb"\r\nLast-Modified: \w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT\r\n", data)


def test_if_range_that_is_no_date(tmp_path: Path) -> None:
    """Also for a file whose time is that of an invalid date."""
    (tmp_path / "f.txt").write_text("0123456789")
    os.utime(tmp_path / "f.txt", (-1, -1))
    with Server(tmp_path) as server:
        for value, status in (("nonsense", 200), (server.get("/f.txt")["ETag"], 206)):
            assert server.get("/f.txt", "Range: bytes=0-1", f"If-Range: {value}").status == status

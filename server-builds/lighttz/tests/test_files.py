"""Files that change while they are served, and odd ones."""

from __future__ import annotations

import contextlib
import os
import random
import socket
from pathlib import Path

import pytest
from abuse import Load, until
from wire import Server, free_port, parse, read_all


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


@pytest.mark.parametrize("size", [30_000, 200_000])
def test_files_cut_short_under_load(tmp_path: Path, size: int) -> None:
    """Each body is as long as announced and nothing but the file's octets, or the connection ends. What
    sendfile has handed over is still the file's page: there the kernel's zeros of a truncation may show."""
    file = tmp_path / "f.bin"
    file.write_bytes(b"x" * size)
    octets = {ord("x")} if size < 32768 else {ord("x"), 0}
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

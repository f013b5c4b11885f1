"""Every setting is set by some test; here those that no other file sets."""

from __future__ import annotations

import re
import subprocess
import time
from pathlib import Path

import pytest
from abuse import GET
from wire import BINARY, HERE, Server, read_responses

SCRIPT = """
function handle(r)
  if r.path == "/app/loop" then while true do end end
  return 200, r.path .. ":" .. #r.body
end
"""


def settings() -> list[str]:
    text = subprocess.check_output([BINARY, "--help"], text=True)
    return re.findall(r"^  ([a-z_]+) ", text, re.M)


@pytest.mark.parametrize("name", settings())
def test_some_test_sets(name: str) -> None:
    """As a flag, or as a line of a configuration."""
    tests = "".join(path.read_text() for path in (HERE / "tests").glob("*.py"))
    assert re.search(rf"--{name.replace('_', '-')}\b|\b{name} = ", tests)


def test_index(root: Path) -> None:
    with Server(root, "--index", "file.txt") as server:
        assert server.get("/bare/").body == b"bare"
        assert server.get("/dir/").status == 403


def test_limits_of_requests(root: Path) -> None:
    with Server(root, "--max-line", "64", "--max-head", "256", "--max-body", "10") as server:
        line = "/" + "a" * (64 - len("GET / HTTP/1.1\r\n"))
        assert server.get(line).status == 404
        assert server.get(line + "a").status == 414
        rest = 256 - len("GET / HTTP/1.1\r\nHost: test\r\nX: \r\nConnection: close\r\n\r\n")
        assert server.get("/", "X: " + "a" * rest).status == 200
        assert server.get("/", "X: " + "a" * (rest + 1)).status == 431
        post = b"POST /ten.txt HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s"
        assert [server.ask(post % (n, b"b" * n))[0].status for n in (10, 11)] == [405, 413]


def test_body_of_a_script_is_limited(root: Path, tmp_path: Path) -> None:
    """`lua_prefix` says which paths the script answers, `lua_time` how long it may take."""
    script = tmp_path / "site.lua"
    script.write_text(SCRIPT)
    flags = ["--lua-script", str(script), "--lua-prefix", "/app/", "--lua-time", "400ms", "--max-body", "5"]
    with Server(root, *flags) as server:
        post = b"POST /app/x HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s"
        answers = [server.ask(post % (n, b"b" * n))[0] for n in (5, 6)]
        assert [r.status for r in answers] == [200, 413] and answers[0].body == b"/app/x:5"
        assert server.get("/lua/x").status == 404
        begin = time.monotonic()
        assert server.get("/app/loop").status == 500
        assert time.monotonic() - begin >= 0.4


def test_precompressed_neighbours_are_left_alone(root: Path) -> None:
    with Server(root, "--precompressed", "off") as server:
        response = server.get("/page.css", "Accept-Encoding: gzip, br")
        assert response.body == (root / "page.css").read_bytes()
        assert not response["Content-Encoding"] and not response["Vary"]


@pytest.mark.parametrize(
    ("flags", "least", "most"),
    [
        (["--cache-entries", "4"], 4, 4),
        (["--cache-bytes", "64k"], 10, 13),  # 5,000 octets each, with header and path
        ([], 20, 20),
    ],
)
def test_the_cache_drops_what_was_read_longest_ago(tmp_path: Path, flags: list[str], least: int, most: int) -> None:
    """Files are replaced while the cache trusts what it holds: old content is what it kept."""
    with Server(tmp_path, "--revalidate", "3600s", *flags) as server, server.connect() as s:

        def read(i: int) -> bytes:
            s.sendall(GET.replace(b"ten", b"%d" % i))
            return read_responses(s, 1)[0].body

        for i in range(20):
            (tmp_path / f"{i}.txt").write_bytes(b"old %4d" % i * 625)
            assert read(i) == b"old %4d" % i * 625
        for i in range(20):
            (tmp_path / "new").write_bytes(b"new %4d" % i * 625)
            (tmp_path / "new").replace(tmp_path / f"{i}.txt")
        answers = [read(i) for i in reversed(range(20))]
        kept = sum(answer.startswith(b"old") for answer in answers)
        assert least <= kept <= most
        words = [b"old"] * kept + [b"new"] * (20 - kept)
        assert answers == [b"%s %4d" % (word, i) * 625 for word, i in zip(words, reversed(range(20)), strict=True)]


@pytest.mark.parametrize(
    ("octets", "flags", "descriptors"),
    [(2000, ["--cache-file", "1999"], 1), (2000, ["--cache-file", "2000"], 0), (12289, [], 1), (12288, [], 0)],
)
def test_larger_files_are_sent_from_a_descriptor(
    tmp_path: Path, octets: int, flags: list[str], descriptors: int
) -> None:
    """By default those above 12 KiB."""
    (tmp_path / "f.bin").write_bytes(b"a" * octets)
    with Server(tmp_path, *flags) as server:
        assert server.get("/f.bin").body == b"a" * octets
        (worker,) = server.workers()
        links = [fd.readlink() for fd in Path(f"/proc/{worker}/fd").iterdir()]
        assert links.count(tmp_path / "f.bin") == descriptors

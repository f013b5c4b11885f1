"""What a row of the conformance table cannot say: several parts, or two responses that must agree."""

from __future__ import annotations

from pathlib import Path

import pytest
from wire import Server


def test_entity_tags(server: Server) -> None:
    """RFC 9110, 8.8.3 and 13.1: the tag itself, in lists, weakly and strongly compared."""
    tag = server.get("/ten.txt")["ETag"]
    assert server.get("/ten.txt", f'If-None-Match: "x", W/{tag}').status == 304
    assert server.get("/ten.txt", 'If-None-Match: "x"', f"If-None-Match: {tag}").status == 304
    assert server.get("/ten.txt", f"If-Match: {tag}").status == 200
    assert server.get("/ten.txt", f"If-Match: W/{tag}").status == 412
    assert server.get("/ten.txt", "Range: bytes=0-0", f"If-Range: {tag}").status == 206
    assert server.get("/ten.txt", "Range: bytes=0-0", f"If-Range: W/{tag}").status == 200
    assert server.get("/page.css")["ETag"] != server.get("/page.css", "Accept-Encoding: gzip")["ETag"]


@pytest.mark.parametrize("path", ["/ten.txt", "/small.bin", "/large.bin"])
def test_multipart(server: Server, path: str) -> None:
    """RFC 9110, 14.6: every part has its type, its range and its octets, for files of each kind."""
    whole = server.get(path).body
    response = server.get(path, "Range: bytes=0-1,5-8,-1")
    boundary = response["Content-Type"].partition("boundary=")[2].encode()
    parts = response.body.split(b"\r\n--" + boundary)
    assert parts[0] == b"" and parts[-1] == b"--\r\n"
    size = len(whole)
    wanted = [(0, 1), (5, 8), (size - 1, size - 1)]
    for part, (first, last) in zip(parts[1:-1], wanted, strict=True):
        head, _, content = part.partition(b"\r\n\r\n")
        assert f"Content-Range: bytes {first}-{last}/{size}".encode() in head
        assert b"Content-Type: " in head
        assert content == whole[first : last + 1]


def test_redirect_is_encoded(server: Server, root: Path) -> None:
    (root / "ä b\r\nX: y").mkdir(exist_ok=True)
    response = server.get("/%C3%A4%20b%0D%0AX:%20y")
    assert response.status == 301
    assert response["Location"] == "/%C3%A4%20b%0D%0AX:%20y/"


@pytest.mark.parametrize("path", ["/ten.txt", "/page.css", "/large.bin", "/dir", "/none", "/"])
def test_head_has_the_fields_of_get(server: Server, path: str) -> None:
    """RFC 9110, 9.3.2."""
    got, asked = (server.get(path, "Accept-Encoding: gzip", method=m) for m in ("GET", "HEAD"))
    got.fields, asked.fields = ([f for f in r.fields if f[0] != "Date"] for r in (got, asked))
    assert got.status == asked.status and got.fields == asked.fields and not asked.body


def test_304_has_the_fields_of_200(server: Server) -> None:
    """RFC 9110, 15.4.5: of those that it must repeat."""
    whole = server.get("/page.css", "Accept-Encoding: gzip")
    unmodified = server.get("/page.css", "Accept-Encoding: gzip", f"If-None-Match: {whole['ETag']}")
    assert unmodified.status == 304
    for name in ("ETag", "Vary", "Last-Modified"):
        assert unmodified[name] == whole[name]


def test_continue(server: Server) -> None:
    """RFC 9110, 10.1.1: 100 when the body is waited for, then the final response."""
    with server.connect() as s:
        s.sendall(b"GET /ten.txt HTTP/1.1\r\nHost: test\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n")
        assert s.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        s.sendall(b"abcGET /ten.txt HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n")
        data = b""
        while piece := s.recv(1000):
            data += piece
    assert data.count(b"HTTP/1.1 200 OK") == 2

"""Lines of logs become rows: the whole line, whatever octets it holds."""

from pathlib import Path

import pytest

from tests.support.logs import BEGIN_S, Hit, write
from vmtoll.access_log.read import Lines, database, read

Row = tuple[object, ...]


def rows(log: Path, columns: str) -> tuple[Lines, list[Row]]:
    """Return what `read` says of a log, and columns of its rows that are not malformed, in order."""
    with database() as db:
        lines = read(db, [log], lambda said: None)
        return lines, db.execute(f"SELECT {columns} FROM answers WHERE at_s IS NOT NULL ORDER BY rowid").fetchall()


OCTETS = [octet for octet in range(256) if octet not in b'\n\r"\\']


@pytest.mark.parametrize("texts", [[f"\\x{octet:02x}".encode() for octet in range(256)], [bytes([o]) for o in OCTETS]])
@pytest.mark.parametrize("place", ["/index.html", "Mozilla"])
def test_no_octet_cuts_a_line(tmp_path: Path, texts: list[bytes], place: str) -> None:
    """As servers escape them, and as they are; in the request and behind it."""
    line = Hit(BEGIN_S, body_bytes=157).line.encode()
    log = write(tmp_path / "a.log", [line.replace(place.encode(), place.encode() + text) for text in texts])
    lines, parsed = rows(log, "status, body_bytes")
    assert (lines.total, lines.malformed) == (len(texts), 0)
    assert set(parsed) == {(200, 157)}


@pytest.mark.parametrize("ending", [b"\n", b"\r\n"])
def test_a_cr_inside_a_line_ends_none(tmp_path: Path, ending: bytes) -> None:
    line = Hit(BEGIN_S, body_bytes=157).line.encode()
    log = tmp_path / "a.log"
    split = line.replace(b"Mozilla", b"Mo\rzilla\r\r!")
    log.write_bytes(ending.join([*[line] * 7, split, line, b"malformed", b""]))
    lines, parsed = rows(log, "status, body_bytes")
    assert (lines.total, lines.malformed) == (10, 1)
    assert (parsed, list(lines.first_malformed)) == ([(200, 157)] * 9, [(1, 10, "a")])
    log.write_bytes(b"\r".join([line] * 3))
    assert rows(log, "status, body_bytes")[1] == [(200, 157)] * 3


def test_nginx_writes_octets_into_json_that_is_none(tmp_path: Path) -> None:
    """Unless its format has `escape=json`. What is JSON stays as it is: a backslash before an x too."""
    start = '{"time_iso8601":"2025-06-03T14:00:01+00:00","remote_addr":"192.0.2.1","status":"200","bytes_sent":"9",'
    ends = [
        r'"request":"\x16\x03\x01"}', r'"request":"GET /caf\xC3\xA9 HTTP/1.1"}',
        r'"request":"GET / HTTP/1.1","http_user_agent":"\x22bot\x22"}', r'"request":"GET /a\\x41b HTTP/1.1"}',
    ]  # fmt: skip
    log = write(tmp_path / "a.log", [start + end for end in ends])
    lines, parsed = rows(log, "is_http, status, body_bytes")
    assert (lines.total, lines.malformed) == (4, 0)
    assert parsed == [(False, 200, 9), *[(True, 200, 9)] * 3]


def test_a_tls_probe_on_a_plain_port_is_a_request(tmp_path: Path) -> None:
    probes = [r"\x16\x03\x01\x02\x00\x01\x00", r"\x01", "", "-", r"\x03\x00\x00/*\xE0\x00Cookie: mstshash=x"]
    log = write(tmp_path / "a.log", [Hit(BEGIN_S).line.replace("GET /index.html HTTP/1.1", text) for text in probes])
    lines, parsed = rows(log, "is_http, status, body_bytes")
    assert (lines.total, lines.malformed) == (len(probes), 0)
    assert set(parsed) == {(False, 200, 1000)}


def test_lines_of_several_encodings_keep_their_order_and_numbers(tmp_path: Path) -> None:
    """A file may hold UTF-8 and other octets; a malformed line is named by its number."""
    good = Hit(BEGIN_S).line.encode()
    names = [
        "/caf\u00e9.html".encode("latin-1"),
        "/\u2014\u0434\U0001f600.html".encode(),
        b"/\x80\x9f.html",
        b"/plain.html",
    ]
    several = [good.replace(b"/index.html", name) for name in names]
    log = write(tmp_path / "a.log", [*several * 50, b"malformed", *several, b"malformed \xff\x80", good, b"malformed"])
    lines, parsed = rows(log, "status, body_bytes, object")
    assert (lines.total, lines.malformed) == (208, 3)
    assert list(lines.first_malformed) == [(1, 201, "a"), (1, 206, "a ??"), (1, 208, "a")]
    assert len(parsed) == 205
    assert len({row[2] for row in parsed}) == 5

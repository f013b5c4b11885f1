"""Logs that count headers: Apache with Debian's combined format, and synthetic ones."""

import signal
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email.utils import formatdate
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import numpy as np
import pytest

from tests.support.logs import BEGIN_S, Hit, write
from tests.support.ports import free_port
from tests.support.program import vmtoll
from vmtoll.access_log import Options, from_log

LOGGED = r"%h %l %u %t \"%r\" %>s %O \"%{Referer}i\" \"%{User-Agent}i\""  # Debian's combined
MODULES = ("mpm_event", "authz_core", "mime")
SIZES = {"a.html": 43, "b.css": 5_000, "c.png": 700, "d.js": 20_000}


def site(logs: list[Path], output: Path) -> dict[str, Any]:
    return from_log(logs, output, Options(), lambda said: None).summary


@contextmanager
def apache(folder: Path, root: Path) -> Iterator[str]:
    """Apache with a folder of files; its address. It has ended, and its log is whole, on leaving."""
    port = free_port()
    root.chmod(0o755)
    for name, size in SIZES.items():
        (root / name).write_bytes(bytes(size))
    modules = [f"LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so" for name in MODULES]
    (folder / "apache.conf").write_text(
        "\n".join([
            *modules, f"Listen 127.0.0.1:{port}", f"ServerName 127.0.0.1:{port}", f"DocumentRoot {root}",
            f"PidFile {folder}/pid", f"ErrorLog {folder}/error.log", "TypesConfig /etc/mime.types",
            "User www-data", "Group www-data", "<Directory />\nRequire all granted\n</Directory>",
            f'LogFormat "{LOGGED}" combined', f"CustomLog {folder}/access.log combined",
        ])
    )  # fmt: skip
    server = subprocess.Popen(["apache2", "-X", "-f", folder / "apache.conf"])
    try:
        deadline = time.monotonic() + 30
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/a.html").read()
                break
            except OSError:
                assert time.monotonic() < deadline and server.poll() is None, (folder / "error.log").read_text()
        yield f"http://127.0.0.1:{port}"
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait()


def ask(url: str, method: str = "GET", **headers: str) -> None:
    request = urllib.request.Request(url, method=method, headers={k.replace("_", "-"): v for k, v in headers.items()})
    try:
        urllib.request.urlopen(request).read()
    except HTTPError as error:
        assert error.code == 304


@pytest.mark.parametrize(("heads", "within_bytes"), [(0, 75), (10, 15)])
def test_apache_with_debians_format(tmp_path: Path, heads: int, within_bytes: int) -> None:
    """The mean body is as right as the log shows the headers: a 304 of Apache has fewer of them in some versions."""
    with tempfile.TemporaryDirectory() as root, apache(tmp_path, Path(root)) as address:
        for _ in range(10):
            for name in SIZES:
                ask(f"{address}/{name}")
            ask(f"{address}/a.html", If_Modified_Since=formatdate(usegmt=True))
        for _ in range(heads):
            ask(f"{address}/b.css", "HEAD")
    summary = site([tmp_path / "access.log"], tmp_path / "out")
    full = [
        int(line.split()[9])
        for line in (tmp_path / "access.log").read_text().splitlines()
        if '"GET ' in line and '" 200 ' in line
    ]
    mean = (10 * sum(SIZES.values()) + SIZES["a.html"]) / 41  # with the request that found it listening
    assert np.mean(full) > mean + 200
    assert summary["headers"]["logs"] == 1
    assert summary["body_bytes"]["mean"] == pytest.approx(mean, abs=within_bytes)


def debian(hits: list[Hit], header_bytes: Callable[[Hit], int]) -> list[str]:
    """Lines with the octets of bodies and headers."""
    lines = []
    for hit in hits:
        body = 0 if hit.status in (204, 304) or hit.method == "HEAD" else hit.body_bytes
        head, tail = hit.line.split(f'" {hit.status} ')
        lines.append(f'{head}" {hit.status} {body + header_bytes(hit)} {tail.partition(" ")[2]}')
    return lines


SMALL = [
    Hit(BEGIN_S + i, path=path, status=status, body_bytes=size)
    for i in range(100)
    for path, status, size in (("/pixel.gif", 200, 43), ("/ping", 200, 2), ("/a.css", 304, 0), ("/b.css", 200, 7_000))
]


def test_sizes_with_headers_are_corrected_and_said(tmp_path: Path) -> None:
    lines = debian(SMALL, lambda hit: 180 if hit.status == 304 else 285)
    summary = site([write(tmp_path / "a.log", lines)], tmp_path / "out")
    assert summary["headers"] == {"bodiless_bytes": 180, "full_bytes": pytest.approx(285, abs=15), "logs": 1}
    assert summary["site"]["of"]["body_bytes_mean"] == pytest.approx((43 + 2 + 7_000) / 4, abs=15)


def test_answers_to_head_show_the_headers_of_full_answers(tmp_path: Path) -> None:
    hits = [*SMALL, *(Hit(BEGIN_S + i, method="HEAD", body_bytes=43) for i in range(9))]
    lines = debian(hits, lambda hit: 180 if hit.status == 304 else 411)
    summary = site([write(tmp_path / "a.log", lines)], tmp_path / "out")
    assert summary["headers"] == {"bodiless_bytes": 180, "full_bytes": 411, "logs": 1}
    assert summary["body_bytes"]["mean"] == pytest.approx((43 + 2 + 7_000) / 3)


def test_a_series_is_corrected_however_it_is_cut(tmp_path: Path) -> None:
    """A file without a 304 is like the others; a log of a server that counts bodies stays as it is."""
    lines = debian(SMALL, lambda hit: 180 if hit.status == 304 else 285)
    series = [write(tmp_path / "1.log", [line for line in lines if " 304 " in line]),
              write(tmp_path / "2.log", [line for line in lines if " 304 " not in line])]  # fmt: skip
    whole, cut = (site(logs, tmp_path / f"{len(logs)}") for logs in ([write(tmp_path / "0.log", lines)], series))
    assert whole["body_bytes"] == cut["body_bytes"]
    other = write(tmp_path / "nginx.log", [Hit(BEGIN_S, status=304), *[Hit(BEGIN_S, path="/c", body_bytes=10)] * 900])
    mixed = site([*series, other], tmp_path / "mixed")
    assert mixed["headers"] == cut["headers"] | {"logs": 2}
    assert mixed["body_bytes"]["p50"] == 10


@pytest.mark.parametrize("status", [304, 204])
def test_sizes_of_bodies_alone_stay(tmp_path: Path, status: int) -> None:
    hits = [Hit(BEGIN_S + i, status=status if i % 2 else 200, body_bytes=0 if i % 2 else 43) for i in range(20)]
    summary = site([write(tmp_path / "a.log", hits)], tmp_path / "out")
    assert (summary["headers"], summary["body_bytes"]["mean"]) == (None, 43)


def test_a_size_of_what_is_not_sent_is_no_header(tmp_path: Path) -> None:
    """Servers log for a 304, or for HEAD, the size of the file that they do not send."""
    others: list[dict[str, Any]] = [{"status": 304}, {"method": "HEAD"}]
    for n, other in enumerate(others):
        hits = [
            Hit(BEGIN_S + i, path=f"/{size}", body_bytes=size, **kind)
            for i in range(20)
            for size in (43, 700, 9000)
            for kind in ({}, other)
        ]
        lines = [hit.line.replace(" 304 -", f" 304 {hit.body_bytes}") for hit in hits]
        summary = site([write(tmp_path / "a.log", lines)], tmp_path / f"{n}")
        assert (summary["headers"], summary["headers_unknown"]) == (None, None)
        assert summary["body_bytes"]["mean"] == pytest.approx((43 + 700 + 9000) / 3)


def test_answers_to_head_alone_show_headers(tmp_path: Path) -> None:
    hits = [hit for hit in SMALL if hit.status == 200]
    hits += [Hit(BEGIN_S + i, path="/b.css", method="HEAD", body_bytes=7_000) for i in range(9)]
    summary = site([write(tmp_path / "a.log", debian(hits, lambda hit: 285))], tmp_path / "out")
    assert summary["headers"] == {"bodiless_bytes": 285, "full_bytes": 285, "logs": 1}


@pytest.mark.parametrize("bodiless", [Hit(BEGIN_S, path="/api", status=204), Hit(BEGIN_S, path="/api", method="HEAD")])
def test_headers_of_another_program_are_not_those_of_files(tmp_path: Path, bodiless: Hit) -> None:
    """An API that sends 900 octets of them; no file is smaller than its headers."""
    hits = [*(hit for hit in SMALL if hit.status == 200), *[bodiless] * 50]
    lines = debian(hits, lambda hit: 900 if hit.path == "/api" else 285)
    summary = site([write(tmp_path / "a.log", lines)], tmp_path / "out")
    if bodiless.status == 204:
        assert summary["headers"]["full_bytes"] == 285 + 2
    else:
        assert (summary["headers"], summary["headers_unknown"]) == (None, "maybe")


def test_what_the_log_does_not_show_is_said(tmp_path: Path) -> None:
    alb = (
        "http 2025-06-03T14:00:0{}.186641Z app/lb/50 192.0.2.1:2817 10.0.0.1:80 0 0 0 200 200 34 500 "
        '"GET https://www.example:443/a.css HTTP/1.1" "curl" - - arn:aws:x "Root=1" "-" "-"'
    )
    logs: dict[str, list[Hit | str | bytes]] = {"maybe": [Hit(BEGIN_S)], "by-format": [alb.format(n) for n in range(9)]}
    for kind, lines in logs.items():
        log = write(tmp_path / f"{kind}.log", lines)
        assert site([log], tmp_path / kind)["headers_unknown"] == kind
    printed = vmtoll("workload", "from-log", tmp_path / "by-format.log", "--output", tmp_path / "o").stdout
    assert "format counts headers" in printed

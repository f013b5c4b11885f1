from __future__ import annotations

import gzip
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from wire import Server

MTIME = 784111777  # Sun, 06 Nov 1994 08:49:37 GMT


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("site")
    site = base / "root"
    files = {
        "index.html": b"<h1>home</h1>\n",
        "ten.txt": b"0123456789",
        "empty.txt": b"",
        "dir/index.html": b"<h1>dir</h1>\n",
        "bare/file.txt": b"bare",
        "a b&c.txt": b"odd name",
        "page.css": b"body { color: black }\n" * 20,
        "large.bin": os.urandom(300_000),
        "small.bin": os.urandom(12_000),
    }
    for name, content in files.items():
        path = site / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    (site / "page.css.gz").write_bytes(gzip.compress(files["page.css"]))
    (site / "page.css.br").write_bytes(b"stands for brotli")
    (base / "secret.txt").write_text("secret")
    (site / "out.txt").symlink_to("../secret.txt")
    (site / "absolute.txt").symlink_to(base / "secret.txt")
    (site / "outdir").symlink_to("..")
    (site / "in.txt").symlink_to("ten.txt")
    (site / "loop").symlink_to("loop")
    os.mkfifo(site / "fifo")
    for name in ("ten.txt", "page.css"):
        os.utime(site / name, (MTIME, MTIME))
    return site


@pytest.fixture(scope="session", params=[1, 2, 4], ids="workers={}".format)
def workers(request: pytest.FixtureRequest) -> int:
    count: int = request.param
    return count


@pytest.fixture(scope="session")
def server(root: Path, workers: int) -> Iterator[Server]:
    with Server(root, "--workers", str(workers)) as running:
        yield running

"""Every notebook runs headless on a run and opens in JupyterLab as a notebook."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from synthetic_run import Truth, make_run

from analysis.load import LoadError
from analysis.notebook import FOLDER, execute, names

ROOT = Path(__file__).parents[2]
START_LIMIT_S = 60


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The committed run, copied, so that nothing is written beside it."""
    committed = sorted((ROOT / "results" / "demo").glob("*/run.json"))[-1].parent
    copy: Path = tmp_path_factory.mktemp("demo") / committed.name
    shutil.copytree(committed, copy, ignore=shutil.ignore_patterns("raw"))
    return copy


@pytest.fixture(scope="module")
def ladder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    truth = Truth({"nginx": 0.9}, loads=("closed:10", "share:0.3", "share:0.7", "share:1.1"), histograms=True)
    return make_run(tmp_path_factory.mktemp("ladder"), truth)


SAYS = {
    "capacity": ["This run has no ladder of rates"],
    "metal_vs_kvm": ["metal is faster", "Overhead: requests per second", "Requests per second by block"],
    "replication": ["repeats no published experiment"],
    "tails": ["Service times under a fixed number of users"],
}


@pytest.mark.parametrize("name", names())
def test_runs_headless_on_the_committed_run(name: str, demo: Path) -> None:
    check(execute(name, demo), SAYS.get(name, []))


def test_tails_of_a_ladder(ladder: Path) -> None:
    page = execute("tails", ladder)
    check(page, ["Goodput against offered load", "70% of capacity", "1000 ms"])


def test_capacity_of_a_ladder(ladder: Path) -> None:
    page = execute("capacity", ladder)
    check(page, ["you need", "metal host", "kvm-default", "Erlang C", "Goodput against offered load"])


def check(page: Path, says: list[str]) -> None:
    """A page that needs no network, whose figures have words, and that says these."""
    text = page.read_text(encoding="utf-8")
    for words in says:
        assert words in text, words
    assert not re.search(r"<(script|link|iframe|object|embed)\b|@import|url\((?!#)|Traceback", text)
    for source in re.findall(r'(?:src|href)=["\']([^"\']+)', text):
        assert source.startswith(("data:", "#"))
    for image in re.findall(r"<img[^>]*>", text):
        assert re.search(r"""alt=["'][^"']{10,}""", image), image[:200]


def test_what_cannot_run_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="no notebook 'tail'; there are: capacity, metal_vs_kvm, replication, tails"):
        execute("tail", tmp_path)
    with pytest.raises(LoadError, match=r"replication\.py: .*LoadError: .*neither a run nor a folder of runs"):
        execute("replication", tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def jupyter(tmp_path: Path) -> Iterator[str]:
    """JupyterLab on loopback, on the folder of the notebooks; its address with a token."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    home = {f"JUPYTER_{kind}_DIR": str(tmp_path / kind.lower()) for kind in ("CONFIG", "DATA", "RUNTIME")}
    argv = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ip=127.0.0.1", f"--port={port}"]
    argv += ["--ServerApp.port_retries=0", "--IdentityProvider.token=secret", f"--ServerApp.root_dir={FOLDER}"]
    log = tmp_path / "log"
    with log.open("wb") as output:
        server = subprocess.Popen(argv, env=os.environ | home, stdout=output, stderr=output)
    try:
        deadline = time.monotonic() + START_LIMIT_S
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/api/status?token=secret", timeout=5).close()
                break
            except (urllib.error.URLError, ConnectionError):
                assert server.poll() is None and time.monotonic() < deadline, log.read_text()
                time.sleep(0.2)
        yield f"http://127.0.0.1:{port}/api/contents/{{}}?content=1&type=notebook&token=secret"
    finally:
        server.terminate()
        server.wait(30)


def test_opens_in_jupyterlab(jupyter: str) -> None:
    for name in names():
        with urllib.request.urlopen(jupyter.format(f"{name}.py"), timeout=30) as answer:
            document = json.load(answer)
        assert document["type"] == "notebook"
        cells = document["content"]["cells"]
        assert cells[0]["cell_type"] == "markdown"
        assert [c["metadata"]["tags"] for c in cells if "tags" in c["metadata"]] == [["parameters"]]
        assert document["content"]["metadata"]["kernelspec"]["name"] == "python3"

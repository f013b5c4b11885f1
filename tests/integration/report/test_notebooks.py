"""Every notebook runs headless on a run and opens in JupyterLab as a notebook."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pandas as pd
import pytest

from tests.support.committed_run import DEMO
from tests.support.ports import free_port
from tests.support.synthetic_run import Truth, closed_load, make_run, share_load
from vmtoll.cli import main
from vmtoll.model.errors import LoadError
from vmtoll.model.hardware import Hardware
from vmtoll.model.load import Load
from vmtoll.publish.bundle import publish
from vmtoll.report.notebook import FOLDER, GLOSSARY_PAGE, execute, names, table
from vmtoll.report.words import GLOSSARY

Vmtoll = Callable[..., tuple[int, str, str]]
ROOT = Path(__file__).parents[3]
START_LIMIT_S = 60


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the committed run, so that nothing is written next to the original."""
    copy: Path = tmp_path_factory.mktemp("demo") / DEMO.name
    shutil.copytree(DEMO, copy, ignore=shutil.ignore_patterns("raw"))
    return copy


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    truth = Truth(
        {"nginx": 0.9}, loads=(closed_load(), share_load(0.3), share_load(0.7), share_load(1.1)), histograms=True
    )
    return make_run(tmp_path_factory.mktemp("sweep"), truth)


SAYS = {
    "capacity": [
        "the run has no rate sweep of a single machine",
        "vmtoll run capacity,",
        "nothing to show for: Figures; ",
    ],
    "metal_vs_kvm": ["Ratio to metal: requests per second", "Requests per second by block"],
    "replication": ["repeats no published experiment"],
    "tails": ["Response times from the intended send", "Correct answers per second within other deadlines"],
}


@pytest.fixture(scope="module")
def pages(demo: Path) -> Mapping[str, Path]:
    """The page of each notebook on the committed run."""
    return {name: execute(name, demo) for name in names()}


@pytest.mark.parametrize("name", names())
def test_runs_headless_on_the_committed_run(name: str, pages: Mapping[str, Path]) -> None:
    check(pages[name], SAYS.get(name, []))


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return publish(DEMO, tmp_path_factory.mktemp("published") / "bundle")


@pytest.mark.long
@pytest.mark.parametrize("name", names())
def test_runs_on_a_bundle(name: str, bundle: Path, tmp_path: Path) -> None:
    check(execute(name, bundle, output=tmp_path), [])


@pytest.mark.long
def test_two_notebooks_may_run_at_once(demo: Path, tmp_path: Path) -> None:
    code = "import sys, pathlib; from vmtoll.report.notebook import execute; "
    code += "execute('metal_vs_kvm', sys.argv[1], None, pathlib.Path(sys.argv[2]))"
    call = [sys.executable, "-c", code, str(demo)]
    runs = [subprocess.Popen([*call, tmp_path / name]) for name in ("one", "two")]
    assert [run.wait(timeout=300) for run in runs] == [0, 0]
    for name in ("one", "two"):
        assert "blocks behind each" in (tmp_path / name / "metal_vs_kvm.html").read_text()


@pytest.mark.long
@pytest.mark.parametrize("name", names())
@pytest.mark.parametrize("load", [closed_load(), share_load(0.7)])
def test_no_heading_is_empty(name: str, load: Load, tmp_path: Path) -> None:
    """Of a run of one kind of load, which some notebooks have little to say of; they say for what."""
    page = execute(name, make_run(tmp_path, Truth({"nginx": 0.9}, loads=(load,)))).read_text(encoding="utf-8")
    content = re.sub(r"<style.*?</style>", "", page.partition('<h2 id="glossary"')[0], flags=re.DOTALL)
    for section in re.split(r"<h2\b", content)[1:]:
        shown = re.sub(r"<[^>]*>", " ", section.partition("</h2>")[2])
        assert "<td" in section or "<img" in section or len(shown.split()) > 20, section[:300]
    for cells in re.findall(r"<table.*?</table>", content, re.DOTALL):
        assert "<td" in cells, "no table without a row"


@pytest.mark.parametrize("name", [pytest.param("capacity", marks=pytest.mark.long), "metal_vs_kvm"])
def test_kvm_on_emulated_hardware_is_reported(name: str, tmp_path: Path) -> None:
    run = make_run(tmp_path, Truth({"nginx": 0.2}, blocks=2, hardware=Hardware.EMULATED))
    check(execute(name, run), ["KVM on emulated hardware: the run shows that everything works, not what KVM costs."])


def test_terms_of_the_outputs_link_to_the_glossary(pages: Mapping[str, Path]) -> None:
    text = pages["metal_vs_kvm"].read_text(encoding="utf-8")
    for term, words in {"interval": "interval of the ratio", "suspect": "suspect"}.items():
        assert f'<a href="#term-{term}">{words}</a>' in text
        assert f'<dt id="term-{term}">' in text


def test_a_notebook_shows_its_terms_as_links_to_the_documents() -> None:
    shown = table(pd.DataFrame({"verdict": ["undecided <b>", "undecided"]}))._repr_html_()
    assert shown.count(f'<a href="{GLOSSARY_PAGE}#term-undecided">undecided</a>') == 1
    assert "&lt;b&gt;" in shown
    assert (FOLDER / GLOSSARY_PAGE).resolve() == ROOT / "docs" / "glossary.md"


def test_tails_of_a_sweep(sweep: Path) -> None:
    page = execute("tails", sweep)
    check(page, ["Goodput against offered load", "70% of capacity", "1000 ms"])
    check(page, ["Service times under a fixed number of users"])


def test_capacity_of_a_sweep(sweep: Path) -> None:
    page = execute("capacity", sweep)
    check(page, ["you need", "metal host", "kvm-default", "Erlang C", "Goodput against offered load"])


def test_parameters_take_the_place_of_the_notebooks_own(sweep: Path, vmtoll: Vmtoll) -> None:
    code, out, _ = vmtoll("capacity", sweep, "--set", "RATE_RPS=5e2", "--set", "P99_MS=20", "--set", "WATTS=")
    assert (code, out) == (0, f"notebook: {sweep / 'capacity.html'}\n")
    check(sweep / "capacity.html", ["500/s at p99 ≤ 20 ms, 99.9% available, 30% headroom, 1 spare: you need"])


@pytest.mark.parametrize(
    ("word", "said"),
    [
        (
            "RATE=500",
            "capacity.py: no parameter 'RATE' to set; there are: RATE_RPS, P99_MS, AVAILABILITY_PCT, HEADROOM_PCT,"
            " SPARE, GUESTS_PER_HOST, HOST_COST_PER_HOUR, WATTS\n",
        ),
        ("RUN=elsewhere", "no parameter 'RUN' to set; there are: RATE_RPS, "),
        ("RATE_RPS=fast", "RATE_RPS: 'fast' is not a number; give one, such as 2000"),
        ("RATE_RPS", "--set RATE_RPS: give NAME=VALUE, as in --set RATE_RPS=500"),
        ("RATE_RPS=[1", "'[1' is not valid JSON or YAML; quote it"),
    ],
)
def test_a_parameter_that_cannot_be_is_one_sentence(tmp_path: Path, vmtoll: Vmtoll, word: str, said: str) -> None:
    code, out, err = vmtoll("capacity", tmp_path, "--set", word)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert said in err
    assert list(tmp_path.iterdir()) == []


def test_make_hands_parameters_on() -> None:
    argv = ["make", "-n", "notebook", "N=capacity", "RUN=a/run", "SET=RATE_RPS=500 P99_MS=20"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True)
    assert "vmtoll notebook capacity a/run --set 'RATE_RPS=500' --set 'P99_MS=20'" in done.stdout


@pytest.mark.long
def test_capacity_of_a_sweep_of_users_shows_its_law(tmp_path: Path) -> None:
    users = Truth(loads=tuple(closed_load(n) for n in (1, 2, 5, 10, 20, 50)))
    page = execute("capacity", make_run(tmp_path, users))
    check(page, ["the run has no rate sweep of a single machine", "contention σ", "Throughput over users (siege)"])


@pytest.fixture
def vmtoll(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Vmtoll:
    """`vmtoll notebook …` in this process: exit code, stdout, stderr."""

    def run(*words: str | Path) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["vmtoll", "notebook", *map(str, words)])
        with pytest.raises(SystemExit) as end:
            main()
        printed = capsys.readouterr()
        return int(end.value.code or 0), printed.out, printed.err

    return run


def check(page: Path, says: list[str]) -> None:
    """A page that needs no network, whose figures have words, and that says these."""
    text = page.read_text(encoding="utf-8")
    plain = re.sub(r"</?a\b[^>]*>", "", text)
    for words in says:
        assert words in plain, words
    assert not re.search(r"<(script|link|iframe|object|embed)\b|@import|url\((?!#)|Traceback", text)
    for source in re.findall(r'(?:src|href)=["\']([^"\']+)', text):
        assert source.startswith(("data:", "#"))
    linked = set(re.findall(r'href="#(term-[^"]+)"', text))
    assert linked and linked == set(re.findall(r'<dt id="(term-[^"]+)">', text))
    for image in re.findall(r"<img[^>]*>", text):
        assert re.search(r"""alt=["'][^"']{10,}""", image), image[:200]


def test_a_notebook_that_cannot_run_gives_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match=r"'tail'; .*: capacity, metal_vs_kvm, replication, tails"):
        execute("tail", tmp_path)
    with pytest.raises(LoadError, match=r"folder of runs; .*RUN .*results/<experiment>/"):
        execute("replication", tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def jupyter(tmp_path: Path) -> Iterator[str]:
    """JupyterLab on loopback, on the folder of the notebooks; its address with a token."""
    port = free_port()
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
            except OSError:  # of which URLError is one, and a timeout
                assert server.poll() is None and time.monotonic() < deadline, log.read_text()
                time.sleep(0.2)
        yield f"http://127.0.0.1:{port}/api/contents/{{}}?content=1&type=notebook&token=secret"
    finally:
        server.terminate()
        server.wait(30)


@pytest.mark.parametrize("name", names())
def test_terms_link_to_the_glossary_of_the_documents(name: str) -> None:
    text = (FOLDER / f"{name}.py").read_text(encoding="utf-8")
    links = re.findall(r"^# \[([^\]]+)\]: (\S+)#term-([a-z0-9-]+)$", text, re.MULTILINE)
    assert links
    for word, path, term in links:
        assert f"[{word}]" in text.replace(f"[{word}]:", ""), word
        assert (FOLDER / path).resolve() == ROOT / "docs" / "glossary.md"
        assert term in GLOSSARY


def test_opens_in_jupyterlab(jupyter: str) -> None:
    for name in names():
        with urllib.request.urlopen(jupyter.format(f"{name}.py"), timeout=30) as answer:
            document = json.load(answer)
        assert document["type"] == "notebook"
        cells = document["content"]["cells"]
        assert cells[0]["cell_type"] == "markdown"
        assert [c["metadata"]["tags"] for c in cells if "tags" in c["metadata"]] == [["parameters"]]
        assert document["content"]["metadata"]["kernelspec"]["name"] == "python3"

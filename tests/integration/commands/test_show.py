"""`vmtoll show`: plain in a pipe, in colour on a terminal, of runs and bundles, and without a trace in them."""

import json
import os
import pty
import re
import shutil
import subprocess
from hashlib import sha256
from pathlib import Path

import pytest

from tests.support.committed_run import DEMO
from tests.support.program import VMTOLL, started, vmtoll
from tests.support.synthetic_run import Truth, make_run
from vmtoll.publish.bundle import publish

ESCAPE = "\x1b"


def on_terminal(*words: str | Path, **environment: str) -> str:
    """What the program prints on a terminal of its own."""
    environment = {key: value for key, value in os.environ.items() if key != "NO_COLOR"} | environment
    reading, writing = pty.openpty()
    with subprocess.Popen([VMTOLL, *words], stdout=writing, env=environment | {"TERM": "xterm-256color"}) as process:
        os.close(writing)
        printed = b""
        try:
            while chunk := os.read(reading, 65536):
                printed += chunk
        except OSError:  # Linux reports the other end's close as EIO
            pass
    os.close(reading)
    assert process.returncode == 0
    return printed.decode().replace("\r\n", "\n")


def contents(folder: Path) -> dict[str, str]:
    """Digest of each file of a folder."""
    files = (file for file in folder.rglob("*") if file.is_file())
    return {str(file.relative_to(folder)): sha256(file.read_bytes()).hexdigest() for file in files}


def test_in_a_pipe_it_is_plain_text() -> None:
    done = vmtoll("show", DEMO)
    assert (done.returncode, done.stderr) == (0, "")
    assert ESCAPE not in done.stdout
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert not [line for line in lines if line != line.rstrip()]
    assert re.search(r"^  nginx +[\d,]+/s +[\d,]+/s  [\d.]+× \(.*\) +\w+$", done.stdout, re.MULTILINE)


@pytest.mark.long
def test_on_a_terminal_it_is_the_same_in_colour() -> None:
    coloured = on_terminal("show", DEMO)
    assert f"{ESCAPE}[31mslower{ESCAPE}[0m" in coloured
    assert re.sub(rf"{ESCAPE}\[[\d;]*m", "", coloured) == vmtoll("show", DEMO).stdout
    assert f"{ESCAPE}[31m" not in on_terminal("show", DEMO, NO_COLOR="1")


@pytest.mark.long
def test_a_terminal_that_has_only_ascii_gets_an_aligned_table() -> None:
    plain, full = started("show", DEMO, PYTHONIOENCODING="ascii").stdout, vmtoll("show", DEMO).stdout
    assert plain.isascii()
    assert "\\u" not in plain
    assert [len(line) for line in plain.splitlines()] == [len(line) for line in full.splitlines()]


def test_a_run_and_its_bundle_show_the_same_and_stay_as_they_are(tmp_path: Path) -> None:
    run = make_run(tmp_path, Truth({"nginx": 0.9}, blocks=6))
    bundle = publish(run, tmp_path / "bundle", ["Ada Example"])
    before = contents(run), contents(bundle)
    shown = [vmtoll("show", folder) for folder in (run, bundle)]
    assert [done.returncode for done in shown] == [0, 0], shown
    assert shown[0].stdout == shown[1].stdout
    assert (contents(run), contents(bundle)) == before


def test_a_damaged_bundle_is_refused(tmp_path: Path) -> None:
    bundle = publish(make_run(tmp_path, Truth({"nginx": 0.9}, blocks=3)), tmp_path / "bundle")
    with (bundle / "trials.jsonl").open("a") as file:
        file.write("{}\n")
    done = vmtoll("show", bundle)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert "trials.jsonl" in line


def test_programs_get_the_rows_of_the_figures_that_they_ask_for() -> None:
    shown = json.loads(vmtoll("show", DEMO, "--metric", "throughput", "--server", "nginx", "--json").stdout)
    assert list(shown) == ["run", "answer", "remarks", "verdicts"]
    assert shown["run"] == DEMO.name
    assert [(row["metric"], row["server"]) for row in shown["verdicts"]] == [("throughput", "nginx")]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("--metric", "troughput"),
            "unknown metric 'troughput' (did you mean 'throughput'?); allowed: throughput, tail",
        ),
        (("--server", "ngin"), "unknown server 'ngin' (did you mean 'nginx'?); allowed: lighttz, nginx"),
    ],
)
def test_an_unknown_name_is_one_line_with_the_known_ones(words: tuple[str, ...], said: str) -> None:
    done = vmtoll("show", DEMO, *words)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"vmtoll: {said}")


def test_a_report_ends_with_the_table_and_the_files(tmp_path: Path) -> None:
    run = shutil.copytree(DEMO, tmp_path / "run")
    done = vmtoll("report", run)
    assert done.returncode == 0, done.stderr
    assert done.stdout == (
        vmtoll("show", run).stdout + f"\nreport: {run}/report.html\ntable:  {run}/trials.csv · {run}/trials.ods\n"
    )


def test_a_reader_that_ends_early_is_no_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run([VMTOLL, "show", DEMO], stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")

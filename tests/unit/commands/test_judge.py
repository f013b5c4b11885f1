"""The command judge: exit codes, and the forms of its answer."""

import json
import math
import random
import re
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest

from vmtoll import cli
from vmtoll.commands.outcome import Exit
from vmtoll.recordings.rows import read_rows


def page(folder: Path, **effects: float) -> Path:
    """A judge file: a side `main` and a side `head`, which differs by `effects`, metric → log ratio."""
    rng, file = random.Random(1), folder / "page.csv"
    lines = ["block,side,benchmark,metric,value,unit,better"]
    for block in range(1, 13):
        for side in ("main", "head"):
            for name, effect in effects.items():
                log = rng.gauss(0, 0.01) + (effect if side == "head" else 0)
                lines.append(f"{block},{side},{name},time,{math.exp(log):.9f},s,lower")
    file.write_text("\n".join(lines))
    return file


def judge(monkeypatch: pytest.MonkeyPatch, *words: object) -> int:
    monkeypatch.setattr("sys.argv", ["vmtoll", "judge", *map(str, words)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert isinstance(ended.value.code, int)
    return ended.value.code


@pytest.mark.parametrize(
    ("effects", "words", "code"),
    [
        ({"parse": 0.1, "render": 0.0}, [], Exit.WORSE),
        ({"parse": -0.1}, [], Exit.NOT_WORSE),
        ({"parse": 0.005}, [], Exit.UNDECIDED),
        ({"parse": 0.1, "render": -0.1}, ["--gate", "render"], Exit.NOT_WORSE),
        ({"parse": 0.1}, ["--worse-than", "5"], Exit.WORSE),
        ({"parse": 0.1}, ["--worse-than", "10"], Exit.UNDECIDED),
        ({"parse": 0.1}, ["--worse-than", "20"], Exit.NOT_WORSE),
        ({"parse": 0.005}, ["--worse-than", "5%"], Exit.NOT_WORSE),
        ({"parse": 0.1}, ["--baseline", "head"], Exit.NOT_WORSE),
    ],
)
def test_the_exit_code_is_the_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, effects: dict[str, float], words: list[str], code: Exit
) -> None:
    assert judge(monkeypatch, page(tmp_path, **effects), *words) == code


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--better", "more"], "--better more: give higher or lower"),
        (["--baseline", "x"], "--baseline x: no row has this side; they have main, head"),
        (["--junit", "nowhere/x.xml"], "there is no folder nowhere"),
        (["--worse-than", "0.05"], "write 5% if this is a fraction"),
        (["none.csv"], "none.csv: No such file"),
        (["--file-as", "host", "--file-as", "job"], "--file-as job: give benchmark or host"),
    ],
)
def test_an_error_is_no_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert judge(monkeypatch, page(tmp_path, parse=0.1), *words) == 128
    assert said in capsys.readouterr().err


def test_the_table_the_report_and_the_summary_say_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = page(tmp_path, parse=0.1, render=0.003)
    forms = ("--junit", tmp_path / "judge.xml", "--markdown", tmp_path / "judge.md")
    assert judge(monkeypatch, file, *forms) == Exit.WORSE
    shown = capsys.readouterr().out
    line = next(line for line in shown.splitlines() if line.startswith("parse time")).rstrip()
    size = "".join(re.findall(r"[0-9.]+× \([^)]*\)", line))
    assert size and line.endswith("worse")
    suite = ElementTree.fromstring((tmp_path / "judge.xml").read_bytes())
    failed, skipped = (suite.find(f"testcase/{name}") for name in ("failure", "skipped"))
    assert failed is not None and size in str(failed.get("message"))
    assert skipped is not None and "more blocks would show 2%" in str(skipped.get("message"))
    summary = (tmp_path / "judge.md").read_text()
    assert summary.startswith("**head compared with main: exit 1: worse**") and f"| {size} | worse |" in summary
    assert "judging a growing file again and again is not a valid test" in " ".join(shown.split())


def test_programs_read_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code = judge(monkeypatch, page(tmp_path, parse=0.1, render=0.0), "--json")
    document = json.loads(capsys.readouterr().out)
    assert (document["exit"], document["baseline"], len(document["rows"])) == (code, "main", 2)
    parse = document["rows"][0]
    assert (parse["benchmark"], parse["answer"], parse["blocks"], parse["gate"]) == ("parse", "worse", 12, True)
    assert parse["low"] < math.exp(0.1) < parse["high"]
    assert parse["level"] / parse["baseline_level"] == pytest.approx(parse["ratio"])


FILES = Path(__file__).parents[1] / "recordings/files"


def test_files_of_a_tool_are_paired(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each pair is a block, whatever repetitions a file has; the same two files alone are one side after the other."""
    old = json.loads((FILES / "hyperfine-one.json").read_text())
    new = json.loads(json.dumps(old))
    for result in new["results"]:
        result["times"] = [1.5 * time_s for time_s in result["times"]]
    for number in range(1, 7):
        (tmp_path / f"a{number}.json").write_text(json.dumps(old))
        (tmp_path / f"b{number}.json").write_text(json.dumps(new))
    pairs = [f"{tmp_path}/a{number}.json:{tmp_path}/b{number}.json" for number in range(1, 7)]
    assert judge(monkeypatch, "--blocks", *pairs) == Exit.WORSE
    assert judge(monkeypatch, "--blocks", *pairs[:2]) == Exit.UNDECIDED
    assert judge(monkeypatch, tmp_path / "a1.json", tmp_path / "b1.json") == Exit.UNDECIDED


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--blocks", "a.json"], "a.json: give 2 files, one for each side: a:b"),
        ([FILES / "hyperfine.json"], "is not a judge file; pair a tool's files by --blocks a1:b1"),
        (
            ["--blocks", f"{FILES}/hyperfine-failed.json:{FILES}/hyperfine-stopped.json"],
            "hyperfine-stopped.json: is empty",
        ),
    ],
)
def test_files_that_cannot_be_paired(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[object], said: str
) -> None:
    assert judge(monkeypatch, *words) == 128
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("cpus", "expected"), [("x", "give a list of CPUs"), ("4095", "this process may use the CPUs")]
)
def test_cpus_that_are_not_there_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], cpus: str, expected: str
) -> None:
    assert judge(monkeypatch, "--run", "true", "--run", "true", "--cpu", cpus) == 128
    assert f"--cpu {cpus}: {expected}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--run", "true", "--run", "false"], Exit.WORSE),
        (["--run", "echo 10", "--run", "echo 12", "--value", "([0-9]+)", "--better", "lower", "--aa"], Exit.WORSE),
        (["--run", "echo 10", "--run", "echo 10", "--value", "([0-9]+)", "--better", "lower"], Exit.NOT_WORSE),
        (["--run", "echo 10", "--run", "echo 9", "--value", "([0-9]+)", "--better", "lower", "--until", "2,1"],
         Exit.NOT_WORSE),
    ],
)  # fmt: skip
def test_commands_are_measured(monkeypatch: pytest.MonkeyPatch, words: list[str], code: Exit) -> None:
    assert judge(monkeypatch, *words, "--count", 8) == code


def test_a_side_that_does_not_run_is_worse_in_every_form(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    files = ("--junit", tmp_path / "judge.xml", "--markdown", tmp_path / "judge.md", "--json")
    assert judge(monkeypatch, "--run", "true", "--run", "false", *files) == Exit.WORSE
    problem = "false: ended with exit code 1; it printed nothing"
    assert json.loads(capsys.readouterr().out) == {"rows": [], "problem": problem, "exit": 1}
    failure = ElementTree.fromstring((tmp_path / "judge.xml").read_bytes()).find("testcase/failure")
    assert failure is not None and failure.get("message") == problem
    assert (tmp_path / "judge.md").read_text() == f"**exit 1: worse**\n\n{problem}\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "give judge files, or commands to measure"),
        (["--run", "true"], "1 commands for the sides A, B; give as many --names"),
        (["--run", "false", "--run", "true"], "false: ended with exit code 1"),
        (["--run", "sleep 0.2", "--run", "true", "--count", "400", "--at-most-min", "0.1"], "it would take about"),
    ],
)
def test_commands_that_cannot_be_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert judge(monkeypatch, *words) == 128
    assert said in capsys.readouterr().err


def test_a_page_that_is_killed_keeps_its_rows(tmp_path: Path) -> None:
    page = tmp_path / "page.jsonl"
    words = ("--run", "sleep 0.05", "--run", "sleep 0.05", "--count", "1000", "--save", str(page))
    with subprocess.Popen([sys.executable, "-m", "vmtoll", "judge", *words]) as run:
        deadline = time.monotonic() + 60
        while not page.exists() or len(page.read_text().splitlines()) < 12:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        run.kill()
    assert len(read_rows(page)) >= 12

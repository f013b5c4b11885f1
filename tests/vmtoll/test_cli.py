"""The command line: what a user types wrong is one clear sentence and exit code 2."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

VMTOLL = Path(sys.executable).parent / "vmtoll"


def vmtoll(*words: str | Path, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([VMTOLL, *words], capture_output=True, text=True, check=False, env=os.environ | environment)


@pytest.mark.parametrize(
    "words", [(), ("lab",), ("run",), ("report",), ("provision",), ("list",), ("site",), ("demo",)]
)
def test_help_is_complete(words: tuple[str, ...]) -> None:
    done = vmtoll(*words, "--help")
    assert done.returncode == 0, done.stderr
    assert "Usage" in done.stdout


def test_dry_run_prints_the_schedule_and_the_time() -> None:
    done = vmtoll("run", "demo", "--dry-run")
    assert done.returncode == 0, done.stderr
    *trials, total = done.stdout.splitlines()
    assert len(trials) == 6 * (4 * 2 + 1)
    assert total.startswith("54 trials, about ")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("run", "dmeo", "--dry-run"), "did you mean 'demo'"),
        (("run", "demo"), "lab is not up"),
        (("lab", "up", "--link", "fast"), "Link 'fast': give `unshaped`, or a rate"),
        (("report", "{tmp}"), "run.json"),
        (("site", "--results", "{tmp}", "--output", "{tmp}/site"), "no run (<experiment>/<run-id>/run.json)"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(words: tuple[str, ...], said: str, tmp_path: Path) -> None:
    done = vmtoll(*(word.format(tmp=tmp_path) for word in words), VMTOLL_STATE=str(tmp_path / "state"))
    assert done.returncode == 2, done.stdout
    assert "Traceback" not in done.stderr
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) <= 2

"""The command line: what a user types wrong is one clear sentence and exit code 2."""

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.support.committed_run import DEMO

VMTOLL = Path(sys.executable).parent / "vmtoll"


def vmtoll(*words: str | Path, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([VMTOLL, *words], capture_output=True, text=True, check=False, env=os.environ | environment)


@pytest.mark.parametrize(
    "words",
    [(), ("lab",), ("workload", "from-log"), ("run",), ("report",), ("provision",), ("list",), ("site",), ("demo",)],
)
def test_help_is_complete(words: tuple[str, ...]) -> None:
    done = vmtoll(*words, "--help")
    assert done.returncode == 0, done.stderr
    assert "Usage" in done.stdout


def test_the_version_is_that_of_the_package() -> None:
    assert vmtoll("--version").stdout == f"vmtoll {version('vmtoll')}\n"


def test_dry_run_prints_the_schedule_and_the_time() -> None:
    done = vmtoll("run", "demo", "--dry-run")
    assert done.returncode == 0, done.stderr
    *trials, total = done.stdout.splitlines()
    assert len(trials) == 6 * 2 * (2 * 2 + 1)
    assert total.startswith("60 trials, about ")


def test_dry_run_of_all_names_each_experiment_at_its_scale() -> None:
    small, full = (
        vmtoll("run", "all", "--dry-run", "--scale", scale).stdout.splitlines() for scale in ("small", "full")
    )
    assert [line.split()[0] for line in small] == [line.split()[0] for line in full]
    assert small[-1].startswith("9 experiments, about ")
    assert int(small[-1].split()[-2]) <= 40 < int(full[-1].split()[-2])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("run", "dmeo", "--dry-run"), "did you mean 'demo'"),
        (("run", "demo"), "lab is not up"),
        (("run", "demo", "--scale", "small", "--dry-run"), "demo.yml: has one size, no `scales`; leave out --scale"),
        (("run", "all", "--resume", "{tmp}"), "--resume cannot be combined with `run all`"),
        (("replication", "--results", "{tmp}"), "no batch (all-<scale>.json); name the runs"),
        (("lab", "up", "--link", "fast"), "Link 'fast': give `unshaped`, or a rate"),
        (
            ("lab", "up", "--topology", "ring"),
            "Unknown topology 'ring' (did you mean 'single'?); allowed: ",
        ),
        (("lab", "up", "--guests", "kvm-2008"), "Unknown guest profile 'kvm-2008' (did you mean 'kvm-2009'?); allowed"),
        (("report", "{tmp}"), "run.json"),
        (("site", "--results", "{tmp}", "--output", "{tmp}/site"), "no run (<experiment>/<run-id>/run.json)"),
        (("site", "--output", "/dev/null/site"), "/dev/null/site.part: Not a directory"),
        (("publish", str(DEMO), "--output", "/dev/null/bundle", "--author", "A"), "bundle.partial: Not a directory"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(words: tuple[str, ...], said: str, tmp_path: Path) -> None:
    done = vmtoll(*(word.format(tmp=tmp_path) for word in words), VMTOLL_STATE=str(tmp_path / "state"))
    assert done.returncode == 2, done.stdout
    assert "Traceback" not in done.stderr
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) <= 2

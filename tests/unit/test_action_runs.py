"""The linter of the action's `run:` finds what shellcheck finds, and expressions that the shell would read as code."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from vmtoll.paths import PROJECT


def lint(file: Path) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, str(PROJECT / "scripts/action_runs.py"), str(file)]
    return subprocess.run(argv, capture_output=True, text=True, check=False)


def test_the_projects_action_passes() -> None:
    done = lint(PROJECT / "action.yml")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        ("echo $NAME", "SC2086"),
        ("if true; then echo; done", "SC1"),
        ('echo "${{ inputs.name }}"', "step 2: run: has an expression"),
    ],
)
def test_a_bad_run_is_named(tmp_path: Path, run: str, expected: str) -> None:
    steps = [{"shell": "bash", "run": "echo"}, {"shell": "bash", "run": run}]
    (tmp_path / "action.yml").write_text(yaml.safe_dump({"runs": {"using": "composite", "steps": steps}}))
    done = lint(tmp_path / "action.yml")
    assert done.returncode == 1
    assert expected in done.stderr and "step 2" in done.stderr

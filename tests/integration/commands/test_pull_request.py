"""The script of the action that judges a pull request, on a small repository with a slow and an equal commit."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.support.history import git

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "scripts/judge-pull-request"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Commits `main`, `same`, `slow` and `broken`: a benchmark that prints its number."""
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    for branch, text in (("main", "echo 100"), ("same", "echo 100 # same"), ("slow", "echo 110"), ("broken", "exit 3")):
        if branch != "main":
            git(folder, "checkout", "-q", "-b", branch, "main")
        (folder / "bench.sh").write_text(text)
        git(folder, "add", "bench.sh")
        git(folder, "commit", "-q", "-m", branch)
    return folder


def judge(repository: Path, head: str, **variables: str) -> subprocess.CompletedProcess[str]:
    git(repository, "checkout", "-q", head)
    given = {
        "INPUT_RUN": "sh ./built", "INPUT_BUILD": "cp bench.sh built", "INPUT_BASE": "main",
        "INPUT_VALUE": "([0-9]+)", "INPUT_BETTER": "lower", "INPUT_UNTIL": "2,0.1",
        "GITHUB_STEP_SUMMARY": str(repository.parent / "summary"), "GITHUB_OUTPUT": str(repository.parent / "outputs"),
        "VMTOLL": str(Path(sys.executable).parent / "vmtoll"), "RUNNER_TEMP": str(repository.parent),
    }  # fmt: skip
    return subprocess.run(
        [SCRIPT], cwd=repository, env={**os.environ, **given, **variables}, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(("head", "code", "shown"), [("same", 0, "equal"), ("slow", 1, "worse"), ("broken", 1, "exit")])
def test_only_a_slower_head_fails(repository: Path, head: str, code: int, shown: str) -> None:
    done = judge(repository, head)
    assert done.returncode == code, done.stderr
    assert shown in (repository.parent / "summary").read_text()
    outputs = dict(line.split("=", 1) for line in (repository.parent / "outputs").read_text().splitlines())
    assert outputs["exit-code"] == str(code)
    assert Path(outputs["rows"]).exists()
    assert git(repository, "worktree", "list").count("\n") == 0, "no worktree is left"


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"INPUT_RUN": ""}, "run: is empty"),
        ({"INPUT_FAIL_ON": "red"}, "fail-on: 'red'; give worse or undecided"),
        ({"INPUT_BASE": ""}, "this is not a pull request"),
        ({"INPUT_BASE": "", "BASE_REF": "main"}, "check out with fetch-depth: 0"),
        ({"INPUT_BASE": "nope"}, "nope: no such commit here"),
        ({"INPUT_BUILD": "false"}, "the build of base failed"),
    ],
)
def test_an_error_is_no_verdict(repository: Path, variables: dict[str, str], said: str) -> None:
    done = judge(repository, "same", **variables)
    assert (done.returncode, said in done.stderr) == (128, True), done.stderr


def test_undecided_fails_where_that_is_asked_for(repository: Path) -> None:
    noisy = {"INPUT_RUN": "expr 100 + $(od -An -N1 -tu1 /dev/urandom)", "INPUT_UNTIL": "1,0.02"}
    assert judge(repository, "same", **noisy).returncode == 0
    assert judge(repository, "same", **noisy, INPUT_FAIL_ON="undecided").returncode == 125


def test_the_action_gives_the_script_all_its_inputs() -> None:
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    (step,) = action["runs"]["steps"]
    given = {
        value.removeprefix("${{ inputs.").removesuffix(" }}") for value in step["env"].values() if "inputs." in value
    }
    assert given == set(action["inputs"])
    assert step["shell"] == "bash" and action["runs"]["using"] == "composite"
    text = SCRIPT.read_text()
    assert [name for name in step["env"] if name not in text and name != "GH_TOKEN"] == []

"""`vmtoll bisect`: what it prints before it measures, and bad input."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.history import git
from vmtoll import cli
from vmtoll.model.change import Change
from vmtoll.runner.run import Plan, plan
from vmtoll.spec.experiment import Resolved

APPLY = ["--apply", "true {candidate}"]


def exit_code(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *words: str) -> object:
    monkeypatch.setattr("sys.argv", ["vmtoll", "bisect", *words, "--results", str(tmp_path / "results")])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return ended.value.code


@pytest.fixture
def listed(tmp_path: Path) -> Path:
    file = tmp_path / "kernels.txt"
    file.write_text("".join(f"linux-6.{number}\n" for number in range(1, 10)))
    return file


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "missing option '--apply'"),
        (APPLY, "give either --candidates FILE or --git REPOSITORY"),
        ([*APPLY, "--candidates", "{file}", "--git", "."], "give either --candidates FILE or --git REPOSITORY"),
        ([*APPLY, "--candidates", "{file}", "--metric", "speed"], "--metric speed: unknown metric"),
        ([*APPLY, "--candidates", "{file}", "--metric", "throughput"], "site-steady does not measure it"),
        ([*APPLY, "--candidates", "{file}", "--workload", "site-sweep"], "--workload site-sweep: has"),
        ([*APPLY, "--candidates", "{file}", "--workload", "site-search"], "searches for its rate"),
        ([*APPLY, "--candidates", "{file}", "--at-most-min", "5"], "--at-most-min is 5"),
        ([*APPLY, "--candidates", "{file}", "--machine", "metol"], "unknown environment 'metol'"),
        ([*APPLY, "--candidates", "{file}", "--on", "host"], "metal has no KVM host"),
        ([*APPLY, "--candidates", "{file}", "--skip", "linux-5"], "--skip linux-5: is not between"),
        ([*APPLY, "--candidates", "{file}", "--skip", "linux-6.1"], "--skip linux-6.1: is not between"),
        ([*APPLY, "--candidates", "{file}", "--judge", "linux-5"], "--judge linux-5: is not in the list of candidates"),
        (["--apply", "true", "--candidates", "{file}"], "--apply: must contain {candidate} or {folder}"),
        ([*APPLY, "--candidates", "{file}", "--server", "ngnix"], "vmtoll: servers[0]: unknown server 'ngnix'"),
        ([*APPLY, "--candidates", "{file}", "--good", "linux-6.9", "--bad", "linux-6.2"], "does not come before"),
        ([*APPLY, "--git", "{folder}", "--good", "a", "--bad", "b"], "git: not a git repository"),
    ],
)
def test_an_error_is_no_verdict_and_leaves_nothing(
    words: list[str], said: str, listed: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """`git bisect run` would take 2 for bad; from 128 on it stops."""
    given = [word.format(file=listed, folder=tmp_path, candidate="{candidate}") for word in words]
    assert exit_code(monkeypatch, tmp_path, *given) == 128
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert not list((tmp_path / "results").rglob("*.*"))


def test_what_it_takes_is_said_and_a_dry_run_writes_nothing(
    listed: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*APPLY, "--candidates", str(listed), "--until", "1,5", "--dry-run"]
    assert exit_code(monkeypatch, tmp_path, *words, "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["candidates_left"], said["sittings"], said["at_most_min"]) == (7, 7, 35.0)
    assert said["candidates"][0] == "linux-6.1"
    assert said["requests_to_first_looks"] > 0
    assert exit_code(monkeypatch, tmp_path, *words) == 0
    assert re.search("^7 candidates .*7 steps and 35 min", capsys.readouterr().out)
    assert not list((tmp_path / "results").rglob("*.*"))


@pytest.mark.parametrize(
    ("words", "differs_in"),
    [
        ([], None),
        (["--build", "make"], ["binary"]),
        (["--build", "make", "--differs-in", "config"], ["config"]),
        (["--build", "make", "--boots"], None),
        (["--differs-in", "kernel", "--differs-in", "vm.swappiness", "--boots"], ["kernel", "vm.swappiness"]),
    ],
)
def test_a_build_of_a_server_differs_in_its_binary_alone(
    words: list[str], differs_in: list[str] | None, listed: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    changes: dict[str, Change] = {}

    def planned(resolved: Resolved, *machines: Any, **keys: Any) -> Plan:
        changes.update(resolved.experiment.changes)
        return plan(resolved, *machines, **keys)

    monkeypatch.setattr("vmtoll.bisect.sitting.plan", planned)
    assert exit_code(monkeypatch, tmp_path, *APPLY, "--candidates", str(listed), "--dry-run", *words) == 0
    assert [change.differs_in for change in changes.values()] == [differs_in] * 3


def test_the_commits_of_a_history(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    repository = tmp_path / "repository"
    repository.mkdir()
    git(repository, "init", "-q")
    for number in range(5):
        git(repository, "commit", "-q", "--allow-empty", "-m", f"Change {number}")
    words = [*APPLY, "--git", str(repository), "--good", "HEAD~4", "--bad", "HEAD", "--dry-run", "--json"]
    assert exit_code(monkeypatch, tmp_path, *words) == 0
    assert json.loads(capsys.readouterr().out)["candidates"][-1] == git(repository, "rev-parse", "HEAD")

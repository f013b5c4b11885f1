"""The guard that keeps tests away from what is a user's."""

import os
from pathlib import Path

import pytest

from tests.support import committed_run
from tests.support.committed_run import DEMO, committed, committed_runs
from tests.support.users_state import UsersStateError, guarded
from vmtoll.paths import CACHE, PROJECT, RESULTS, STATE


def test_the_committed_runs_are_those_of_git() -> None:
    assert DEMO in committed_runs()
    assert {run.parent.parent for run in committed_runs()} == {PROJECT / "results"}


@pytest.mark.parametrize("folder", [RESULTS, DEMO.parent, RESULTS / "latest", CACHE / "tools", STATE])
def test_a_test_that_reads_what_is_a_users_fails(folder: Path) -> None:
    """Where the user has nothing, too."""
    for read in (os.listdir, os.scandir, lambda where: (where / "run.json").read_text()):
        with pytest.raises(UsersStateError, match=f"{folder}.*: a test read what"):
            read(folder)


def test_a_glob_finds_no_run_of_a_user() -> None:
    with pytest.raises(UsersStateError, match="may be a user's run"):
        sorted((PROJECT / "results").glob("*/*/run.json"))


def test_what_the_repository_carries_may_be_read(tmp_path: Path) -> None:
    assert (DEMO / "run.json").read_text()
    assert DEMO / "run.json" in DEMO.iterdir()
    assert (PROJECT / "results/README.md").read_text()
    assert [*(PROJECT / "results/schema").iterdir()]
    with guarded():
        assert [*tmp_path.iterdir()] == [], "what lies elsewhere"


def test_without_git_it_says_what_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(committed_run, "PROJECT", tmp_path)
    with pytest.raises(RuntimeError, match="need a git checkout"):
        committed.__wrapped__("README.md")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RuntimeError, match="install git"):
        committed.__wrapped__("README.md")

"""The candidates of a bisection: files, git histories, and what is wrong with them."""

import os
from pathlib import Path

import pytest

from tests.support.history import git
from vmtoll.bisect.candidates import inside_of, of_file, of_git
from vmtoll.model.errors import UserError


def test_a_file_lists_candidates_from_good_to_bad(tmp_path: Path) -> None:
    file = tmp_path / "kernels.txt"
    file.write_text("# oldest first\nlinux-6.1\n\nlinux-6.6\nlinux-6.12\n")
    assert of_file(file, None, None) == ["linux-6.1", "linux-6.6", "linux-6.12"]
    assert of_file(file, "linux-6.6", None) == ["linux-6.6", "linux-6.12"]


@pytest.mark.parametrize(
    ("text", "good", "said"),
    [
        ("", None, "lists nothing; give two candidates at least"),
        ("# none\n", None, "lists nothing"),
        ("a\n", None, "lists only a"),
        ("a\nb\n# c\na\n", None, "line 4: a is listed twice, first in line 1"),
        ("a\nb\n", "c", "does not list c"),
        ("a\nb\n", "b", "b does not come before b"),
    ],
)
def test_a_list_that_cannot_be_bisected(tmp_path: Path, text: str, good: str | None, said: str) -> None:
    file = tmp_path / "list.txt"
    file.write_text(text)
    with pytest.raises(UserError, match=said) as refused:
        of_file(file, good, None)
    assert str(refused.value).startswith(f"{file}: ")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q", "-b", "main")
    for number in range(4):
        git(tmp_path, "commit", "-q", "--allow-empty", "-m", f"Change {number}")
        git(tmp_path, "tag", f"v{number}")
    return tmp_path


def test_the_commits_of_a_history(repository: Path) -> None:
    assert of_git(repository, "v1", "main") == [git(repository, "rev-parse", f"v{number}") for number in (1, 2, 3)]


@pytest.mark.parametrize(
    ("good", "bad", "said"),
    [
        (None, "main", "--git needs --good and --bad"),
        ("v9", "main", "no commit 'v9' there"),
        ("v3", "v1", "v1 does not come after v3"),
        ("v3", "main", "are one commit"),
    ],
)
def test_anchors_that_no_history_has(repository: Path, good: str | None, bad: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        of_git(repository, good, bad)


def test_a_folder_without_a_repository(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"^{tmp_path}: git: not a git repository"):
        of_git(tmp_path, "a", "b")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a repository to another user")
def test_a_repository_of_another_user(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Git's own reason and its way out: the commits are there, git refuses to read them."""
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_SYSTEM", os.devnull)
    os.chown(repository, 65534, 65534)
    os.chown(repository / ".git", 65534, 65534)
    with pytest.raises(UserError, match=f"dubious ownership .*; to allow it: git config .*safe.directory {repository}"):
        of_git(repository, "v1", "main")


@pytest.fixture
def merged(repository: Path) -> Path:
    """v1 ─ v2 ─ v3 ─ merge (main), a branch `topic` from v2 that the merge brought in, and one of v1 that goes on."""
    git(repository, "checkout", "-q", "-b", "stable", "v1")
    git(repository, "commit", "-q", "--allow-empty", "-m", "Fix stable")
    git(repository, "checkout", "-q", "-b", "topic", "v2")
    git(repository, "commit", "-q", "--allow-empty", "-m", "Begin topic")
    git(repository, "commit", "-q", "--allow-empty", "-m", "End topic")
    git(repository, "checkout", "-q", "main")
    git(repository, "merge", "-q", "--no-ff", "-m", "Merge topic", "topic")
    return repository


def test_two_branches_have_a_merge_base(merged: Path) -> None:
    base = git(merged, "rev-parse", "v1")[:12]
    with pytest.raises(UserError, match=f"both come after .* Change 1, their merge base; give --good {base}"):
        of_git(merged, "stable", "main")


def test_a_good_commit_that_a_merge_brought_in(merged: Path) -> None:
    with pytest.raises(UserError, match=f"it came in by a merge .{git(merged, 'rev-parse', 'main')[:12]} merged"):
        of_git(merged, "topic", "main")


def test_a_merge_has_an_inside(merged: Path) -> None:
    good, bad = inside_of(merged, git(merged, "rev-parse", "main")) or ("", "")
    assert [git(merged, "log", "-1", "--format=%s", each) for each in of_git(merged, good, bad)] == [
        "Change 2", "Begin topic", "End topic",
    ]  # fmt: skip
    assert inside_of(merged, git(merged, "rev-parse", "v2")) is None


def test_a_shallow_clone_lacks_commits(merged: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    clone = tmp_path_factory.mktemp("shallow")
    git(clone, "clone", "-q", "--depth", "1", f"file://{merged}", ".")
    with pytest.raises(UserError, match="no commit 'v1' there; the clone is shallow, `git fetch --unshallow"):
        of_git(clone, "v1", "main")

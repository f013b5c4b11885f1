"""The candidates of a bisection: files, git histories, and what is wrong with them."""

from pathlib import Path

import pytest

from tests.support.history import git
from vmtoll.bisect.candidates import of_file, of_git
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
    with pytest.raises(UserError, match="no git repository"):
        of_git(tmp_path, "a", "b")

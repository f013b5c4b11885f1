"""The version and commit that a run records."""

import re
from pathlib import Path

import pytest

from vmtoll import version
from vmtoll.paths import PROJECT


def test_a_checkout_asks_git_and_pyproject() -> None:
    assert f'version = "{version.version()}"\n' in (PROJECT / "pyproject.toml").read_text()
    assert re.fullmatch(r"[0-9a-f]{40}(-dirty)?", version.commit() or "")


@pytest.mark.parametrize(("text", "commit"), [("abc-dirty\n", "abc-dirty"), (None, None)])
def test_an_installation_never_asks_git(
    text: str | None, commit: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The environment that it is in may be in a repository of the user's."""
    if text:
        (tmp_path / "commit").write_text(text)
    monkeypatch.setattr(version, "INSTALLED", True)
    monkeypatch.setattr(version, "PROJECT", tmp_path)
    monkeypatch.setattr(version, "_git", lambda *words: pytest.fail(f"git {words}"))
    assert version.commit() == commit
    assert version.version()


def test_without_git_the_commit_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    assert version.commit() is None

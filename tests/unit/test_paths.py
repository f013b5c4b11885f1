"""Where the user's own folder is, and where what vmtoll keeps is."""

import os
from pathlib import Path

import pytest

from vmtoll import paths
from vmtoll.paths import PLAYBOOKS, PROJECT, user_folder


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = tmp_path / "my-lab"
    (made / "experiments" / "deep").mkdir(parents=True)
    (made / "lab.yml").write_text("all: {}\n")
    monkeypatch.chdir(made)
    return made


def test_the_folder_is_the_current_one_or_one_above_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert user_folder() == folder
    monkeypatch.chdir(folder / "experiments" / "deep")
    assert user_folder() == folder
    monkeypatch.chdir(folder.parent)
    assert user_folder() is None


@pytest.mark.parametrize("directory", [PROJECT, PLAYBOOKS])
def test_the_checkout_is_nobodys_folder(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of its playbooks is called lab.yml."""
    monkeypatch.chdir(directory)
    assert user_folder() is None


def test_a_checkout_in_a_users_folder_does_not_use_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "PROJECT", folder / "experiments")
    assert user_folder() == folder
    monkeypatch.chdir(folder / "experiments" / "deep")
    assert user_folder() is None


def test_a_folder_that_everybody_can_write_to_does_not_count(folder: Path) -> None:
    folder.chmod(0o1777)
    assert user_folder() is None


def test_a_current_folder_that_was_removed_is_none(folder: Path) -> None:
    (folder / "lab.yml").unlink()
    (folder / "experiments" / "deep").rmdir()
    (folder / "experiments").rmdir()
    folder.rmdir()
    assert user_folder() is None


@pytest.mark.parametrize(
    ("uid", "environment", "expected"),
    [
        (0, {}, "/var/cache/vmtoll"),
        (0, {"VMTOLL_CACHE": "/big"}, "/big"),
        (1000, {"HOME": "/home/ada"}, "/home/ada/.cache/vmtoll"),
        (1000, {"HOME": "/home/ada", "XDG_CACHE_HOME": "/cache"}, "/cache/vmtoll"),
        (1000, {"HOME": "/home/ada", "VMTOLL_CACHE": "/big"}, "/big"),
    ],
)
def test_only_root_keeps_things_in_the_system(
    uid: int, environment: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("VMTOLL_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    assert paths._kept("VMTOLL_CACHE", "/var/cache/vmtoll", "XDG_CACHE_HOME", ".cache") == Path(expected)

"""What the embedded lab asks of a user."""

import os
import platform
from pathlib import Path

import pytest

from vmtoll.commands.run import run_one
from vmtoll.lab import embedded
from vmtoll.model.errors import UserError


def test_the_lab_needs_root_and_says_so_before_it_locks_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(embedded, "LAB", tmp_path)
    (tmp_path / "built.json").write_text("{}")
    with pytest.raises(UserError, match=r"needs root; .*sudo, .*--inventory"):
        run_one("demo", None, tmp_path)


@pytest.mark.parametrize(
    ("system", "is_refused"),
    [
        ({"ID": "debian", "PRETTY_NAME": "Debian GNU/Linux 13 (trixie)"}, False),
        ({"ID": "ubuntu", "ID_LIKE": "debian", "PRETTY_NAME": "Ubuntu 24.04"}, False),
        ({"ID": "fedora", "PRETTY_NAME": "Fedora Linux 43"}, True),
        ({}, True),
    ],
)
def test_the_lab_needs_debian(system: dict[str, str], is_refused: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "freedesktop_os_release", lambda: system)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    if not is_refused:
        embedded.require_root()
        return
    with pytest.raises(UserError, match=r"Debian and root, .*(Fedora Linux 43|another system); "):
        embedded.require_root()

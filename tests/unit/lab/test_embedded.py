"""What the embedded lab asks of a user."""

import os
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
    with pytest.raises(UserError, match="needs root; run this as root or by sudo, or give your own --inventory"):
        run_one("demo", None, tmp_path)

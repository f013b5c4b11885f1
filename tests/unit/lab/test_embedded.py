"""What the embedded lab asks of a user."""

import os
from pathlib import Path

import pytest

from vmtoll.commands.run import run_one
from vmtoll.lab import embedded
from vmtoll.lab.suite import VARIABLE
from vmtoll.model.errors import UserError


def test_the_lab_needs_root_and_says_so_before_it_locks_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(embedded, "LAB", tmp_path)
    (tmp_path / "built.json").write_text("{}")
    with pytest.raises(UserError, match="needs root; run this as root or by sudo, or give your own --inventory"):
        run_one("demo", None, tmp_path)


def test_guests_have_the_release_that_their_inventory_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the variable of the environment names another one: the other machines of the lab have the first."""
    monkeypatch.setenv(VARIABLE, "trixie")
    inventory = {"_meta": {"hostvars": {"metal": {}, "guest": {"vmtoll_suite": "bookworm"}}}}
    assert embedded.release_of_guests(inventory, Path("i.yml")).suite == "bookworm"
    assert embedded.release_of_guests({"_meta": {"hostvars": {"guest": {}}}}, Path("i.yml")).suite == "trixie"
    inventory["_meta"]["hostvars"]["metal"] = {"vmtoll_suite": "trixie"}
    with pytest.raises(
        UserError, match=r"i\.yml: vmtoll_suite must be the same on every host, but it is \['bookworm', "
    ):
        embedded.release_of_guests(inventory, Path("i.yml"))

"""The layout: what users edit is data, the program is one package."""

import pytest

from tests.support.committed_run import committed
from vmtoll.paths import PROJECT


@pytest.mark.parametrize("folder", ["workloads", "server-builds", "vm-images", "results"])
def test_folders_that_users_edit_contain_no_program(folder: str) -> None:
    """The folders hold data; lighttz's tests are Python, and no part of the program."""
    for file in committed(folder):
        assert file.suffix != ".py" or "lighttz" in file.parts, file


def test_ansible_content_is_linted_by_its_own_rules() -> None:
    """ruff refuses an import of vmtoll there (TID251); import-linter cannot see Ansible's plugins."""
    assert "TID251" in (PROJECT / "playbooks" / "ruff.toml").read_text()

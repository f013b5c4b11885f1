"""The release of the guests that an inventory describes."""

from pathlib import Path

import pytest

from vmtoll.builds.suite import VARIABLE
from vmtoll.model.errors import UserError
from vmtoll.provisioning.provision import release_of_guests


def test_guests_have_the_release_that_their_inventory_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the variable of the environment names another one: the other machines of the lab have the first."""
    monkeypatch.setenv(VARIABLE, "trixie")
    inventory = {"_meta": {"hostvars": {"metal": {}, "guest": {"vmtoll_suite": "bookworm"}}}}
    assert release_of_guests(inventory, Path("i.yml")).suite == "bookworm"
    assert release_of_guests({"_meta": {"hostvars": {"guest": {}}}}, Path("i.yml")).suite == "trixie"
    inventory["_meta"]["hostvars"]["metal"] = {"vmtoll_suite": "trixie"}
    with pytest.raises(UserError, match=r"i\.yml: vmtoll_suite .*every host, .* \['bookworm', "):
        release_of_guests(inventory, Path("i.yml"))

"""The items of a disclosure: who tells them, and what is missing."""

import pytest

from vmtoll.model.disclosure import DisclosedText, Disclosure, disclosed_texts, requested_items
from vmtoll.model.errors import InventoryError
from vmtoll.model.inventory import HostVars


def test_the_inventory_overrides_the_machines_answers() -> None:
    items = disclosed_texts({"cpu": "seen", "nic": "seen", "memory": ""}, {"cpu": "stated", "switch": "stated"})
    assert items == {
        "cpu": DisclosedText(text="stated", source="inventory"), "nic": DisclosedText(text="seen", source="machine"),
        "switch": DisclosedText(text="stated", source="inventory"),
    }  # fmt: skip


def test_a_guest_is_not_asked_for_the_hardware_below_it() -> None:
    assert {item.name for item in requested_items(False)} - {item.name for item in requested_items(True)} == {
        "firmware", "power_profile", "memory", "nic_firmware", "switch"
    }  # fmt: skip


def test_undisclosed_items_are_missing() -> None:
    told = {item.name: DisclosedText(text="x", source="machine") for item in requested_items(True)}
    block = Disclosure(machines={"metal": told, "guest": told}, virtual=["guest"])
    assert [item.name for item in block.missing("metal")] == [
        "firmware",
        "power_profile",
        "memory",
        "nic_firmware",
        "switch",
    ]
    assert block.missing("guest") == []


def test_an_item_that_does_not_exist_is_one_error() -> None:
    assert HostVars.read("big1", {"vmtoll_disclosure": {"switch": "Arista"}}, "lab.yml").disclosure == {
        "switch": "Arista"
    }
    with pytest.raises(InventoryError, match=r"lab.yml: big1: vmtoll_disclosure .*: no item 'swich'; .*: cpu"):
        HostVars.read("big1", {"vmtoll_disclosure": {"swich": "Arista"}}, "lab.yml")

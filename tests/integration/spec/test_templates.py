"""Templates of an inventory have the values that Ansible gives them, or are refused by name."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from vmtoll.model.errors import InventoryError
from vmtoll.spec.inventory import read_inventory


def inventory(folder: Path, load: dict[str, Any], **everywhere: Any) -> Path:
    file = folder / "lab.yml"
    groups = {
        "clients": {"hosts": {"load": load}},
        "metal_hosts": {"hosts": {"big": {"ansible_host": "{{ hostvars['load'].ansible_host }}", "port": 8081}}},
    }
    file.write_text(yaml.safe_dump({"all": {"vars": everywhere, "children": groups}}))
    return file


def test_a_template_has_the_value_that_its_host_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPERATOR", "ops")
    everywhere = {
        "domain": "bench.example", "ansible_user": "{{ lookup('env', 'OPERATOR') }}",
        "vmtoll_http_port": "{{ port | default(8080) }}", "vmtoll_tuning": {"governor": "{{ governor }}"},
        "governor": "performance", "other_tools": "{{ not_known }}",
    }  # fmt: skip
    load = {"ansible_host": "{{ inventory_hostname }}.{{ domain }}"}
    hosts = read_inventory(inventory(tmp_path, load, **everywhere))["_meta"]["hostvars"]
    assert {name: hosts["big"][name] for name in ("ansible_host", "ansible_user", "vmtoll_http_port")} == {
        "ansible_host": "load.bench.example", "ansible_user": "ops", "vmtoll_http_port": 8081,
    }  # fmt: skip
    assert (hosts["load"]["ansible_host"], hosts["load"]["vmtoll_http_port"]) == ("load.bench.example", 8080)
    assert hosts["load"]["vmtoll_tuning"] == {"governor": "performance"}
    assert hosts["load"]["other_tools"] == "{{ not_known }}", "of another tool"


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("{{ ansible_default_ipv4.address }}", "'ansible_default_ipv4' is undefined, and facts are not known before"),
        ("{{ 'x' | no_filter }}", "No filter named 'no_filter'"),
        ("{{ 1 + }}", "Syntax error in template"),
    ],
)
def test_a_template_without_a_value_is_refused(tmp_path: Path, template: str, said: str) -> None:
    with pytest.raises(InventoryError, match=r"lab\.yml: (load|big): ") as refusal:
        read_inventory(inventory(tmp_path, {"ansible_host": template}))
    assert said in str(refusal.value)
    assert "\n" not in str(refusal.value)
    with pytest.raises(InventoryError, match=r"lab\.yml: load: vmtoll_cpus is .*no value"):
        read_inventory(inventory(tmp_path, {"ansible_host": "a", "vmtoll_cpus": "{{ cpus }}"}))

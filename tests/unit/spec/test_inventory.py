"""The variables of an inventory: known, typed, documented, and each mistake in one sentence."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from vmtoll.model.errors import InventoryError
from vmtoll.model.inventory import Connection, Host, HostVars, markdown_table
from vmtoll.paths import PROJECT
from vmtoll.spec import inventory
from vmtoll.spec.inventory import read_inventory
from vmtoll.spec.machines import from_data


def test_the_table_in_docs_has_every_variable() -> None:
    table = markdown_table()
    assert (PROJECT / "docs" / "inventory.md").read_text().endswith(table), "python -m vmtoll.model.inventory"
    for name in [*HostVars.names(), *Connection.names()]:
        assert f"| `{name}` |" in table


def test_values_have_types_whatever_ansible_made_of_them() -> None:
    texts = {"vmtoll_http_port": "8081", "vmtoll_link_mbit": "100", "vmtoll_cpus": 3, "vmtoll_domain": None}
    host = Host("big", "metal", {**texts, "ansible_port": "2222", "ansible_become": "yes", "ansible_host": "192.0.2.1"})
    assert (host.port, host.vars.link_mbit, host.vars.cpus, host.vars.domain) == (8081, 100.0, "3", None)
    assert (host.address, host.ansible.port, host.argv()[-3:]) == ("192.0.2.1", 2222, ["sudo", "-n", "python3"])
    assert (host.vars.workers, host.vars.link, host.libvirt_uri, host.root) == (1, "unshaped", "qemu:///system", "/")


def test_a_connection_is_as_ansible_makes_it() -> None:
    """Of two names of one variable the one that Ansible prefers."""
    older = {"ansible_host": "a", "ansible_ssh_host": "b", "ansible_ssh_port": 23, "ansible_ssh_user": "ops"}
    words = {
        "ansible_ssh_args": "-o A=1", "ansible_ssh_common_args": "-J gate", "ansible_ssh_extra_args": "-o 'B=2 3'",
        "ansible_private_key_file": "/k1", "ansible_python_interpreter": "auto_silent", "ansible_ssh_executable": "/s",
        "ansible_become": "yes", "ansible_become_method": "ansible.builtin.sudo", "ansible_become_flags": "-H",
    }  # fmt: skip
    argv = Host("big", "metal", older | words).argv()
    assert argv[:7] == ["/s", "-o", "A=1", "-J", "gate", "-o", "B=2 3"]
    assert argv[argv.index("-p") :] == ["-p", "23", "-i", "/k1", "-l", "ops", "b", "sudo", "-n", "-H", "python3"]
    both = Host("big", "metal", words | {"ansible_ssh_private_key_file": "/k2"}).argv()
    assert both[both.index("-i") + 1] == "/k2"


@pytest.mark.parametrize(
    ("variables", "mistake"),
    [
        ({"ansible_become_method": "su"}, "lab.yml: big: ansible_become_method is 'su': vmtoll supports only `sudo`"),
        ({"ansible_become_user": "ops"}, "lab.yml: big: ansible_become_user is 'ops': vmtoll supports only `root`"),
        ({"vmtoll_http_port": "web"}, "lab.yml: big: vmtoll_http_port is 'web': must be a valid integer"),
        (
            {"vmtoll_revive": "virsh start x"},
            "lab.yml: big: vmtoll_revive is 'virsh start x': must be a valid li",
        ),
        ({"vmtoll_lab": "embeded"}, "lab.yml: big: vmtoll_lab is 'embeded': must be 'embedded' or 'hosts'"),
        ({"vmtoll_workers": True}, "lab.yml: big: vmtoll_workers is True: must be a number"),
        ({"vmtoll_workers": 0}, "lab.yml: big: vmtoll_workers is 0: must be greater than or equal to 1"),
        ({"ansible_port": "ssh"}, "lab.yml: big: ansible_port is 'ssh': must be a valid integer"),
    ],
)
def test_a_wrong_value_is_named_with_inventory_host_and_variable(variables: dict[str, Any], mistake: str) -> None:
    data = {
        "_meta": {"hostvars": {"big": {"vmtoll_environment": "metal", **variables}}},
        "clients": {"hosts": ["load"]},
        "metal_hosts": {"hosts": ["big"]},
    }
    with pytest.raises(InventoryError) as refused:
        from_data(data, ["metal"], "lab.yml")
    assert str(refused.value).startswith(mistake)


def test_variables_that_vmtoll_does_not_read_are_unknown() -> None:
    assert HostVars.unknown({"vmtoll_linc": 1, "vmtoll_link": "1gbit", "ansible_host": "x"}) == ["vmtoll_linc"]


def test_ansible_is_asked_once_for_a_file_that_has_not_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor for its copy; each time where variables lie beside it."""
    asked, run = [], subprocess.run

    def counted(command: list[str], **keys: Any) -> "subprocess.CompletedProcess[str]":
        asked.append(command)
        return run(command, **keys)

    monkeypatch.setattr(subprocess, "run", counted)
    monkeypatch.setattr(inventory, "_READ", {})

    def port(path: Path, limit: str | None = None) -> tuple[int, int]:
        """A variable as vmtoll reads it, and how often Ansible was asked so far."""
        hostvars = read_inventory(path, limit)["_meta"]["hostvars"]
        return hostvars["one"].pop("ansible_port"), len(asked)

    path, text = tmp_path / "lab.yml", "clients: {hosts: {one: {ansible_port: 22}}}\n"
    path.write_text(text)
    (tmp_path / "copy.yml").write_text(text)
    assert [port(path), port(path), port(tmp_path / "copy.yml")] == [(22, 1)] * 3
    path.write_text(text.replace("22", "23"))
    assert [port(path), port(path)] == [(23, 2)] * 2
    assert [port(path, "one"), port(path, "one")] == [(23, 3)] * 2
    (tmp_path / "host_vars").mkdir()
    (tmp_path / "host_vars" / "one.yml").write_text("ansible_port: 24\n")
    assert [port(path), port(path)] == [(24, 4), (24, 5)]

"""Inventories whose machines are not what they are called, or cannot be reached."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.support.measured import run
from vmtoll.model.errors import HostLostError, InventoryError
from vmtoll.spec import inventory as reading
from vmtoll.spec.catalog import Registry
from vmtoll.spec.inventory import read_inventory


def vmtoll(*words: str, file: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "vmtoll", *words, "--inventory", str(file)],
        capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip


def test_two_names_of_one_machine_are_refused_and_nothing_is_left(
    project: Registry, inventory: Path, tmp_path: Path
) -> None:
    tree = yaml.safe_load(inventory.read_text())
    for group in tree["all"]["children"].values():
        for variables in group["hosts"].values():
            del variables["vmtoll_root"]
    inventory.write_text(yaml.safe_dump(tree))
    with pytest.raises(InventoryError, match=r"metal and client .*ansible_host"):
        run(project.experiment_file("tiny"), inventory, tmp_path / "results", registry=project)
    assert list((tmp_path / "results").iterdir()) == []


def test_a_guest_at_the_address_of_its_kvm_host_is_refused(project: Registry, inventory: Path, tmp_path: Path) -> None:
    """Two addresses that ssh, and this machine, know as one; a folder of its own keeps the client apart."""
    tree = yaml.safe_load(inventory.read_text())
    groups = tree["all"]["children"]
    below = {"ansible_connection": "local", "ansible_host": "localhost"}
    guest = groups["metal_hosts"]["hosts"].pop("metal") | below
    del guest["vmtoll_root"]
    guest |= {"vmtoll_environment": "metal-two", "vmtoll_kvm_host": "below", "vmtoll_domain": "one"}
    guest["vmtoll_http_port"] = groups["metal_hosts"]["hosts"]["metal-two"]["vmtoll_http_port"]
    groups |= {"kvm_guests": {"hosts": {"guest": guest}}, "kvm_hosts": {"hosts": {"below": below}}}
    groups["metal_hosts"]["hosts"]["metal-two"]["vmtoll_environment"] = "metal"
    inventory.write_text(yaml.safe_dump(tree))
    with pytest.raises(InventoryError, match=r"guest .*below, .*one machine"):
        run(project.experiment_file("tiny"), inventory, tmp_path / "results", registry=project)


def test_a_run_names_every_machine_that_does_not_answer(project: Registry, inventory: Path, tmp_path: Path) -> None:
    tree = yaml.safe_load(inventory.read_text())
    metal = tree["all"]["children"]["metal_hosts"]["hosts"]
    for variables in metal.values():
        variables |= {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 9}
    inventory.write_text(yaml.safe_dump(tree))
    with pytest.raises(HostLostError, match=r"^2 machines .*\n  metal: .*\n  metal-two: "):
        run(project.experiment_file("tiny"), inventory, tmp_path / "results", registry=project)
    assert list((tmp_path / "results").iterdir()) == [], "a run that never began leaves no folder"


@pytest.mark.parametrize(
    "words", [["provision"], ["provision", "--check"], ["tune"], ["untune"], ["unprovision", "--check"], ["status"]]
)
def test_every_command_names_every_machine_that_does_not_answer(tmp_path: Path, words: list[str]) -> None:
    dead = {
        "ansible_host": "127.0.0.1",
        "ansible_port": 9,
        "vmtoll_environment": "metal",
        "vmtoll_tuning": {"smt": "off"},
    }
    groups = {"clients": {"hosts": {"load": {k: v for k, v in dead.items() if k != "vmtoll_environment"}}},
              "metal_hosts": {"hosts": {"big": dead}}}  # fmt: skip
    file = tmp_path / "lab.yml"
    file.write_text(yaml.safe_dump(groups))
    done = vmtoll(*words, file=file)
    assert done.returncode == (1 if words == ["status"] else 2)
    said = done.stdout + done.stderr
    assert all(f"{name}: nothing listens on " in said for name in ("load", "big")) and "port 9 " in said
    assert len(said.strip().splitlines()) <= 4, said


def test_provisioning_nobody_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "lab.yml"
    file.write_text("databases: {hosts: {db1: {}}}\n")
    done = vmtoll("provision", file=file)
    assert done.returncode == 2 and "no machine is " in done.stderr


TWICE = {
    "lab.yml": "clients:\n  hosts:\n    load: {vmtoll_http_port: 1, vmtoll_http_port: 2}\n",
    "lab.json": '{"clients":\n{"hosts":\n{"load": {"vmtoll_http_port": 1, "vmtoll_http_port": 2}}}}',
    "lab.ini": "[clients]\n# a line\nload vmtoll_http_port=1 vmtoll_http_port=2\n",
    "lab": "[clients]\n[clients:vars]\nvmtoll_http_port=1 # \nvmtoll_http_port = 2\n",
    "group_vars/all": "a: 1\nb: 2\nvmtoll_http_port: 3\nvmtoll_http_port: 4\n",
}


@pytest.mark.parametrize("name", TWICE)
def test_a_key_that_stands_twice_is_an_error(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(TWICE[name])
    number = 3 if name != "lab" and "/" not in name else 4
    hosts = file
    if "/" in name:
        hosts = tmp_path / "hosts"
        hosts.write_text("[clients]\nload\n")
    with pytest.raises(InventoryError, match=rf"{name}: line {number}: .* vmtoll_http_port"):
        read_inventory(hosts)


def test_a_key_may_replace_one_that_is_merged(tmp_path: Path) -> None:
    file = tmp_path / "lab.yml"
    file.write_text(
        "clients:\n  vars: &base {vmtoll_http_port: 1}\n  hosts:\n    load: {<<: *base, vmtoll_http_port: 2}\n"
        "metal_hosts:\n  hosts:\n    big: {note: same, other: same}\n"
    )
    assert read_inventory(file)["_meta"]["hostvars"]["load"]["vmtoll_http_port"] == 2
    ini = tmp_path / "lab.ini"
    ini.write_text('[clients]\nload x=1\n[metal_hosts]\nbig x=1 y="x=2 x=3"\n[suts:children]\nmetal_hosts\n')
    assert read_inventory(ini)["_meta"]["hostvars"]["big"] == {"x": 1, "y": "x=2 x=3"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("clients: {host: {load: {}}}", "key (host) in group (clients)"),
        ("clients: {hosts: {load: {}}, var: {vmtoll_link: 1gbit}}", "key (var) in group (clients)"),
        ("clients: [load]", "'clients'"),
    ],
)
def test_what_ansible_skips_is_an_error(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "lab.yml"
    file.write_text(text + "\n")
    with pytest.raises(InventoryError, match=re.escape(said) + "; a group has `hosts`"):
        read_inventory(file)


def test_a_key_of_somebody_else_that_ansible_skips_is_left_in_peace(tmp_path: Path) -> None:
    file = tmp_path / "lab.yml"
    file.write_text("clients: {hosts: {load: {}}}\nracks: {hosts: {r: {}}, comment: by hand}\n")
    assert read_inventory(file)["clients"] == {"hosts": ["load"]}


def test_a_file_of_variables_for_nobody_is_an_error(tmp_path: Path) -> None:
    """Of a folder any; beside a file a misspelt group of ours alone, for other inventories may share the folder."""
    file = tmp_path / "lab" / "hosts.yml"
    file.parent.mkdir()
    file.write_text("clients: {hosts: {load: {}}}\n")
    for name in ("group_vars/rack7.yml", "group_vars/sutz.yml", "host_vars/laod/a.yml"):
        wrong = file.parent / name
        wrong.parent.mkdir(parents=True, exist_ok=True)
        wrong.write_text("vmtoll_workers: 2\n")
        said = rf"{name}: no (group|host) '(rack7|sutz|laod)' is in the inventory"
        with pytest.raises(InventoryError, match=said):
            read_inventory(file.parent)
        if "sutz" in name:
            with pytest.raises(InventoryError, match=said):
                read_inventory(file)
        else:
            assert read_inventory(file)
        wrong.write_text("their_own: 1\n")
        assert read_inventory(file) and read_inventory(file.parent)


def test_a_file_of_a_folder_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    """By itself Ansible goes on without the machines of that file."""
    (tmp_path / "hosts.yml").write_text("clients: {hosts: {load1: {ansible_host: 127.0.0.1}}}\n")
    (tmp_path / "more.yml").write_text("clients: {hosts: {load2: {ansible_host: a, ansible_host: b}}}\n")
    with pytest.raises(InventoryError, match=r"more\.yml: .*duplicate key ansible_host"):
        read_inventory(tmp_path)


def test_a_limit_that_matches_nothing_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "lab.yml"
    file.write_text("clients: {hosts: {load1: {ansible_host: 127.0.0.1}}}\n")
    assert "load1" in read_inventory(file, "load1")["_meta"]["hostvars"]
    with pytest.raises(InventoryError, match=r"--limit laod1: .*'laod1'"):
        read_inventory(file, "laod1")


def test_an_inventory_that_ansible_does_not_read_in_time_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "hosts.sh"
    script.write_text("#!/bin/sh\nexec sleep 20\n")
    script.chmod(0o755)
    monkeypatch.setattr(reading, "_LIMIT_S", 3)
    with pytest.raises(InventoryError, match=rf"^{script}: .*within 3 s"):
        read_inventory(script)

"""Inventories whose machines are not what they are called, or cannot be reached."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.support.measured import run
from vmtoll.model.errors import HostLostError, InventoryError
from vmtoll.spec.catalog import Registry
from vmtoll.spec.inventory import read_inventory


def provision(file: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "vmtoll", "provision", "--inventory", str(file)],
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
    with pytest.raises(InventoryError, match="metal and client are one machine; correct ansible_host of one of them"):
        run(project.experiment_file("tiny"), inventory, tmp_path / "results", registry=project)
    assert list((tmp_path / "results").iterdir()) == []


def test_a_run_names_every_machine_that_does_not_answer(project: Registry, inventory: Path, tmp_path: Path) -> None:
    tree = yaml.safe_load(inventory.read_text())
    metal = tree["all"]["children"]["metal_hosts"]["hosts"]
    for variables in metal.values():
        variables |= {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 9}
    inventory.write_text(yaml.safe_dump(tree))
    with pytest.raises(HostLostError, match=r"metal: nothing listens on port 9 .*; metal-two: nothing listens"):
        run(project.experiment_file("tiny"), inventory, tmp_path / "results", registry=project)
    assert list((tmp_path / "results").iterdir()) == [], "a run that never began leaves no folder"


def test_provisioning_names_every_machine_that_does_not_answer(tmp_path: Path) -> None:
    dead = {"ansible_host": "127.0.0.1", "ansible_port": 9, "vmtoll_environment": "metal"}
    groups = {"clients": {"hosts": {"load": {k: v for k, v in dead.items() if k != "vmtoll_environment"}}},
              "metal_hosts": {"hosts": {"big": dead}}}  # fmt: skip
    file = tmp_path / "lab.yml"
    file.write_text(yaml.safe_dump(groups))
    done = provision(file)
    assert done.returncode == 2
    assert "load: nothing listens on port 9" in done.stderr and "big: nothing listens on port 9" in done.stderr
    assert len(done.stderr.strip().splitlines()) <= 2, done.stderr


def test_provisioning_nobody_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "lab.yml"
    file.write_text("databases: {hosts: {db1: {}}}\n")
    done = provision(file)
    assert done.returncode == 2 and "no machine is in any of our groups" in done.stderr


def test_a_key_that_stands_twice_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "lab.yml"
    file.write_text("clients:\n  hosts:\n    load: {vmtoll_http_port: 1, vmtoll_http_port: 2}\n")
    with pytest.raises(InventoryError, match=r"lab\.yml: .*duplicate.*vmtoll_http_port"):
        read_inventory(file)


def test_a_file_of_a_folder_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    """By itself Ansible goes on without the machines of that file."""
    (tmp_path / "hosts.yml").write_text("clients: {hosts: {load1: {ansible_host: 127.0.0.1}}}\n")
    (tmp_path / "more.yml").write_text("clients: {hosts: {load2: {ansible_host: a, ansible_host: b}}}\n")
    with pytest.raises(InventoryError, match=r"more\.yml: .*duplicate.*ansible_host"):
        read_inventory(tmp_path)


def test_a_limit_that_matches_nothing_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "lab.yml"
    file.write_text("clients: {hosts: {load1: {ansible_host: 127.0.0.1}}}\n")
    assert "load1" in read_inventory(file, "load1")["_meta"]["hostvars"]
    with pytest.raises(InventoryError, match="--limit laod1: no machine or group matches 'laod1'"):
        read_inventory(file, "laod1")

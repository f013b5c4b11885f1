"""Machines as flags name them, and the lab.yml that describes them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from vmtoll.folder.machines import LabMachines, Machine, MeasuredGuest
from vmtoll.folder.make import FIRST, FOLDERS, make
from vmtoll.folder.sources import ListedGuest
from vmtoll.model.errors import InventoryError, UserError
from vmtoll.spec.experiment import load
from vmtoll.spec.inventory_faults import InventoryData, faults, read_valid_inventory


def machine(text: str) -> Machine:
    return Machine.of(text, "--x")


@pytest.mark.parametrize(
    ("text", "name", "variables"),
    [
        ("load1", "load1", {}),
        ("192.0.2.7", "192.0.2.7", {}),
        ("web=192.0.2.7", "web", {"ansible_host": "192.0.2.7"}),
        ("ada@load1", "load1", {"ansible_user": "ada", "ansible_become": True}),
        ("web=ada@h.example:2222", "web",
         {"ansible_host": "h.example", "ansible_user": "ada", "ansible_become": True, "ansible_port": 2222}),
        ("localhost", "localhost", {"ansible_connection": "local"}),
        ("me=localhost", "me", {"ansible_connection": "local"}),
    ],
)  # fmt: skip
def test_a_machine_is_read(text: str, name: str, variables: dict[str, Any]) -> None:
    assert (machine(text).name, machine(text).variables) == (name, variables)


@pytest.mark.parametrize(
    "text", ["", "a b", "a=b=c", "=b", "h:ssh", "[::1]", "-oProxyCommand=x y", "-4", "a=-x", "wéb"]
)
def test_what_is_no_machine_is_refused(text: str) -> None:
    with pytest.raises(UserError, match=r"^--x '.*give \[NAME=\]"):
        machine(text)


def whole(**changes: Any) -> LabMachines:
    given: dict[str, Any] = {
        "clients": [machine("load1")], "metal": machine("big1"), "kvm_host": machine("big1"),
        "guests": [MeasuredGuest(machine("web1=192.0.2.7"), ListedGuest("web1", "running"))],
    }  # fmt: skip
    return LabMachines(**(given | changes))


def test_one_machine_in_two_groups_has_two_names() -> None:
    tree = yaml.safe_load(whole().lab_yml())["all"]["children"]
    assert list(tree["kvm_hosts"]["hosts"]) == ["big1"]
    assert list(tree["suts"]["children"]["metal_hosts"]["hosts"]) == ["big1-metal"]
    assert tree["suts"]["children"]["kvm_guests"]["hosts"]["web1"] == {
        "ansible_host": "192.0.2.7", "vmtoll_environment": "web1", "vmtoll_kvm_host": "big1", "vmtoll_domain": "web1",
    }  # fmt: skip


def test_its_two_names_lead_to_one_machine() -> None:
    metal = yaml.safe_load(whole().lab_yml())["all"]["children"]["suts"]["children"]["metal_hosts"]["hosts"]
    assert metal["big1-metal"]["ansible_host"] == "big1"


def test_a_guest_without_a_domain_has_no_host() -> None:
    tree = yaml.safe_load(whole(guests=[MeasuredGuest(machine("web1"))]).lab_yml())["all"]["children"]
    assert "kvm_hosts" not in tree
    assert tree["suts"]["children"]["kvm_guests"]["hosts"] == {"web1": {"vmtoll_environment": "web1"}}


@pytest.mark.parametrize(
    ("name", "environment"),
    [("web1", "web1"), ("Web 1.test", "web-1-test"), ("kvm-default", "kvm-default-guest"), ("metal", "metal-guest")],
)
def test_an_environment_is_a_name_of_its_own(name: str, environment: str) -> None:
    assert MeasuredGuest(Machine(name, "192.0.2.7")).environment == environment


@pytest.mark.parametrize(
    ("changes", "option"),
    [
        ({"clients": []}, "--client"),
        ({"metal": None, "guests": []}, "--guest and --metal"),
        ({"guests": [MeasuredGuest(machine("web1")), MeasuredGuest(machine("Web1=h"))]}, "--guest: two guests"),
    ],
)
def test_gaps_are_refused(changes: dict[str, Any], option: str) -> None:
    with pytest.raises(UserError, match=f"^{option}"):
        whole(**changes).refuse_gaps()


SHAPES: dict[str, Callable[[], LabMachines]] = {
    "all": whole,
    "metal alone": lambda: whole(kvm_host=None, guests=[]),
    "a tenant": lambda: whole(
        metal=None, kvm_host=None, guests=[MeasuredGuest(machine("a")), MeasuredGuest(machine("b"))]
    ),
    "another user": lambda: whole(user="ada", clients=[machine("load1"), machine("root@load2:22")], link_mbit=2500),
    "all of it here": lambda: whole(
        clients=[machine("localhost")], metal=machine("localhost"), kvm_host=machine("localhost")
    ),
}


@pytest.mark.parametrize("name", SHAPES)
def test_the_folder_passes_every_check(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What `vmtoll run` and `vmtoll preflight` check before they connect."""
    machines, folder = SHAPES[name](), tmp_path / "my-lab"
    make(folder, machines)
    monkeypatch.chdir(folder)
    data = read_valid_inventory(folder / "lab.yml", purpose="load")
    assert [str(fault) for fault in faults(InventoryData(data, folder / "lab.yml"))] == []
    resolved = load(folder / "experiments" / f"{FIRST}.yml")
    assert resolved.experiment.environments == machines.environments
    assert all(name in resolved.experiment.question for name in machines.environments)


def test_the_folder_of_the_embedded_lab_names_no_machine(tmp_path: Path) -> None:
    make(tmp_path / "my-lab", LabMachines())
    assert yaml.safe_load((tmp_path / "my-lab/lab.yml").read_text()) == {"all": {}}
    assert load(tmp_path / "my-lab/experiments/first.yml").experiment.environments == ["metal", "kvm-default"]


def test_an_empty_folder_is_filled(tmp_path: Path) -> None:
    (tmp_path / "my-lab").mkdir()
    (tmp_path / "my-lab/.vmtoll-init/experiments").mkdir(parents=True)  # of one that was killed
    files = make(tmp_path / "my-lab", LabMachines())
    entries = {entry.name for entry in (tmp_path / "my-lab").iterdir()}
    assert entries == {*FOLDERS, "lab.yml", ".gitignore"}
    assert all(file.is_file() for file in files)


def test_a_folder_that_is_not_empty_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(UserError, match=f"^{tmp_path}: not empty; "):
        make(tmp_path, LabMachines())
    with pytest.raises(UserError, match=r"mine\.txt: is a file"):
        make(tmp_path / "mine.txt", LabMachines())
    assert [entry.name for entry in tmp_path.iterdir()] == ["mine.txt"]


@pytest.mark.parametrize("exists", [False, True])
def test_a_lab_that_does_not_pass_leaves_nothing(tmp_path: Path, exists: bool) -> None:
    folder = tmp_path / "my-lab"
    if exists:
        folder.mkdir()
    guests = [MeasuredGuest(machine(f"{name}=192.0.2.7"), ListedGuest("web1", "running")) for name in ("a", "b")]
    with pytest.raises(InventoryError, match=rf"^{folder}/lab\.yml: .*same vmtoll_domain"):
        make(folder, whole(guests=guests))
    assert folder.exists() == exists
    assert not exists or not list(folder.iterdir())

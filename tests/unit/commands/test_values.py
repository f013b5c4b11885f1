"""Values that a shell completes, in the user's folder and without one."""

from pathlib import Path

import pytest
import yaml

from vmtoll.commands import values
from vmtoll.spec.catalog import Registry
from vmtoll.spec.workload import names

LAB = {
    "all": {
        "vars": {"ansible_user": "root"},
        "children": {
            "clients": {"hosts": {"load1": {}, "load2": None}},
            "suts": {"children": {"metal_hosts": {"hosts": {"big1": {"vmtoll_environment": "metal"}}}}},
        },
    }
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with machines, one document of each kind and three runs."""
    for name in ("experiments/shop", "workloads/shop-rate", "environments/type-a", "servers/webfs/server"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / f"{name}.yml").write_text("{}\n")
    (tmp_path / "lab.yml").write_text(yaml.safe_dump(LAB))
    for run in ("demo/20260101T000000Z-aaaa", "shop/20260301T000000Z-aaaa", "demo/20260201T000000Z-aaaa"):
        (tmp_path / "results" / run).mkdir(parents=True)
        (tmp_path / "results" / run / "run.json").write_text("{}")
    (tmp_path / "results/shop/none").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(values, "RESULTS", tmp_path / "results")
    return tmp_path


def test_documents_of_the_folder_and_shipped_ones(folder: Path) -> None:
    assert values.experiments("s") == [name for name in Registry().experiments() if name.startswith("s")]
    assert "shop" in values.experiments("s") and values.experiments("al") == ["all"]
    assert values.servers("webf") == ["webfs"]
    assert values.environments("") == Registry().environments()
    assert values.environments("type") == ["type-a"]


def test_variants_are_completed_once_their_file_is_typed(folder: Path) -> None:
    assert "page" in values.workloads("pa") and "page-4k-close" not in values.workloads("pa")
    assert set(values.workloads("page-100")) == {name for name in names(Registry()) if name.startswith("page-100")}
    assert values.workloads("shop") == ["shop-rate"]


def test_the_last_of_a_list_is_completed(folder: Path) -> None:
    assert values.profiles("kvm-2009,type") == ["kvm-2009,type-a"]


def test_runs_are_named_as_seen_from_here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    newest, *others = values.runs("")
    assert newest == "results/shop/20260301T000000Z-aaaa"
    assert others == ["results/demo/20260201T000000Z-aaaa", "results/demo/20260101T000000Z-aaaa"]
    (folder / "results/latest").symlink_to("shop/20260301T000000Z-aaaa")
    assert values.runs("")[0] == "results/latest"
    assert values.runs("results/d") == others
    monkeypatch.chdir(folder / "experiments")
    assert values.runs("")[0] == "../results/latest"


def test_machines_and_groups_are_those_of_lab_yml(folder: Path) -> None:
    assert values.hosts("") == ["load1", "load2", "big1"]
    assert values.hosts_and_groups("") == ["load1", "load2", "big1", "clients", "suts", "metal_hosts"]


@pytest.mark.parametrize("text", ["", "all: [", "- a list\n", "all: {children: [clients]}\n", "\x00"])
def test_a_lab_that_cannot_be_read_completes_nothing(folder: Path, text: str) -> None:
    (folder / "lab.yml").write_text(text)
    assert values.hosts_and_groups("") == []


def test_without_a_folder_there_are_shipped_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "demo" in values.experiments("")
    assert values.hosts("") == []
    assert values.topologies("si") == ["single"]
    assert "tails" in values.notebooks("")

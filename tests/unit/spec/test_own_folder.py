"""What the user's own folder holds stands over what vmtoll ships."""

import hashlib
from pathlib import Path

import pytest
import yaml

from vmtoll.builds import servers
from vmtoll.guests import profiles
from vmtoll.model.errors import ExperimentError
from vmtoll.model.release import RELEASES
from vmtoll.paths import PROJECT
from vmtoll.spec import catalog
from vmtoll.spec.catalog import Registry
from vmtoll.spec.experiment import load
from vmtoll.spec.server import read_server
from vmtoll.spec.workload import file_of, load_workloads, names

SHOP = {
    "question": "what does it cost?", "environments": ["metal", "type-a"], "servers": ["nginx", "two"],
    "workloads": ["shop", "site-steady"], "blocks": 6, "warmup_s": 0.1, "duration_s": 0.5, "shares_of": "slowest",
}  # fmt: skip
WORKLOAD = {"description": "ours", "site": "office", "tool": "oha", "users": 2, "keep_alive": True}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an experiment, a workload, a site and environments; nginx is the user's own."""
    made = tmp_path / "my-lab"
    for name in ("experiments", "workloads", "sites", "servers/nginx", "servers/two", "environments"):
        (made / name).mkdir(parents=True)
    (made / "lab.yml").write_text("all: {}\n")
    (made / "experiments/shop.yml").write_text(yaml.safe_dump(SHOP))
    (made / "workloads/shop.yml").write_text(yaml.safe_dump(WORKLOAD))
    (made / "environments/type-a.yml").write_text("description: a guest of a cloud\n")
    (made / "environments/kvm-more.yml").write_text("of: [kvm-default]\nmemory_mib: 2048\n")
    nginx = yaml.safe_load((PROJECT / "server-builds/nginx/server.yml").read_text())
    (made / "servers/nginx/server.yml").write_text(yaml.safe_dump(nginx | {"description": "our own nginx"}))
    (made / "servers/nginx/nginx.conf.j2").write_text("# ours, port {{ server_port }}\n")
    (made / "servers/two/server.yml").write_text("description: two of them\nof: lighttpd\nworkers: 2\n")
    monkeypatch.chdir(made)
    monkeypatch.setattr(catalog, "_said", set())
    return made


def test_both_are_listed_and_found(folder: Path) -> None:
    registry = Registry()
    assert {"shop", "demo"} <= set(registry.experiments())
    assert {"two", "nginx", "lighttz"} <= set(registry.servers())
    assert registry.servers().count("nginx") == 1
    assert {"metal", "type-a", "kvm-more", "kvm-default"} <= set(registry.environments())
    assert registry.experiment_file("shop") == folder / "experiments/shop.yml"
    assert registry.experiment_file("demo") == PROJECT / "workloads/experiments/demo.yml"
    assert registry.server_file("nginx") == folder / "servers/nginx/server.yml"


def test_an_experiment_takes_from_both(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    resolved = load(Registry().experiment_file("shop"))
    assert resolved.definitions["nginx"].description == "our own nginx"
    assert resolved.definitions["two"].binary == read_server("lighttpd").binary
    load(Registry().experiment_file("shop"))
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith(f"vmtoll: server nginx: {folder}/servers/nginx/server.yml, ")


def test_a_run_records_the_files_that_it_used(folder: Path) -> None:
    documents = {each.file: each for each in load(Registry().experiment_file("shop")).documents}
    assert {name for name, each in documents.items() if each.own} == {
        "experiments/shop.yml", "workloads/shop.yml", "environments/type-a.yml", "servers/nginx/server.yml",
        "servers/nginx/nginx.conf.j2", "servers/two/server.yml",
    }  # fmt: skip
    assert {"sites/office.yml", "workloads/site-steady.yml", "servers/lighttpd/lighttpd.conf.j2"} < set(documents)
    shop = (folder / "experiments/shop.yml").read_bytes()
    assert documents["experiments/shop.yml"].sha256 == hashlib.sha256(shop).hexdigest()


def test_templates_are_found_in_either(folder: Path) -> None:
    policy, release = servers.Policy(port=8081), RELEASES[0]
    assert servers._files(read_server("nginx"), policy, release)["/etc/vmtoll/servers/nginx/nginx.conf"] == (
        b"# ours, port 8081\n", 0o644,
    )  # fmt: skip
    text, _ = servers._files(read_server("two"), policy, release)["/etc/vmtoll/servers/two/lighttpd.conf"]
    assert text.startswith(b"server.port = 8081\n")


def test_a_profile_builds_on_shipped_ones(folder: Path) -> None:
    more, default = profiles.load("kvm-more"), profiles.load("kvm-default")
    assert (more.values["memory_mib"], more.values["nic_type"]) == (2048, default.values["nic_type"])


def test_a_workload_of_the_folder_stands_over_a_variant(folder: Path) -> None:
    """`page.yml`, which vmtoll ships, has a variant page-4k-close."""
    variant = next(
        name for name in names(Registry()) if name.startswith("page-") and name not in Registry().workloads()
    )
    file = folder / "workloads" / f"{variant}.yml"
    file.write_text(yaml.safe_dump(WORKLOAD))
    registry = Registry()
    assert file_of(variant, registry) == file
    assert load_workloads(variant, registry)[variant].description == "ours"
    family = file_of(f"{variant}-no-such", registry) or registry.workload_file("page")
    assert load_workloads(family.stem, registry)[variant].description == "ours"
    assert names(registry).count(variant) == 1


def test_a_mistake_names_the_file_of_the_folder(folder: Path) -> None:
    (folder / "servers/two/server.yml").write_text("description: two\nof: lighttpd\nwrokers: 2\n")
    with pytest.raises(ExperimentError, match=rf"{folder}/servers/two/server\.yml: .*'wrokers'.*'workers'"):
        read_server("two")


def test_an_unknown_experiment_is_named_in_the_folder(folder: Path) -> None:
    with pytest.raises(ExperimentError, match=rf"{folder}/experiments/shpo\.yml: .*you mean 'shop'"):
        load(Registry().experiment_file("shpo"))


def test_archives_of_sources_are_named_in_the_folder(folder: Path) -> None:
    assert Registry().sources_folder() == PROJECT
    (folder / "sources.yml").write_text("{}\n")
    assert Registry().sources_folder() == folder

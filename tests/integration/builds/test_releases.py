"""A server that the machines' release does not ship: skipped by name, never a failed run."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from tests.support.measured import run
from tests.support.records import records_of
from vmtoll.agent.facts import release
from vmtoll.machines.facts import release_of
from vmtoll.model.errors import ExperimentError, HostLostError
from vmtoll.model.event import Event, NotMeasured
from vmtoll.model.inventory import Host
from vmtoll.model.release import RELEASES, release_of_name
from vmtoll.runner import requirements
from vmtoll.spec.catalog import Registry
from vmtoll.spec.experiment import load
from vmtoll.spec.machines import load_inventory

HERE = release(Path("/etc/os-release").read_text())
Rewrite = Callable[..., Path]


@pytest.fixture
def named(project: Registry, rewrite: Rewrite) -> Path:
    """An experiment on one machine that names a server which no known release ships, with lighttz."""
    folder = project.root / "server-builds/absent"
    folder.mkdir()
    suites = [known.suite for known in RELEASES]
    server = {"of": "lighttz", "description": "a server that no release ships", "not_in": suites}
    (folder / "server.yml").write_text(yaml.safe_dump(server))
    return rewrite(servers=["lighttz", "absent"], environments=["metal"], blocks=1, noise_floor=None)


def test_a_machine_reports_its_release(project: Registry, inventory: Path) -> None:
    assert release_of(load_inventory(inventory, ["metal"]).suts["metal"]) == HERE


@pytest.mark.skipif(release_of_name(HERE) is None, reason="this machine is no release that vmtoll knows")
def test_a_server_that_the_release_lacks_is_skipped_by_name(
    project: Registry, inventory: Path, named: Path, tmp_path: Path
) -> None:
    events: list[Event] = []
    folder = run(named, inventory, tmp_path / "results", registry=project, listener=events.append)
    assert NotMeasured("absent", f"not in {HERE}") in events
    document = json.loads((folder / "run.json").read_text())
    assert document["skipped"] == [
        {"server": "absent", "environment": None, "workload": None, "why": f"not in {HERE}", "release": HERE}
    ]
    assert {(r.scenario.server, r.release) for r in records_of(folder)} == {("lighttz", HERE)}
    assert {facts["release"] for facts in json.loads((folder / "hosts.json").read_text()).values()} == {HERE}


def test_releases_are_queried_only_when_needed_and_an_unknown_one_ships_all(
    project: Registry, inventory: Path, named: Path, rewrite: Rewrite
) -> None:
    machines = load_inventory(inventory, ["metal"])
    resolved = load(named, project)
    assert requirements.without_unshipped(resolved, machines, lambda _: "Ubuntu 24.04").skipped == ()
    plain = load(rewrite(servers=["lighttz"], environments=["metal"], blocks=1, noise_floor=None), project)
    assert requirements.without_unshipped(plain, machines, lambda _: pytest.fail("asked")) == plain


def test_an_experiment_of_nothing_else_is_refused(
    project: Registry, inventory: Path, named: Path, rewrite: Rewrite
) -> None:
    only = load(rewrite(servers=["absent"], environments=["metal"], blocks=1, noise_floor=None), project)
    with pytest.raises(ExperimentError, match=r"servers: .*: absent: not in Debian 13$"):
        requirements.without_unshipped(only, load_inventory(inventory, ["metal"]), lambda _: "Debian 13")


@pytest.mark.parametrize(
    ("metal", "guest", "skipped"),
    [
        ("Debian 12", "Debian 13", ["absent: not in Debian 13"]),
        ("Debian 13", "Debian 12", ["absent: not in Debian 13"]),
        ("Debian 12", "Debian 12", []),
        ("Debian 12", None, []),
    ],
)
def test_every_machine_under_test_is_asked(
    project: Registry, inventory: Path, named: Path, rewrite: Rewrite, metal: str, guest: str | None, skipped: list[str]
) -> None:
    """A guest that does not answer may have been left paused by an interrupted run, which resumes it."""
    definition = project.root / "server-builds/absent/server.yml"
    definition.write_text(yaml.safe_dump(yaml.safe_load(definition.read_text()) | {"not_in": ["trixie"]}))
    both = rewrite(servers=["lighttz", "absent"], environments=["metal", "metal-two"], blocks=1, noise_floor=None)
    machines = load_inventory(inventory, ["metal", "metal-two"])
    (second,) = machines.machines["metal-two"]
    mixed = replace(machines, machines={**machines.machines, "metal-two": [replace(second, role="kvm_guest")]})

    def answer(host: Host) -> str:
        told = metal if host.role == "metal" else guest
        if told is None:
            raise HostLostError(f"{host.name}: no answer")
        return told

    left = requirements.without_unshipped(load(both, project), mixed, answer)
    assert [f"{skip.name}: {skip.why}" for skip in left.skipped] == skipped
    with pytest.raises(HostLostError):
        requirements.without_unshipped(load(both, project), machines, _silent)


def _silent(host: Host) -> str:
    raise HostLostError(f"{host.name}: no answer")

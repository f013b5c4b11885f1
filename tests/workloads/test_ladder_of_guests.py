"""A ladder of guests: checked before anything starts; what the inventory lacks is skipped with its reason."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vmtoll.replay import _rungs
from workloads.runner.errors import ExperimentError, InventoryError
from workloads.runner.experiment import Resolved, load
from workloads.runner.inventory import Inventory, from_data
from workloads.runner.registry import PROJECT, Registry
from workloads.runner.run import _skipped
from workloads.runner.rungs import without_absent
from workloads.runner.schedule import scenarios

Rewrite = Callable[..., Path]
PROFILES = {
    "kvm-low": "description: a guest\nneeds: [kvm]\n",
    "kvm-pages": "description: the same in huge pages\nof: [kvm-low]\nneeds: [hugepages]\n",
    "kvm-high": "description: both\nof: [kvm-pages]\n",
    "kvm-other": "description: needs nothing\n",
}
LADDER = {"cumulative": ["kvm-low", "kvm-pages", "kvm-high"], "base": "kvm-low", "single": ["kvm-other"]}


@pytest.fixture
def wide(project: Registry) -> Registry:
    """The project with four guest profiles."""
    for name, text in PROFILES.items():
        project.guest_file(name).write_text(text)
    return project


def climb(rewrite: Rewrite, wide: Registry, **ladder: Any) -> Resolved:
    return load(rewrite(environments=["metal", *PROFILES], ladder={**LADDER, **ladder}), wide)


def inventory_of(*guests: str, optional: list[str]) -> Inventory:
    machines = {"m": "metal", **{f"host-of-{guest}": guest for guest in guests}}
    hostvars = {name: {"vmtoll_environment": environment} for name, environment in machines.items()}
    data = {"_meta": {"hostvars": hostvars}, "clients": {"hosts": ["c"]}, "metal": {"hosts": list(machines)}}
    return from_data(data, ["metal", *PROFILES], optional=optional)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"cumulative": ["kvm-low", "kvm-hihg"]}, r"ladder.cumulative\[1\]: .*'kvm-hihg' \(did you mean 'kvm-high'\?"),
        ({"cumulative": ["metal", "kvm-low"]}, r"ladder.cumulative\[0\]: unknown environment 'metal'"),
        ({"cumulative": ["kvm-low"]}, r"ladder.cumulative: .*at least 2 items"),
        ({"base": "kvm-odd"}, r"ladder.base: unknown environment 'kvm-odd'"),
        ({"base": None}, r"ladder: .*base and single are given together"),
        ({"single": ["kvm-low"]}, r"ladder: .*kvm-low is the base"),
        ({"single": ["kvm-other", "kvm-other"]}, r"ladder.single\[1\]: 'kvm-other' is named twice"),
        ({"rungs": []}, r"ladder.rungs: unknown key 'rungs'.*cumulative"),
    ],
)
def test_mistakes_in_a_ladder_are_named(wide: Registry, rewrite: Rewrite, change: dict[str, Any], said: str) -> None:
    with pytest.raises(ExperimentError, match=said):
        climb(rewrite, wide, **change)


def test_a_guest_that_is_not_there_is_skipped_with_what_it_needs(wide: Registry, rewrite: Rewrite) -> None:
    resolved = climb(rewrite, wide)
    inventory = inventory_of("kvm-low", "kvm-other", optional=list(PROFILES))
    left = without_absent(resolved, inventory, wide)
    assert left.environments == ["metal", "kvm-low", "kvm-other"]
    assert {cell.environment for cell in scenarios(left)} == {"metal", "metal-b", "kvm-low", "kvm-other"}
    why = "the inventory has no such guest; it needs kvm, hugepages"
    assert _skipped(left) == [{"environment": "kvm-pages", "why": why}, {"environment": "kvm-high", "why": why}]
    whole = without_absent(resolved, inventory_of(*PROFILES, optional=[]), wide)
    assert whole.environments == ["metal", *PROFILES] and _skipped(whole) == []


def test_one_guest_is_no_ladder(wide: Registry, rewrite: Rewrite) -> None:
    inventory = inventory_of("kvm-other", optional=list(PROFILES))
    with pytest.raises(InventoryError, match=r"kvm-low, kvm-pages.*fewer than two: add guests of these profiles"):
        without_absent(climb(rewrite, wide), inventory, wide)


def test_without_a_ladder_every_environment_is_needed() -> None:
    with pytest.raises(InventoryError, match="0 hosts have vmtoll_environment 'kvm-pages'"):
        inventory_of("kvm-low", optional=[])


def test_a_replay_climbs_what_is_here() -> None:
    assert _rungs(LADDER, set(PROFILES)) == LADDER
    assert _rungs(LADDER, {"kvm-pages", "kvm-high", "kvm-other"}) == {
        "cumulative": ["kvm-pages", "kvm-high"], "base": None, "single": [],
    }  # fmt: skip
    assert _rungs(LADDER, {"kvm-low", "kvm-other"}) is None is _rungs(None, set(PROFILES))


@pytest.mark.parametrize("scale", ["full", "small"])
def test_the_tuning_ladder_is_sound(scale: Any) -> None:
    experiment = load(PROJECT / "workloads/experiments/tuning-ladder.yml", scale=scale).experiment
    assert experiment.ladder
    assert experiment.ladder.cumulative[0] == "kvm-2009"
    assert set(experiment.environments) == {"metal", *experiment.ladder.environments}

"""Tuning steps: checked before anything starts; vmtoll skips what the inventory lacks and says why."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vmtoll.commands.replay import _tuning_steps
from vmtoll.model.errors import ExperimentError, InventoryError
from vmtoll.model.experiment import TuningSteps
from vmtoll.model.inventory import Inventory
from vmtoll.model.run import Skipped
from vmtoll.paths import PROJECT
from vmtoll.runner.plan import combinations
from vmtoll.runner.requirements import without_absent
from vmtoll.spec.catalog import Registry
from vmtoll.spec.experiment import Resolved, load
from vmtoll.spec.machines import from_data

Rewrite = Callable[..., Path]
PROFILES = {
    "kvm-low": "description: a guest\nneeds: [kvm]\n",
    "kvm-pages": "description: the same in huge pages\nof: [kvm-low]\nneeds: [hugepages]\n",
    "kvm-high": "description: both\nof: [kvm-pages]\n",
    "kvm-other": "description: needs nothing\n",
}
STEPS = {"cumulative": ["kvm-low", "kvm-pages", "kvm-high"], "base": "kvm-low", "single": ["kvm-other"]}


@pytest.fixture
def wide(project: Registry) -> Registry:
    """The project with four guest profiles."""
    for name, text in PROFILES.items():
        project.guest_file(name).write_text(text)
    return project


def resolved(rewrite: Rewrite, wide: Registry, **steps: Any) -> Resolved:
    return load(rewrite(environments=["metal", *PROFILES], tuning_steps={**STEPS, **steps}), wide)


def inventory_of(*guests: str, optional: list[str]) -> Inventory:
    machines = {"m": "metal", **{f"host-of-{guest}": guest for guest in guests}}
    hostvars = {name: {"vmtoll_environment": environment} for name, environment in machines.items()}
    data = {"_meta": {"hostvars": hostvars}, "clients": {"hosts": ["c"]}, "metal_hosts": {"hosts": list(machines)}}
    return from_data(data, ["metal", *PROFILES], optional=optional)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"cumulative": ["kvm-low", "kvm-hihg"]},
            r"tuning_steps.cumulative\[1\]: .*'kvm-hihg' .*mean 'kvm-high'\?",
        ),
        ({"cumulative": ["metal", "kvm-low"]}, r"tuning_steps.cumulative\[0\]: unknown environment 'metal'"),
        ({"cumulative": ["kvm-low"]}, r"tuning_steps.cumulative: .*at least 2 items"),
        ({"base": "kvm-odd"}, r"tuning_steps.base: unknown environment 'kvm-odd'"),
        ({"base": None}, r"tuning_steps: .*base and single are given together"),
        ({"single": ["kvm-low"]}, r"tuning_steps: .*kvm-low is the base"),
        ({"single": ["kvm-other", "kvm-other"]}, r"tuning_steps.single\[1\]: 'kvm-other' is named twice"),
        ({"rungs": []}, r"tuning_steps.rungs: unknown key 'rungs'.*cumulative"),
    ],
)
def test_mistakes_in_steps_are_named(wide: Registry, rewrite: Rewrite, change: dict[str, Any], said: str) -> None:
    with pytest.raises(ExperimentError, match=said):
        resolved(rewrite, wide, **change)


def test_a_missing_guest_is_skipped_and_its_needs_are_named(wide: Registry, rewrite: Rewrite) -> None:
    inventory = inventory_of("kvm-low", "kvm-other", optional=list(PROFILES))
    left = without_absent(resolved(rewrite, wide), inventory)
    assert left.environments == ["metal", "kvm-low", "kvm-other"]
    assert {str(arm) for arm, _ in combinations(left)} == {"metal", "metal#2", "kvm-low", "kvm-other"}
    why = "the inventory has no such guest; it needs kvm, hugepages"
    assert list(left.skipped) == [
        Skipped(environment="kvm-pages", why=why),
        Skipped(environment="kvm-high", why=why),
    ]
    whole = without_absent(resolved(rewrite, wide), inventory_of(*PROFILES, optional=[]))
    assert whole.environments == ["metal", *PROFILES] and not whole.skipped


def test_one_guest_is_not_enough(wide: Registry, rewrite: Rewrite) -> None:
    inventory = inventory_of("kvm-other", optional=list(PROFILES))
    with pytest.raises(InventoryError, match=r"kvm-low, kvm-pages.*fewer than two: "):
        without_absent(resolved(rewrite, wide), inventory)


def test_without_tuning_steps_every_environment_is_needed() -> None:
    with pytest.raises(InventoryError, match="0 hosts have vmtoll_environment 'kvm-pages'"):
        inventory_of("kvm-low", optional=[])


def test_a_replay_measures_the_steps_that_are_here() -> None:
    steps = TuningSteps.model_validate(STEPS)
    assert _tuning_steps(steps, PROFILES) == steps
    assert _tuning_steps(steps, {"kvm-pages", "kvm-high", "kvm-other"}) == TuningSteps(
        cumulative=["kvm-pages", "kvm-high"]
    )
    assert _tuning_steps(steps, {"kvm-low", "kvm-other"}) is None is _tuning_steps(None, PROFILES)


@pytest.mark.parametrize("scale", ["full", "small"])
def test_the_experiment_is_sound(scale: Any) -> None:
    experiment = load(PROJECT / "workloads/experiments/tuning-steps.yml", scale=scale).experiment
    assert experiment.tuning_steps
    assert experiment.tuning_steps.cumulative[0] == "kvm-2009"
    assert set(experiment.environments) == {"metal", *experiment.tuning_steps.environments}

"""The order of a run follows from its seed."""

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.measured import plan
from vmtoll.model.errors import ExperimentError
from vmtoll.model.trial import Arm, Scenario, TrialSpec
from vmtoll.runner.plan import change_boots, combinations, schedule
from vmtoll.spec.catalog import Registry
from vmtoll.trial.capacity import targets

Rewrite = Callable[..., Path]
ORDER_OF_SEED_3 = [
    (1, 1, "metal-two", "lighttz"), (1, 2, "metal#2", "lighttz"), (1, 3, "metal", "lighttz"),
    (1, 4, "metal", "apache-prefork"), (1, 5, "metal-two", "apache-prefork"),
    (2, 1, "metal", "lighttz"), (2, 2, "metal#2", "lighttz"), (2, 3, "metal-two", "lighttz"),
    (2, 4, "metal-two", "apache-prefork"), (2, 5, "metal", "apache-prefork"),
]  # fmt: skip


def cell_of(trial: TrialSpec) -> tuple[str, str]:
    return str(trial.arm), trial.scenario.server


def test_each_block_holds_every_scenario_once(project: Registry, rewrite: Rewrite) -> None:
    made = plan(rewrite(servers=["lighttz", "apache-prefork"], blocks=7), project, order_seed=3)
    matrix = combinations(made.resolved)
    assert len(matrix) == 5, "two environments, two servers, one A/A control"
    assert [arm for arm, _ in matrix if arm.is_control] == [Arm("metal", 2)]
    assert len(made.trials) == 7 * 5
    for block in range(1, 8):
        here = [t for t in made.trials if t.block == block]
        assert [t.order for t in here] == [1, 2, 3, 4, 5]
        assert {(t.arm, t.scenario) for t in here} == set(matrix)


@pytest.mark.parametrize("environment", ["metal", "metal-two"])
def test_the_control_is_a_second_replicate_of_any_environment(
    project: Registry, rewrite: Rewrite, environment: str
) -> None:
    """Of a guest it was scheduled as an environment of its own, `metal-two-b`."""
    floor = {"environment": environment, "servers": ["lighttz"]}
    trials = plan(rewrite(noise_floor=floor), project).trials
    assert {t.arm for t in trials} == {Arm("metal"), Arm("metal-two"), Arm(environment, 2)}
    assert {t.arm.environment for t in trials} == {"metal", "metal-two"}


def test_arms_of_a_scenario_are_adjacent_in_balanced_order(project: Registry, rewrite: Rewrite) -> None:
    """Once all trials of a block were shuffled: two arms lay far apart, and in one order in five of six blocks."""
    made = plan(rewrite(servers=["lighttz", "apache-prefork"], blocks=8), project, order_seed=3)
    places: dict[tuple[Scenario, int], dict[Arm, int]] = {}
    for trial in made.trials:
        places.setdefault((trial.scenario, trial.block), {})[trial.arm] = trial.order
    for arms in places.values():
        assert max(arms.values()) - min(arms.values()) == len(arms) - 1
    for scenario in {trial.scenario for trial in made.trials}:
        for one, other in itertools.combinations(places[scenario, 1], 2):
            firsts = [places[scenario, block][one] < places[scenario, block][other] for block in range(1, 9)]
            assert all(a != b for a, b in zip(firsts[::2], firsts[1::2], strict=True)), "each order once in two blocks"
    first_orders = {tuple(sorted(places[s, b], key=places[s, b].__getitem__)) for s, b in places if b % 2}
    assert len(first_orders) > 2, "which of them comes first is drawn"


def test_the_order_of_a_seed_does_not_depend_on_the_process(project: Registry, rewrite: Rewrite) -> None:
    made = plan(rewrite(servers=["lighttz", "apache-prefork"], blocks=2), project, order_seed=3)
    order = [(t.block, t.order, str(t.arm), t.scenario.server) for t in made.trials]
    assert order == ORDER_OF_SEED_3


def test_boots_of_changes_are_counted_with_the_last_one(project: Registry, rewrite: Rewrite) -> None:
    """Blocks come in pairs of opposite order, so that every second boundary between blocks needs no boot."""
    changes = {"new": {"apply": "true", "revert": "true", "boots": True}}
    made = plan(rewrite(environments=["metal", "new"], changes=changes, blocks=6, noise_floor=None), project)
    arms = [trial.arm.environment for trial in made.trials]
    switches = sum(a != b for a, b in itertools.pairwise(["metal", *arms, "metal"]))
    assert change_boots(made.resolved, made.trials) == {"metal": switches}
    assert 6 <= switches <= 12
    changes["new"]["boots"] = False
    made = plan(rewrite(environments=["metal", "new"], changes=changes, blocks=6, noise_floor=None), project)
    assert change_boots(made.resolved, made.trials) == {}


@pytest.mark.parametrize(
    ("blocks", "boots", "expected"),
    [(6, 1, [1] * 6), (6, 3, [1, 1, 2, 2, 3, 3]), (7, 3, [1, 1, 1, 2, 2, 3, 3]), (3, 3, [1, 2, 3])],
)
def test_the_blocks_of_a_boot_are_consecutive(
    project: Registry, rewrite: Rewrite, blocks: int, boots: int, expected: list[int]
) -> None:
    trials = plan(rewrite(blocks=blocks, boots=boots), project).trials
    boots_of = {trial.block: {t.boot for t in trials if t.block == trial.block} for trial in trials}
    assert [boots_of[block] for block in range(1, blocks + 1)] == [{boot} for boot in expected]


def test_a_boot_needs_a_block(project: Registry, rewrite: Rewrite) -> None:
    with pytest.raises(ExperimentError, match=r"boots: 3 .*number of blocks, 2"):
        plan(rewrite(blocks=2, boots=3), project)


def test_the_same_seed_gives_the_same_order_and_blocks_differ(project: Registry, rewrite: Rewrite) -> None:
    resolved = plan(rewrite(servers=["lighttz", "apache-prefork"], blocks=7), project).resolved
    assert schedule(resolved, 3) == schedule(resolved, 3) != schedule(resolved, 4)
    orders = {tuple(map(cell_of, (t for t in schedule(resolved, 3) if t.block == b))) for b in range(1, 8)}
    assert len(orders) > 1


def test_the_experiment_may_fix_the_seed(project: Registry, rewrite: Rewrite) -> None:
    assert plan(rewrite(seed=7), project).order_seed == 7
    drawn = {plan(rewrite(seed=None), project).order_seed for _ in range(5)}
    assert len(drawn) > 1


def test_names_of_trials_sort_as_they_ran(project: Registry) -> None:
    trial = plan(project.experiment_file("tiny"), project).trials[3]
    assert trial.name(2) == "b002-o001-a2"


def test_the_demo_takes_no_longer_than_it_did_with_siege_alone() -> None:
    """Then its run took 256 s from the first trial to the last; now with the trials of the capacities."""
    made = plan(Registry().experiment_file("demo"))
    experiment = made.resolved.experiment
    capacities = {target for spec in made.trials for target in targets(spec, made.resolved)}
    assert len(made.trials) == experiment.blocks * 2 * (2 * 2 + 1) == 80
    assert len(capacities) == 2 * 2
    assert made.total_s < 256


def test_the_demo_asks_no_tool_for_more_than_it_can_carry() -> None:
    resolved = plan(Registry().experiment_file("demo")).resolved
    assert resolved.experiment.shares_of == "slowest", "an emulated guest must keep up at the rate"
    tools = {(load.is_open, workload.tool) for workload in resolved.workloads.values() for load in workload.loads}
    assert tools == {(True, "oha"), (False, "siege")}
    assert [load.value for w in resolved.workloads.values() if w.tool == "siege" for load in w.loads] == [1]

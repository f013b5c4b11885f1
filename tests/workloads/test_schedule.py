"""The order of a run follows from its seed."""

from collections.abc import Callable
from pathlib import Path

from workloads.runner.registry import Registry
from workloads.runner.run import plan
from workloads.runner.schedule import scenarios, schedule

Rewrite = Callable[..., Path]


def test_each_block_holds_every_scenario_once(project: Registry, rewrite: Rewrite) -> None:
    made = plan(rewrite(servers=["lighttz", "apache-prefork"], blocks=7), project, order_seed=3)
    cells = scenarios(made.resolved)
    assert len(cells) == 5, "two environments, two servers, one A/A arm"
    assert [c.base_environment for c in cells if c.environment == "metal-b"] == ["metal"]
    assert len(made.trials) == 7 * 5
    for block in range(1, 8):
        here = [t for t in made.trials if t.block == block]
        assert [t.order for t in here] == [1, 2, 3, 4, 5]
        assert {t.scenario for t in here} == set(cells)


def test_the_same_seed_gives_the_same_order_and_blocks_differ(project: Registry, rewrite: Rewrite) -> None:
    resolved = plan(rewrite(servers=["lighttz", "apache-prefork"], blocks=7), project).resolved
    assert schedule(resolved, 3) == schedule(resolved, 3) != schedule(resolved, 4)
    orders = {tuple(t.scenario for t in schedule(resolved, 3) if t.block == b) for b in range(1, 8)}
    assert len(orders) > 1


def test_the_experiment_may_fix_the_seed(project: Registry, rewrite: Rewrite) -> None:
    assert plan(rewrite(seed=7), project).order_seed == 7
    drawn = {plan(rewrite(seed=None), project).order_seed for _ in range(5)}
    assert len(drawn) > 1


def test_names_of_trials_sort_as_they_ran(project: Registry) -> None:
    trial = plan(project.experiment_file("tiny"), project).trials[3]
    assert trial.name(2) == "b002-o001-a2"


def test_the_demo_fits_into_six_minutes() -> None:
    made = plan(Registry().experiment_file("demo"))
    assert len(made.trials) == 54
    assert made.total_s < 360

"""The matrix of an experiment and the order in which it is measured."""

import random
from dataclasses import dataclass

from workloads.runner.experiment import Experiment

# Wall clock of a trial beside warm-up and measuring, for the estimate before a run knows better.
FIXED_COST_S = 1.5


@dataclass(frozen=True)
class Scenario:
    """One cell of the matrix. `environment` may be an A/A arm (`metal-b`) of `base_environment`."""

    environment: str
    base_environment: str
    server: str
    workload: str


@dataclass(frozen=True)
class Planned:
    """A scenario's place: block and order count from 1."""

    block: int
    order: int
    scenario: Scenario

    @property
    def key(self) -> tuple[int, int]:
        return self.block, self.order

    def name(self, attempt: int) -> str:
        """The trial's name in the results: `b001-o003-a1`."""
        return f"b{self.block:03d}-o{self.order:03d}-a{attempt}"


def scenarios(experiment: Experiment) -> list[Scenario]:
    """Every cell once, the A/A arm last."""
    cells = [
        Scenario(environment, environment, server, workload)
        for workload in experiment.workloads
        for server in experiment.servers
        for environment in experiment.environments
    ]
    floor = experiment.noise_floor
    if floor:
        cells += [
            Scenario(f"{floor.environment}-b", floor.environment, server, workload)
            for workload in experiment.workloads
            for server in floor.servers
        ]
    return cells


def schedule(experiment: Experiment, order_seed: int) -> list[Planned]:
    """Each block holds every scenario once, in an order drawn from the seed; the same seed, the same order."""
    planned = []
    for block in range(1, experiment.blocks + 1):
        cells = scenarios(experiment)
        random.Random(f"{order_seed}:{block}").shuffle(cells)
        planned += [Planned(block, order, cell) for order, cell in enumerate(cells, start=1)]
    return planned


def trial_s(experiment: Experiment, *, has_twin: bool) -> float:
    """Expected wall clock of one trial, in seconds."""
    twin_s = experiment.twin_s if has_twin else 0.0
    return experiment.warmup_s + experiment.duration_s + twin_s + FIXED_COST_S

"""The matrix of an experiment and the order in which it is measured."""

import random
from dataclasses import dataclass

from workloads.runner.experiment import Resolved
from workloads.runner.workload import ClosedWorkload, Offer, OpenWorkload

# Wall clock of a trial beside warm-up and measuring, for the estimate before a run knows better.
FIXED_COST_S = 1.5
# Requests per second, for the same estimate, where a workload gives their number.
ASSUMED_RPS = 5000.0


@dataclass(frozen=True)
class Scenario:
    """One cell of the matrix. `environment` may be an A/A arm (`metal-b`) of `base_environment`."""

    environment: str
    base_environment: str
    server: str
    workload: str
    offer: Offer


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


def scenarios(resolved: Resolved) -> list[Scenario]:
    """Every cell once, the A/A arm last. Each rung of a sweep is a cell of its own."""
    experiment, floor = resolved.experiment, resolved.experiment.noise_floor
    loads = [(name, offer) for name in experiment.workloads for offer in resolved.workloads[name].scenarios]
    cells = [
        Scenario(environment, environment, server, workload, offer)
        for workload, offer in loads
        for server in resolved.servers
        for environment in resolved.environments
    ]
    if floor:
        cells += [
            Scenario(f"{floor.environment}-b", floor.environment, server, workload, offer)
            for workload, offer in loads
            for server in floor.servers
            if server in resolved.servers
        ]
    return cells


def schedule(resolved: Resolved, order_seed: int) -> list[Planned]:
    """Each block holds every scenario once, in an order drawn from the seed; the same seed, the same order."""
    planned = []
    for block in range(1, resolved.experiment.blocks + 1):
        cells = scenarios(resolved)
        random.Random(f"{order_seed}:{block}").shuffle(cells)
        planned += [Planned(block, order, cell) for order, cell in enumerate(cells, start=1)]
    return planned


def expected_s(resolved: Resolved) -> float:
    """Expected wall clock of a whole run, in seconds."""
    experiment, cells = resolved.experiment, scenarios(resolved)
    trials_s = 0.0
    for cell in cells:
        workload = resolved.workloads[cell.workload]
        requests = workload.count(experiment.scale) if isinstance(workload, ClosedWorkload) else None
        own_s = requests / ASSUMED_RPS if requests else experiment.duration_s
        twin_s = experiment.twin_s if workload.twin else 0.0
        trials_s += experiment.warmup_s + own_s + twin_s + FIXED_COST_S
    shares = {
        name for name, w in resolved.workloads.items() if isinstance(w, ClosedWorkload | OpenWorkload) and w.capacity
    }
    measured_capacities = {(c.base_environment, c.server, c.workload) for c in cells if c.workload in shares}
    return experiment.blocks * trials_s + len(measured_capacities) * (experiment.warmup_s + experiment.duration_s)

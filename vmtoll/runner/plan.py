"""The matrix of an experiment and the order of its trials."""

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from statistics import median
from typing import NamedTuple, TypeVar

from vmtoll.model.first_answer import Way
from vmtoll.model.trial import Arm, Scenario, TrialRecord, TrialSpec
from vmtoll.model.workload import ClosedWorkload
from vmtoll.spec.experiment import Resolved
from vmtoll.spec.service import ServiceRequests
from vmtoll.trial.capacity import TRIALS, targets
from vmtoll.trial.service import BODIES

T = TypeVar("T")
# Wall clock of a trial besides warm-up and measuring, for the estimate before the first trial.
FIXED_COST_S = 1.5
# Requests per second for the same estimate, for a workload with a fixed number of requests.
ASSUMED_RPS = 5000.0
# Explained trials of a scenario on a guest.
EXPLAINED_TRIALS = 3
# What a boot of a machine takes, with the wait until it rests.
BOOT_S = 60.0
# What it takes to save or pause a guest and to bring it back.
RESTORE_S = 10.0


def combinations(resolved: Resolved) -> list[tuple[Arm, Scenario]]:
    """Every scenario on every arm once, the A/A control last. Each step of a sweep is one scenario."""
    experiment, floor = resolved.experiment, resolved.experiment.noise_floor
    loads = [(name, load) for name in experiment.workloads for load in resolved.workloads[name].loads]
    matrix = [
        (Arm(environment), Scenario(server, workload, load))
        for workload, load in loads
        for server in resolved.experiment.servers
        if resolved.measures(server, workload)
        for environment in resolved.environments
    ]
    if floor:
        matrix += [
            (floor.arm, Scenario(server, workload, load))
            for workload, load in loads
            for server in floor.servers
            if resolved.measures(server, workload)
        ]
    return matrix


def explained(resolved: Resolved) -> list[tuple[Arm, Scenario]]:
    """The guests and scenarios whose exits are traced, in separate trials."""
    names = resolved.experiment.explained
    return [pair for pair in combinations(resolved) if pair[0].environment in names and not pair[0].is_control]


def schedule(resolved: Resolved, order_seed: int) -> list[TrialSpec]:
    """The trials of all blocks, each with every arm and scenario once. The same seed gives the same order.

    Each block shuffles its scenarios and keeps the arms of a scenario together, so that slow drift affects them alike.
    Blocks come in pairs: the second reverses the first's order of arms (ABBA), so that of any two arms each comes first
    in half of the blocks.
    """
    arms = _arms_by_scenario(resolved)
    return [
        trial
        for block in range(1, resolved.experiment.blocks + 1)
        for trial in _draw_block(resolved, arms, order_seed, block)
    ]


def block_of(resolved: Resolved, order_seed: int, block: int) -> list[TrialSpec]:
    """One block of the schedule, or one beyond its end."""
    return _draw_block(resolved, _arms_by_scenario(resolved), order_seed, block)


def _arms_by_scenario(resolved: Resolved) -> dict[Scenario, list[Arm]]:
    arms: dict[Scenario, list[Arm]] = {}
    for arm, scenario in combinations(resolved):
        arms.setdefault(scenario, []).append(arm)
    return arms


def _draw_block(resolved: Resolved, arms: Mapping[Scenario, list[Arm]], order_seed: int, block: int) -> list[TrialSpec]:
    ordered = [
        (arm, scenario)
        for scenario in _shuffled(list(arms), f"{order_seed}:{block}")
        for arm in _balanced(arms[scenario], block, f"{order_seed}:{scenario.sort_key}")
    ]
    boot = resolved.experiment.boot_of(block)
    return [TrialSpec(block, order, arm, scenario, boot) for order, (arm, scenario) in enumerate(ordered, start=1)]


def _shuffled(items: Sequence[T], seed: str) -> list[T]:
    shuffled = list(items)
    random.Random(seed).shuffle(shuffled)
    return shuffled


def _balanced(arms: Sequence[Arm], block: int, seed: str) -> list[Arm]:
    """The arms of one scenario: shuffled for each pair of blocks, reversed in the second block."""
    pair, is_second = divmod(block - 1, 2)
    shuffled = _shuffled(arms, f"{seed}:{pair}")
    return shuffled[::-1] if is_second else shuffled


class Start(NamedTuple):
    """Guests of an environment that are started at once."""

    environment: str
    server: str
    way: Way
    at_once: int


def starts_of(resolved: Resolved, order_seed: int, block: int) -> list[Start]:
    """The starts of a block, in the order that this seed gives; none without `first_answer`."""
    absent = {skip.environment for skip in resolved.skipped}
    starts = [
        Start(environment, server, way, at_once)
        for environment in resolved.experiment.started
        if environment not in absent
        for server in resolved.servers
        for way, at_once in resolved.experiment.starts_of(environment)
    ]
    random.Random(f"{order_seed}:{block}:first-answer").shuffle(starts)
    return starts


def expected_s(resolved: Resolved) -> float:
    """Expected wall clock of a whole run, in seconds; with `until`, up to the first look."""
    experiment, matrix = resolved.experiment, combinations(resolved)
    trials_s, planned = 0.0, schedule(resolved, 0)
    for _, scenario in matrix:
        workload = resolved.workloads[scenario.workload]
        requests = workload.count(experiment.scale) if isinstance(workload, ClosedWorkload) else None
        primary_s = requests / ASSUMED_RPS if requests else experiment.duration_s
        crosscheck_s = experiment.crosscheck_s if workload.crosscheck else 0.0
        trials_s += experiment.warmup_s + primary_s + crosscheck_s + FIXED_COST_S
    boots = experiment.boots - 1 + sum(change_boots(resolved, planned).values())
    way_s = {"boot": BOOT_S, "start": FIXED_COST_S}
    starts_s = sum(way_s.get(start.way, RESTORE_S) for start in starts_of(resolved, 0, 1))
    total_s = experiment.blocks * (trials_s + starts_s) + boots * BOOT_S
    if resolved.requests:
        return total_s + _checks_s(resolved, resolved.requests, experiment.blocks * len(matrix))
    capacities = {target for spec in planned for target in targets(spec, resolved)}
    others = TRIALS * len(capacities) + EXPLAINED_TRIALS * len(explained(resolved))
    return total_s + others * (experiment.warmup_s + experiment.duration_s + FIXED_COST_S)


def restart_s(records: Sequence[TrialRecord]) -> float | None:
    """What a restart of the machines under test took, in seconds: the median time between the last trial of a boot and
    the first of the next one. None without any.
    """
    times_s = list[float]()
    for before, after in pairwise(sorted(records, key=lambda record: record.started_at)):
        if after.boot == before.boot + 1 and before.loaded_s is not None:
            begins_s = (
                datetime.fromisoformat(after.started_at) - datetime.fromisoformat(before.started_at)
            ).total_seconds()
            times_s.append(begins_s - before.loaded_s - before.fixed_cost_s)
    return median(times_s) if times_s else None


def change_boots(resolved: Resolved, trials: Iterable[TrialSpec]) -> dict[str, int]:
    """How often each machine boots for changes with `boots` if these trials follow each other, with the boot that ends
    its last change: the environment that names the machine → boots.
    """
    changes, boots, now = resolved.experiment.changes, Counter[str](), dict[str, str]()
    booting = {change.of for change in changes.values() if change.boots}
    for trial in trials:
        machine = resolved.experiment.machine_of(trial.arm.environment)
        environment = trial.arm.environment if trial.arm.environment in changes else machine
        if machine in booting and now.setdefault(machine, machine) != environment:
            boots[machine] += 1
            now[machine] = environment
    return {machine: boots[machine] + (now[machine] != machine) for machine in now}


def _checks_s(resolved: Resolved, requests: ServiceRequests, trials: int) -> float:
    """Seconds in which a service is asked for single URLs: for all at the start, and for a few around each load."""
    count = len(requests.distinct)
    asked = 2 * count * len(resolved.environments) + 2 * min(BODIES, count) * trials
    return asked / requests.service.at_most_rps

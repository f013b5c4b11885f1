"""Guests that share one host: the cost of the same load on more of them, and how much they carry together within an
objective.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from vmtoll.capacity.estimate import End, Ends, Estimate, geometric
from vmtoll.capacity.objective import Slo
from vmtoll.capacity.rate_sweep import RateSweep, Step, unit_capacity
from vmtoll.model.hardware import Hardware
from vmtoll.model.trial import METAL, Accelerator


@dataclass(frozen=True)
class Level:
    """A number of guests and what they carry together (see UnitCapacity)."""

    guests: int
    carries_rps: Ends[float | None]
    open_ends: tuple[End, ...]


@dataclass(frozen=True)
class SharedRate:
    """A total load that was measured with every number of guests.

    `guests`: the numbers of guests that meet the objective, by each end, up to the first gap: a load may be too much
    for a few guests, and one host too little for many. `p99_us` and `host_cpus` are by the number of guests;
    `host_cpus`: CPUs of the host that were busy with the guests, or on metal with the server.
    """

    rate_rps: float
    guests: Ends[tuple[int, ...]]
    p99_us: Mapping[int, Estimate | None]
    host_cpus: Mapping[int, Estimate | None]


@dataclass(frozen=True)
class Consolidation:
    """One server in one environment. `levels`: two or more, fewest guests first; `rates`: lightest first."""

    workload: str
    server: str
    environment: str
    accelerator: Accelerator
    hardware: Hardware
    levels: tuple[Level, ...]
    rates: tuple[SharedRate, ...]


def consolidations(sweeps: Sequence[RateSweep], slo: Slo) -> list[Consolidation]:
    """One entry per server and environment. Metal has the whole load on one host, whatever the number of guests."""
    groups: dict[tuple[str, str, str, Accelerator, Hardware], dict[int, list[Step]]] = {}
    for sweep in sweeps:
        if sweep.guests is not None and not sweep.is_disturbed:
            key = (sweep.workload, sweep.server, sweep.arm.environment, sweep.accelerator, sweep.hardware)
            groups.setdefault(key, {})[sweep.guests] = sweep.steps
    return [
        Consolidation(*key, _levels(steps, slo), _rates(steps, slo, is_metal=key[2] == METAL))
        for key, steps in groups.items()
        if len(steps) > 1
    ]


def _levels(steps: Mapping[int, Sequence[Step]], slo: Slo) -> tuple[Level, ...]:
    units = ((guests, unit_capacity(steps[guests], slo)) for guests in sorted(steps))
    return tuple(Level(guests, unit.rates, unit.open_ends) for guests, unit in units)


def _rates(steps: Mapping[int, Sequence[Step]], slo: Slo, *, is_metal: bool) -> tuple[SharedRate, ...]:
    rates = []
    for rate_rps in (step.rate_rps for step in steps[min(steps)]):
        at = {guests: step for guests in sorted(steps) for step in steps[guests] if _is_rate(step, rate_rps)}
        if len(at) == len(steps):
            meeting = Ends.of(partial(_meeting, at, slo))
            busy = {guests: _host_cpus(step, is_metal=is_metal) for guests, step in at.items()}
            rates.append(SharedRate(rate_rps, meeting, {guests: step.p99_us for guests, step in at.items()}, busy))
    return tuple(rates)


def _is_rate(step: Step, rate_rps: float) -> bool:
    return math.isclose(step.rate_rps, rate_rps, rel_tol=1e-6)


def _meeting(at: Mapping[int, Step], slo: Slo, end: End) -> tuple[int, ...]:
    met: list[int] = []
    for guests, step in at.items():
        if not step.misses(slo, end):
            met.append(guests)
        elif met:
            break
    return tuple(met)


def _host_cpus(step: Step, *, is_metal: bool) -> Estimate | None:
    trials = step.trials
    server_s = trials["server_cpu_user_s"] + trials["server_cpu_system_s"]
    return geometric((server_s if is_metal else trials["host_cpu_s"]) / trials["duration_s"])

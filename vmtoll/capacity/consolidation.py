"""Guests that share one host: the cost of the same load on more of them, and how much they carry together within an
objective.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from vmtoll.capacity.estimate import ByEnd, End, Estimate, geometric
from vmtoll.capacity.objective import Slo
from vmtoll.capacity.rate_sweep import RateStep, RateSweep, unit_capacity
from vmtoll.model.hardware import Hardware
from vmtoll.model.trial import Accelerator, MachineKind


@dataclass(frozen=True)
class SharedCapacity:
    """A number of guests and what they carry together (see UnitCapacity)."""

    guests: int
    carries_rps: ByEnd[float | None]
    open_ends: tuple[End, ...]


@dataclass(frozen=True)
class SharedRate:
    """A total load that was measured with every number of guests.

    `guests`: the numbers of guests that meet the objective, by each end, up to the first gap: a load may be too much
    for a few guests, and one host too little for many. `p99_us` and `host_cpus` are by the number of guests;
    `host_cpus`: CPUs of the host that were busy with the guests, or on metal with the server.
    """

    rate_rps: float
    guests: ByEnd[tuple[int, ...]]
    p99_us: Mapping[int, Estimate | None]
    host_cpus: Mapping[int, Estimate | None]


@dataclass(frozen=True)
class Consolidation:
    """One server in one environment."""

    workload: str
    server: str
    environment: str
    kind: MachineKind
    accelerator: Accelerator
    hardware: Hardware
    levels: tuple[SharedCapacity, ...]  # two or more, fewest guests first
    rates: tuple[SharedRate, ...]  # lightest first


# The first six fields of a Consolidation.
_Key = tuple[str, str, str, MachineKind, Accelerator, Hardware]


def consolidations(sweeps: Sequence[RateSweep], slo: Slo) -> list[Consolidation]:
    """One entry per server and environment. What is no guest has the whole load on one machine, whatever the number of
    guests.
    """
    groups: dict[_Key, dict[int, list[RateStep]]] = {}
    for sweep in sweeps:
        if sweep.guests is not None and not sweep.is_disturbed:
            platform = sweep.kind, sweep.accelerator, sweep.hardware
            key = (sweep.workload, sweep.server, sweep.arm.environment, *platform)
            groups.setdefault(key, {})[sweep.guests] = sweep.steps
    return [
        Consolidation(*key, _levels(steps, slo), _rates(steps, slo, is_metal=key[3] is MachineKind.METAL))
        for key, steps in groups.items()
        if len(steps) > 1
    ]


def _levels(steps: Mapping[int, Sequence[RateStep]], slo: Slo) -> tuple[SharedCapacity, ...]:
    units = ((guests, unit_capacity(steps[guests], slo)) for guests in sorted(steps))
    return tuple(SharedCapacity(guests, unit.rates, unit.open_ends) for guests, unit in units)


def _rates(steps: Mapping[int, Sequence[RateStep]], slo: Slo, *, is_metal: bool) -> tuple[SharedRate, ...]:
    rates = []
    for rate_rps in (step.rate_rps for step in steps[min(steps)]):
        step_by_guests = {
            guests: step for guests in sorted(steps) for step in steps[guests] if _is_rate(step, rate_rps)
        }
        if len(step_by_guests) == len(steps):
            guests_meeting_slo = ByEnd.of(partial(_guests_meeting_slo, step_by_guests, slo))
            host_cpus = {guests: _host_cpus(step, is_metal=is_metal) for guests, step in step_by_guests.items()}
            rates.append(
                SharedRate(
                    rate_rps,
                    guests_meeting_slo,
                    {guests: step.p99_us for guests, step in step_by_guests.items()},
                    host_cpus,
                )
            )
    return tuple(rates)


def _is_rate(step: RateStep, rate_rps: float) -> bool:
    return math.isclose(step.rate_rps, rate_rps, rel_tol=1e-6)


def _guests_meeting_slo(step_by_guests: Mapping[int, RateStep], slo: Slo, end: End) -> tuple[int, ...]:
    guest_counts: list[int] = []
    for guests, step in step_by_guests.items():
        if not step.misses(slo, end):
            guest_counts.append(guests)
        elif guest_counts:
            break
    return tuple(guest_counts)


def _host_cpus(step: RateStep, *, is_metal: bool) -> Estimate | None:
    trials = step.trials
    server_s = trials["server_cpu_user_s"] + trials["server_cpu_system_s"]
    return geometric((server_s if is_metal else trials["host_cpu_s"]) / trials["duration_s"])

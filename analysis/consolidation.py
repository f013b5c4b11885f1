"""Guests beside each other on one host: what the same load costs when more of them carry it, and how much they carry
together within an objective.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from analysis.capacity.one import One, capacity_of_one
from analysis.capacity.rungs import ENDS, Estimate, Rung, climb, geometric, open_ladders
from analysis.capacity.slo import Slo
from analysis.load import BASELINE, Run
from analysis.panels import Group, side_environments
from analysis.places import dose_of, guests_of

_SAME_RATE = 1e-6  # relative


@dataclass(frozen=True)
class Level:
    """So many guests. `rungs`: the ladder of total loads, lightest first; `carried`: how far up they meet the
    objective together (see `One`).
    """

    guests: int
    rungs: list[Rung]
    carried: One

    def at(self, rate_rps: float) -> Rung | None:
        """The rung of this total load."""
        return next((r for r in self.rungs if math.isclose(r.rate_rps, rate_rps, rel_tol=_SAME_RATE)), None)


@dataclass(frozen=True)
class Density:
    """One server in one environment, at two numbers of guests or more, fewest first."""

    server: str
    environment: str
    levels: list[Level]

    @cached_property
    def rates(self) -> list[float]:
        """The total loads that every number of guests was given, in requests per second, lightest first."""
        first, *others = self.levels
        return [rung.rate_rps for rung in first.rungs if all(level.at(rung.rate_rps) for level in others)]

    def most(self, slo: Slo, rate_rps: float, end: str) -> int:
        """Up to how many guests this load meets the objective, judged by `low`, `mid` or `high`; 0 when not even the
        fewest do.
        """
        met = 0
        for level in self.levels:
            rung = level.at(rate_rps)
            if rung is None or rung.misses(slo, end):
                break
            met = level.guests
        return met


def densities(run: Run, slo: Slo) -> list[Density]:
    """Every server's guests, and metal, which has the whole load on the one host whatever the number is."""
    groups: dict[tuple[str, str], dict[int, Group]] = {}
    for group in open_ladders(run):
        guests = guests_of(group.place)
        if guests is not None and not dose_of(group.place):
            groups.setdefault((group.workload, group.tool), {})[guests] = group
    found = []
    for places in groups.values():
        for server in next(iter(places.values())).servers:
            for environment in side_environments(run):
                ladders = {guests: climb(run, places[guests], server, environment) for guests in sorted(places)}
                levels = [Level(g, rungs, capacity_of_one(rungs, slo)) for g, rungs in ladders.items() if rungs]
                if len(levels) > 1:
                    found.append(Density(server, environment, levels))
    return found


def host_cpus(rung: Rung, environment: str) -> Estimate | None:
    """CPUs of the host that were busy with the guests, or on metal with the server, during the load."""
    trials = rung.trials
    server_s = trials["server_cpu_user_s"] + trials["server_cpu_system_s"]
    return geometric((server_s if environment == BASELINE else trials["host_cpu_s"]) / trials["duration_s"])


def sentence(density: Density, slo: Slo) -> str:
    """What so many guests carry together, and over how many the lightest and the heaviest load can be spread."""
    first, *others = density.levels
    if density.environment == BASELINE:
        return f"carries {_rates(first.carried)}"
    carried = [f"{_guests(first.guests)} carries {_rates(first.carried)}"]
    carried += [f"{_guests(level.guests)} together {_rates(level.carried)}" for level in others]
    ends = list(dict.fromkeys((density.rates[0], density.rates[-1]))) if density.rates else []
    borne = [f"{rate_rps:,.0f}/s meets it {_upto(density, slo, rate_rps)}" for rate_rps in ends]
    return "; ".join([", ".join(carried), *borne])


def _guests(number: int) -> str:
    return f"{number} guest{'' if number == 1 else 's'}"


def _rates(one: One) -> str:
    low, mid, high = (one.rates[end] for end in ENDS)
    said = "nothing" if mid is None else f"{'at least ' if 'mid' in one.open_end else ''}{mid:,.0f}/s"
    if low == mid == high:
        return said
    return f"{said} ({'nothing' if low is None else f'{low:,.0f}'} for sure, {high or 0:,.0f} at most)"


def _upto(density: Density, slo: Slo, rate_rps: float) -> str:
    low, mid, high = (density.most(slo, rate_rps, end) for end in ENDS)
    said = f"on up to {_guests(mid)}" if mid else "on no guest"
    return said if low == mid == high else f"{said} ({low} for sure, {high} at most)"

"""Guests beside each other on one host: what the same load costs when more of them carry it, and how much they carry
together within an objective.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from analysis.capacity.one import One, capacity_of_one
from analysis.capacity.rungs import ENDS, LOW, MID, Estimate, Rung, climb, geometric, open_ladders
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

    workload: str
    server: str
    environment: str
    levels: list[Level]

    @cached_property
    def rates(self) -> list[float]:
        """The total loads that every number of guests was given, in requests per second, lightest first."""
        first, *others = self.levels
        return [rung.rate_rps for rung in first.rungs if all(level.at(rung.rate_rps) for level in others)]

    def meeting(self, slo: Slo, rate_rps: float, end: str) -> list[int]:
        """Over how many guests this load meets the objective, judged by `low`, `mid` or `high`, without a gap; empty
        when over none. A load may be too much for a few guests, and what a host gives too little for many.
        """
        met: list[int] = []
        for level in self.levels:
            rung = level.at(rate_rps)
            if rung and not rung.misses(slo, end):
                met.append(level.guests)
            elif met:
                break
        return met

    def most(self, slo: Slo, rate_rps: float, end: str) -> int:
        """Over how many guests at most this load meets the objective; 0 when over none."""
        return max(self.meeting(slo, rate_rps, end), default=0)


def densities(run: Run, slo: Slo) -> list[Density]:
    """Every server's guests, and metal, which has the whole load on the one host whatever the number is."""
    groups: dict[tuple[str, str], dict[int, Group]] = {}
    for group in open_ladders(run):
        guests = guests_of(group.place)
        if guests is not None and not dose_of(group.place):
            groups.setdefault((group.workload, group.tool), {})[guests] = group
    found = []
    for (workload, _), places in groups.items():
        for server in next(iter(places.values())).servers:
            for environment in side_environments(run):
                ladders = {guests: climb(run, places[guests], server, environment) for guests in sorted(places)}
                levels = [Level(g, rungs, capacity_of_one(rungs, slo)) for g, rungs in ladders.items() if rungs]
                if len(levels) > 1:
                    found.append(Density(workload, server, environment, levels))
    return found


def guests_per_host(run: Run, slo: Slo) -> list[dict[str, Any]]:
    """How many guests of one host may share each total load that all numbers of guests were given.

    One entry per workload, server and environment of guests: `workload`, `server`, `environment`, `shape_only`
    (emulated), `measured` (numbers of guests), `by_rate` (of each load, lightest first, `rate_rps` of all guests
    together, and `low`, `mid`, `high`: the most guests over which it meets the objective, judged by that end, 0 when
    over none; by the low end `fewest`, where fewer do not bear it, and `at_least`: the most that were measured do),
    `text`.
    """
    guests = [density for density in densities(run, slo) if density.environment != BASELINE and density.rates]
    return [_entry(density, slo, shape_only=run.accelerator(density.environment) == "tcg") for density in guests]


def _entry(density: Density, slo: Slo, *, shape_only: bool) -> dict[str, Any]:
    by_rate = [_shared(density, slo, rate_rps) for rate_rps in density.rates]
    return {
        "workload": density.workload,
        "server": density.server,
        "environment": density.environment,
        "shape_only": shape_only,
        "measured": [level.guests for level in density.levels],
        "by_rate": by_rate,
        "text": f"guests per host at {slo.words}: {', '.join(map(_shared_words, by_rate))}"
        " (the load of all of them together)",
    }


def _shared(density: Density, slo: Slo, rate_rps: float) -> dict[str, Any]:
    most = {end: density.most(slo, rate_rps, end) for end in ENDS}
    met, first, last = density.meeting(slo, rate_rps, LOW), density.levels[0].guests, density.levels[-1].guests
    fewest = met[0] if met and met[0] > first else None
    return {"rate_rps": rate_rps, **most, "fewest": fewest, "at_least": last in met}


def _shared_words(one: dict[str, Any]) -> str:
    """`at least 4 at 200/s`, `2 to 3 at 700/s`, `1 at 800/s (by the estimate 2, at best 2)`, `none at 900/s`."""
    low, mid, high = (str(one[end] or "none") for end in ENDS)
    least = f"{one['fewest']} to " if one["fewest"] not in (None, one[LOW]) else ""
    said = f"{least}{'at least ' if one['at_least'] else ''}{low} at {one['rate_rps']:,.0f}/s"
    return said if low == mid == high else f"{said} (by the estimate {mid}, at best {high})"


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
    met = density.meeting(slo, rate_rps, MID)
    if not met:
        said = "on no guest"
    elif met[0] == density.levels[0].guests:
        said = f"on up to {_guests(mid)}"
    else:
        said = f"on {f'{met[0]} to ' if met[0] < mid else ''}{_guests(mid)}"
    return said if low == mid == high else f"{said} ({low} for sure, {high} at most)"

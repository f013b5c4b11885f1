"""Capacity planning: from a ladder of rates, or a search among them, to how many machines an objective takes; how many
guests may share a host; how throughput scales.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from analysis.capacity.density import guests_per_host
from analysis.capacity.fleet import fleet
from analysis.capacity.one import One, binds, capacity_of_one, notes, p99_ms
from analysis.capacity.power import per_host, power_notes, watts
from analysis.capacity.resources import erlang_bound, per_request, size_words, used
from analysis.capacity.rungs import ENDS, LOW, climb, open_ladders
from analysis.capacity.scaling import scaling
from analysis.capacity.slo import Demand, Slo
from analysis.capacity.words import sentences
from analysis.load import BASELINE, LoadError, Run
from analysis.panels import side_environments
from analysis.places import alone

ASSUMES = [
    "the load is spread evenly over all machines, and each is like the one that was measured, with the same mix of"
    " requests",
    "each guest was measured alone on its host: what guests on one host take from each other is not in here",
    "low, mid and high: by the unfavourable end of the 95% interval over blocks, by the estimate, by the favourable"
    " end; what is recommended goes by low",
]


NO_LADDER = (
    "no ladder of rates for one machine alone, so that no number of machines can be told; measure one: vmtoll run"
    " tails, or vmtoll run capacity, which climbs on until something gives way, or vmtoll run capacity-search"
)


def capacity(run: Run, slo: Slo, demand: Demand | None = None) -> dict[str, Any]:
    """What `findings` returns. Raises LoadError when the run says nothing of any of it."""
    found = findings(run, slo, demand)
    if not (found["results"] or found["guests_per_host"] or found["scaling"]):
        raise LoadError(f"{run.path}: {NO_LADDER}")
    return found


def findings(run: Run, slo: Slo | None, demand: Demand | None = None) -> dict[str, Any]:
    """Everything that a run says about an objective; JSON-serialisable, writes nothing.

    Keys: `run_id`, `slo`, `demand`, `sentences` (one per server and ladder, or why there is none), `assumes`,
    `results`: one entry per server, ladder and environment, with `one` (rates of one machine at `low`, `mid`, `high`),
    `binds`, `used`, `per_request`, `watts` (of a host at the low rate, by its own counters, or null), `erlang_c`,
    `plan` (see `fleet`; by end, null where nothing was met, under emulation, and without a demand);
    `guests_per_host` (see `density.guests_per_host`); `scaling` (see `scaling.scaling`). Without an objective only
    the last has entries.
    """
    results = _results(run, slo, demand) if slo else []
    said = []
    if demand:
        said = sentences(results, slo, demand) if slo and results else [NO_LADDER]
    return {
        "run_id": run.meta["run_id"],
        "slo": vars(slo) if slo else None,
        "demand": vars(demand) if demand else None,
        "sentences": said,
        "assumes": (ASSUMES if run.guests else [ASSUMES[0], ASSUMES[2]]) if results else [],
        "results": results,
        "guests_per_host": guests_per_host(run, slo) if slo else [],
        "scaling": scaling(run),
    }


def default_slo(run: Run) -> Slo | None:
    """The objective of the run's own search; of a ladder its deadline as the p99, at 99.9%; None without either."""
    ladders = {group.workload for group in open_ladders(run)}
    deadlines = run.trials.loc[run.trials["workload"].isin(ladders), "deadline_ms"].dropna()
    if deadlines.empty:
        return None
    asked = [float(run.searches[name]["availability_pct"]) for name in ladders & run.searches.keys()]
    return Slo(float(deadlines.min()), max(asked, default=99.9))


def _results(run: Run, slo: Slo, demand: Demand | None) -> list[dict[str, Any]]:
    return [
        _result(run, slo, demand, one, (server, group.workload, group.tool), environment)
        for group in open_ladders(run)
        if alone(group.place)
        for server in group.servers
        for environment in side_environments(run)
        if (rungs := climb(run, group, server, environment))
        and (one := capacity_of_one(rungs, slo, searched=group.workload in run.searches))
    ]


def _result(
    run: Run, slo: Slo, demand: Demand | None, one: One, where: tuple[str, str, str], environment: str
) -> dict[str, Any]:
    server, workload, tool = where
    shape_only = run.accelerator(environment) == "tcg"
    bound = erlang_bound(run, one.at, slo, environment)
    rates = {end: one.rates[end] for end in ENDS}
    plans: dict[str, dict[str, Any] | None] = dict.fromkeys(ENDS)
    if demand and not shape_only:
        power = per_host(demand, watts(one.at), environment)
        plans |= {
            end: fleet(rate, replace(demand, watts=power[end]), guest=environment != BASELINE)
            for end, rate in rates.items()
            if rate
        }
    return {
        "server": server,
        "workload": workload,
        "tool": tool,
        "environment": environment,
        "accelerator": run.accelerator(environment),
        "shape_only": shape_only,
        "size": size_words(run, server, environment),
        "one": rates,
        "at_least": LOW in one.open_end,
        "measured": [one.rungs[0].rate_rps, one.rungs[-1].rate_rps],
        "rates": len(one.rungs),
        "trials": sum(len(rung.trials) for rung in one.rungs),
        "p99_ms": p99_ms(one.at),
        "binds": binds(one, used(run, one.broken or one.at, environment), slo),
        "used": used(run, one.at, environment),
        "per_request": per_request(one.at),
        "watts": watts(one.at),
        "erlang_c": bound,
        "notes": notes(one, slo, bound, run.searches.get(workload)) + power_notes(run, one.at, demand, environment),
        "plan": plans if demand else None,
    }

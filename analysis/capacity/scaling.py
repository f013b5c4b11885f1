"""The Universal Scalability Law over a run: throughput against users, and against the CPUs of its guests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd

from analysis.capacity.resources import host_facts
from analysis.capacity.usl import MIN_LEVELS, Usl, fit
from analysis.load import AA_ARM, BASELINE, SCENARIO, Run, load_order
from analysis.metrics import CLOSED, LIMITING, loop_of
from analysis.places import alone, place_of

_NOT_THE_LOAD = ("name", "description", "users")  # workloads that differ only in these are levels of one sweep


def scaling(run: Run) -> list[dict[str, Any]]:
    """One entry per sweep of six levels or more: what it is over (`users` or `cpus`), the law, and its words."""
    found = []
    for what, trials in (*_by_users(run), *_by_cpus(run)):
        kept = trials[~trials["codes"].map(lambda codes: bool(set(codes) & LIMITING["tool"]))]
        if kept["level"].nunique() >= MIN_LEVELS:
            law = fit(kept["level"].to_numpy(dtype=float), kept["throughput_rps"].to_numpy(dtype=float))
            found.append({**what, **_as_dict(law), "text": _words(law, what["over"])})
    return found


def _closed(run: Run) -> pd.DataFrame:
    trials = run.trials[(run.trials["verdict"] != "invalid") & (run.trials["environment"] != AA_ARM)]
    wanted = trials["offered_load"].map(lambda load: loop_of(load) == CLOSED and alone(place_of(load))).astype(bool)
    trials = trials[wanted].dropna(subset=["throughput_rps"])
    sent = {name: _but_the_load(run, name) for name in trials["workload"].unique()}
    return trials.assign(sent=trials["workload"].map(sent))


def _but_the_load(run: Run, workload: str) -> str:
    known = run.meta["experiment"].get("resolved", {}).get("workloads", {}).get(workload)
    return str({k: v for k, v in known.items() if k not in _NOT_THE_LOAD}) if known else workload


def _by_users(run: Run) -> Iterator[tuple[dict[str, Any], pd.DataFrame]]:
    closed = _closed(run)
    for (server, environment, tool, _), trials in closed.groupby(["server", "environment", "tool", "sent"]):
        level = trials["offered_load"].map(lambda load: load_order(load)[1])
        yield {"over": "users", "server": server, "environment": environment, "tool": tool}, trials.assign(level=level)


def _by_cpus(run: Run) -> Iterator[tuple[dict[str, Any], pd.DataFrame]]:
    closed = _closed(run)
    guests = closed[closed["environment"] != BASELINE]
    cpus = {guest: host_facts(run, guest).get("cpus_allowed") for guest in run.guests}
    levels = guests.assign(level=pd.to_numeric(guests["environment"].map(cpus), errors="coerce")).dropna(
        subset=["level"]
    )
    for scenario, trials in levels.groupby(SCENARIO):
        server, _, tool, _ = map(str, scenario)
        yield {"over": "cpus", "server": server, "environment": "guests", "tool": tool}, trials


def _as_dict(law: Usl) -> dict[str, Any]:
    keys = ("gamma", "alpha", "beta", "residual", "largest", "peak", "peak_is_measured", "limit")
    return {key: getattr(law, key) for key in keys} | {"errors": law.errors}


def _words(law: Usl, over: str) -> str:
    shape = f"contention {100 * law.alpha:.2g}%, coherency {100 * law.beta:.2g}%"
    if law.peak is None:
        end = "no peak"
    elif law.peak_is_measured:
        end = f"peak of {law.throughput(law.peak):,.0f}/s at {law.peak:,.0f} {over}"
    else:
        end = f"no peak up to {law.largest:,.0f} {over}; the law puts it beyond what was measured"
    return f"{shape}; {end}"

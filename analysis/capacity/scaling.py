"""The Universal Scalability Law over a run: throughput against users, and against the CPUs of its guests."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd

from analysis.capacity.resources import host_facts
from analysis.capacity.usl import MIN_LEVELS, Floats, Usl, fit, over_blocks
from analysis.load import AA_ARM, BASELINE, SCENARIO, Run, load_order
from analysis.metrics import CLOSED, LIMITING, loop_of
from analysis.places import alone, place_of
from analysis.stats import Interval

USERS = "users"
GUESTS = "guests"  # the environment of a sweep over guests that differ in their CPUs
_NOT_THE_LOAD = ("name", "description", "users")  # workloads that differ only in these are levels of one sweep


@dataclass(frozen=True)
class Sweep:
    """Six levels or more of one load, `over` users or cpus. `sent`: what all of its levels have in common; `trials`:
    those whose pace neither the client nor the link set, with the level in a column more, `level`.
    """

    over: str
    server: str
    environment: str
    tool: str
    sent: str
    emulated: bool
    trials: pd.DataFrame

    @cached_property
    def law(self) -> Usl:
        """Fitted to every trial."""
        return fit(*self._points)

    @cached_property
    def intervals(self) -> tuple[Interval | None, Interval | None]:
        """The 95% intervals of contention and coherency over blocks (see `over_blocks`)."""
        return over_blocks(*self._points, self.trials["block"].to_numpy(dtype=float))

    @property
    def _points(self) -> tuple[Floats, Floats]:
        return self.trials["level"].to_numpy(dtype=float), self.trials["throughput_rps"].to_numpy(dtype=float)

    @property
    def words(self) -> str:
        """`contention σ 5% [4.8, 5.2], coherency κ 0.1% [0.09, 0.11]; peak of 9,038/s at 31 users`."""
        law, (contention, coherency) = self.law, self.intervals
        shape = f"contention σ {_percent(law.alpha, contention)}, coherency κ {_percent(law.beta, coherency)}"
        if law.peak is None:
            end = "no peak"
        elif law.peak_is_measured:
            end = f"peak of {law.throughput(law.peak):,.0f}/s at {law.peak:,.0f} {self.over}"
        else:
            end = f"no peak up to {law.largest:,.0f} {self.over}; the law puts it beyond what was measured"
        return f"{shape}; {end}"


def sweeps(run: Run) -> list[Sweep]:
    """Every sweep of six levels or more, over users first; of each server metal before the guests."""
    found = []
    for (over, server, environment, tool, sent), trials in (*_by_users(run), *_by_cpus(run)):
        kept = trials[~trials["codes"].map(lambda codes: bool(set(codes) & LIMITING["tool"])).astype(bool)]
        if kept["level"].nunique() >= MIN_LEVELS:
            emulated = bool((kept["accelerator"] == "tcg").any())
            found.append(Sweep(over, server, environment, tool, sent, emulated, kept))
    return sorted(found, key=lambda sweep: (sweep.over != USERS, sweep.server, sweep.environment != BASELINE))


def scaling(run: Run) -> list[dict[str, Any]]:
    """One entry per sweep: what it is over (`users` or `cpus`), the law (`alpha` contention, `beta` coherency, with
    their `intervals` over blocks, null where there is none), `shape_only` (emulated), and its words.
    """
    return [_as_dict(sweep) for sweep in sweeps(run)]


def _closed(run: Run) -> pd.DataFrame:
    trials = run.trials[(run.trials["verdict"] != "invalid") & (run.trials["environment"] != AA_ARM)]
    wanted = trials["offered_load"].map(lambda load: loop_of(load) == CLOSED and alone(place_of(load))).astype(bool)
    trials = trials[wanted & (trials["throughput_rps"] > 0)]
    sent = {name: _but_the_load(run, name) for name in trials["workload"].unique()}
    return trials.assign(sent=trials["workload"].map(sent))


def _but_the_load(run: Run, workload: str) -> str:
    known = run.meta["experiment"].get("resolved", {}).get("workloads", {}).get(workload)
    return str({k: v for k, v in known.items() if k not in _NOT_THE_LOAD}) if known else workload


def _by_users(run: Run) -> Iterator[tuple[tuple[str, ...], pd.DataFrame]]:
    for key, trials in _closed(run).groupby(["server", "environment", "tool", "sent"]):
        level = trials["offered_load"].map(lambda load: load_order(load)[1])
        yield (USERS, *map(str, key)), trials.assign(level=level)


def _by_cpus(run: Run) -> Iterator[tuple[tuple[str, ...], pd.DataFrame]]:
    closed = _closed(run)
    guests = closed[closed["environment"] != BASELINE]
    cpus = {guest: host_facts(run, guest).get("cpus_allowed") for guest in run.guests}
    level = pd.to_numeric(guests["environment"].map(cpus), errors="coerce")
    for scenario, trials in guests.assign(level=level).dropna(subset=["level"]).groupby(SCENARIO):
        server, workload, tool, load = map(str, scenario)
        yield ("cpus", server, GUESTS, tool, f"{workload} {load}"), trials


def _as_dict(sweep: Sweep) -> dict[str, Any]:
    law = sweep.law
    keys = ("gamma", "alpha", "beta", "residual", "largest", "peak", "peak_is_measured", "limit")
    intervals = [None if one is None else vars(one) for one in sweep.intervals]
    return {
        "over": sweep.over,
        "server": sweep.server,
        "environment": sweep.environment,
        "tool": sweep.tool,
        **{key: getattr(law, key) for key in keys},
        "errors": law.errors,
        "intervals": dict(zip(("alpha", "beta"), intervals, strict=True)),
        "shape_only": sweep.emulated,
        "text": sweep.words,
    }


def _percent(value: float, interval: Interval | None) -> str:
    said = f"{100 * value:.3g}%"
    low, high = (f"{100 * end:.3g}" for end in (interval.low, interval.high)) if interval else ("", "")
    return said if low == high else f"{said} [{low}, {high}]"

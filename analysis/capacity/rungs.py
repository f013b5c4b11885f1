"""The rungs of a ladder: at each offered rate, what the blocks say about p99 and availability, with intervals."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.capacity.slo import Slo
from analysis.load import Run
from analysis.metrics import OPEN_LIMITING
from analysis.panels import Group, ladders
from analysis.sides import availability, usable
from analysis.stats import half_width, paired

P99 = "response_time_p99_us"
LOW, MID, HIGH = "low", "mid", "high"
ENDS = (LOW, MID, HIGH)


@dataclass(frozen=True)
class Estimate:
    """A figure with its 95% interval over blocks."""

    low: float
    mid: float
    high: float


@dataclass(frozen=True)
class Rung:
    """One offered rate on one environment. `trials`: those that are not invalid, one per block; `blocks` counts those
    too that only failed requests made invalid, because these are what availability is about.

    `rate_rps` is the lowest that any of its trials was offered. `limits`: the gates that say, in more than half
    of the trials, that the client or the link set the pace.
    """

    rate_rps: float
    blocks: int
    requests: int
    p99_us: Estimate | None
    available: Estimate | None
    limits: tuple[str, ...]
    trials: pd.DataFrame

    def misses(self, slo: Slo, end: str) -> str:
        """Which part of the objective is missed, `` when none is: `p99`, `availability` or `no figures`.

        `end` low: by the unfavourable ends of the intervals, so that meeting it is shown; mid: by the estimates;
        high: by the favourable ends, so that missing it is shown.
        """
        if self.available is not None:
            share = getattr(self.available, end)
            if 100 * share < slo.availability_pct:
                return "availability"
        if self.p99_us is None or self.available is None:
            return "no figures"
        unfavourable = {LOW: HIGH, MID: MID, HIGH: LOW}[end]
        return "p99" if getattr(self.p99_us, unfavourable) > 1000 * slo.p99_ms else ""

    def too_few(self, slo: Slo) -> bool:
        """True when no request failed and the availability is still not shown: there were too few of them."""
        flawless = self.blocks > 1 and self.available is not None and self.available.mid == 1
        return flawless and self.misses(slo, LOW) == "availability"


def open_ladders(run: Run) -> list[Group]:
    """The ladders of two rates or more, and the searches, whose tool tells percentiles from the intended send."""
    groups = [g for g in ladders(run) if g.open and (len(g.loads) > 1 or g.workload in run.searches)]
    return [g for g in groups if run.trials.loc[run.trials["workload"] == g.workload, P99].notna().any()]


def climb(run: Run, group: Group, server: str, environment: str) -> list[Rung]:
    """The rungs of one server on one environment, lightest first; empty when it was not measured there."""
    rungs = [_rung(run, group.scenario(server, load), environment) for load in group.loads]
    return sorted((rung for rung in rungs if rung is not None), key=lambda rung: rung.rate_rps)


def _rung(run: Run, scenario: tuple[str, ...], environment: str) -> Rung | None:
    if scenario not in run.cells:
        return None
    cell = run.cells[scenario]
    rows = cell[cell["environment"] == environment]
    if not rows["offered_rps"].notna().any():
        return None
    trials = rows[rows["verdict"] != "invalid"]
    codes = Counter(code for row in trials["codes"] for code in set(row) & OPEN_LIMITING["tool"])
    return Rung(
        rate_rps=float(rows["offered_rps"].min()),
        blocks=int(((rows["verdict"] != "invalid") | rows["successful"].notna()).sum()),
        requests=int(trials["requests"].sum()),
        p99_us=geometric(usable(cell, environment, P99)),
        available=_available(cell, rows, environment),
        limits=tuple(sorted(code for code, count in codes.items() if 2 * count > len(trials))),
        trials=trials,
    )


def geometric(values: pd.Series) -> Estimate | None:
    """The geometric mean of one positive figure per block, with the t interval of its logarithm; None without one.

    From a single block nothing is sure: its interval is everything.
    """
    kept = values.dropna()
    kept = kept[kept > 0]
    if kept.empty:
        return None
    found = paired(np.log(kept.to_numpy(dtype=float)))
    low, high = (0.0, float("inf")) if found.t is None else (np.exp(found.t.low), np.exp(found.t.high))
    return Estimate(float(low), float(np.exp(found.mean)), float(high))


def _available(cell: pd.DataFrame, rows: pd.DataFrame, environment: str) -> Estimate | None:
    """The share of requests that succeeded: the wider of Wilson's interval, which knows how few requests there
    were, and the t interval over blocks, which knows that failures come in clusters.
    """
    pooled = availability(cell, environment, "tool")
    if pooled is None:
        return None
    shares = (rows["successful"] / rows["requests"]).dropna().astype(float)
    half = half_width(float(shares.std(ddof=1)), len(shares)) if len(shares) > 1 else 1.0
    return Estimate(
        low=max(0.0, min(pooled["low"], float(shares.mean()) - half)),
        mid=pooled["share"],
        high=min(1.0, max(pooled["high"], float(shares.mean()) + half)),
    )

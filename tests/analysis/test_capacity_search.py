"""A search finds what a ladder finds, as surely and in fewer trials: on machines of known knee and noise."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.capacity.one import One, capacity_of_one
from analysis.capacity.rungs import Estimate, Rung, geometric
from analysis.capacity.slo import Slo
from workloads.runner.search import next_offer, rungs_of
from workloads.runner.workload import SearchWorkload

LIMIT_MS, IDLE_P99_MS, NOISE = 5.0, 0.9, 0.15
SLO = Slo(LIMIT_MS)
BLOCKS, LADDER_BLOCKS = 24, 6
RUNS = 200
WORKLOAD = SearchWorkload(
    name="search", description="a search", site="office", tool="vegeta", keep_alive=True, kind="search",
    deadline_ms=LIMIT_MS, between_rps=[400.0, 2000.0], resolution_pct=10.0,
)  # fmt: skip
RATES = [rung.value for rung in rungs_of(WORKLOAD)]
FLAWLESS = Estimate(0.9999, 1.0, 1.0)


@dataclass
class Machine:
    """Its p99 grows as 1/(1 − utilisation) and is exactly the limit at `true_rps`; `noise`: sd of its logarithm."""

    rng: np.random.Generator
    true_rps: float
    noise: float = NOISE

    def p99_ms(self, rate_rps: float) -> float:
        busy = min(rate_rps / self.true_rps * (1 - IDLE_P99_MS / LIMIT_MS), 0.999)
        return IDLE_P99_MS / (1 - busy) * math.exp(self.rng.normal(0, self.noise))


def searched(machine: Machine, blocks: int = BLOCKS) -> dict[float, list[float]]:
    """Rate → the p99 of its trials, in ms: a run of so many blocks, as the runner would make it."""
    rows: list[dict[str, str]] = []
    for block in range(1, blocks + 1):
        offer = next_offer(WORKLOAD, rows)
        p99_us = 1000 * machine.p99_ms(offer.value)
        row = {"block": block, "order": 1, "offered_load": offer, "response_time_p99_us": p99_us, "verdict": "valid"}
        rows.append({name: str(value) for name, value in (row | {"requests": 4000, "successful": 4000}).items()})
    found: dict[float, list[float]] = {}
    for one in rows:
        rate = float(one["offered_load"].partition(":")[2])
        found.setdefault(rate, []).append(float(one["response_time_p99_us"]) / 1000)
    return found


def climbed(machine: Machine) -> dict[float, list[float]]:
    """The same for a ladder of the same rungs."""
    return {rate: [machine.p99_ms(rate) for _ in range(LADDER_BLOCKS)] for rate in RATES}


def one_of(found: dict[float, list[float]], *, searched: bool) -> One:
    """What the analysis makes of it."""
    rungs = [
        Rung(rate, len(ms), 4000 * len(ms), geometric(1000 * pd.Series(ms)), FLAWLESS, (), pd.DataFrame())
        for rate, ms in sorted(found.items())
    ]
    return capacity_of_one(rungs, SLO, searched=searched)


def test_it_is_as_sure_as_the_ladder_in_a_quarter_of_its_trials() -> None:
    """The hardest case: the limit is reached exactly at a rung, so that either may say too much or too little."""
    rng = np.random.default_rng(2009)
    too_much, missed, near, agree = {"search": 0, "ladder": 0}, 0, 0, 0
    for _ in range(RUNS):
        place = int(rng.integers(2, len(RATES) - 2))
        machine = Machine(rng, RATES[place])
        found, ladder = one_of(searched(machine), searched=True), one_of(climbed(machine), searched=False)
        low, high = found.rates["low"] or 0.0, found.rates["high"] or 0.0
        beyond = min((rung.rate_rps for rung in found.rungs if rung.rate_rps > high), default=math.inf)
        too_much["search"] += low >= machine.true_rps
        too_much["ladder"] += (ladder.rates["low"] or 0.0) >= machine.true_rps
        missed += not low <= machine.true_rps <= beyond
        near += low >= RATES[place - 2]
        agree += abs(RATES.index(low) - RATES.index(ladder.rates["low"] or 0)) <= 1 if low else 0
    assert len(RATES) * LADDER_BLOCKS >= 4 * BLOCKS
    assert too_much["search"] <= 0.05 * RUNS
    assert too_much["ladder"] <= 0.05 * RUNS
    assert missed <= 0.05 * RUNS
    assert near >= 0.9 * RUNS
    assert agree >= 0.9 * RUNS


def test_more_noise_makes_it_humble_and_not_wrong() -> None:
    rng = np.random.default_rng(7)
    too_much, lows = 0, []
    for _ in range(RUNS):
        machine = Machine(rng, RATES[9], noise=0.5)
        low = one_of(searched(machine), searched=True).rates["low"] or 0.0
        too_much += low >= machine.true_rps
        lows.append(low)
    assert too_much <= 0.05 * RUNS
    assert np.median(lows) < RATES[8]

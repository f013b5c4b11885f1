"""A search finds what a rate sweep finds, as surely and in fewer trials: on machines of known knee and noise."""

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest

from tests.support.records import BASELINE
from vmtoll.capacity.estimate import ByEnd
from vmtoll.capacity.objective import Slo
from vmtoll.capacity.rate_sweep import RateStep, UnitCapacity, unit_capacity
from vmtoll.model.finding import Role
from vmtoll.model.load import Load
from vmtoll.model.trial import Accelerator, ClientPlace, Measurement, Scenario, Times, TrialRecord
from vmtoll.model.workload import SearchWorkload
from vmtoll.runner.search import next_load, steps_of

pytestmark = pytest.mark.slow

LIMIT_MS, IDLE_P99_MS, NOISE = 5.0, 0.9, 0.15
SLO = Slo(LIMIT_MS)
BLOCKS, SWEEP_BLOCKS = 24, 6
RUNS = 200
WORKLOAD = SearchWorkload(
    name="search", description="a search", site="office", tool="vegeta", keep_alive=True, kind="search",
    deadline_ms=LIMIT_MS, between_rps=[400.0, 2000.0], resolution_pct=10.0,
)  # fmt: skip
RATES = [load.value for load in steps_of(WORKLOAD)]
FLAWLESS = ByEnd(0.9999, 1.0, 1.0)


@dataclass
class Machine:
    """Its p99 grows as 1/(1 − utilisation) and is exactly the limit at `true_rps`; `noise`: sd of its logarithm."""

    rng: np.random.Generator
    true_rps: float
    noise: float = NOISE

    def p99_ms(self, rate_rps: float) -> float:
        busy = min(rate_rps / self.true_rps * (1 - IDLE_P99_MS / LIMIT_MS), 0.999)
        return IDLE_P99_MS / (1 - busy) * math.exp(self.rng.normal(0, self.noise))


def searched(machine: Machine, blocks: int = BLOCKS) -> dict[float, dict[int, float]]:
    """Rate → block → p99 in ms: a run of a number of blocks, as the runner would make it."""
    records: list[TrialRecord] = []
    p99s: dict[float, dict[int, float]] = {}
    for block in range(1, blocks + 1):
        load = next_load(WORKLOAD, records)
        p99_ms = machine.p99_ms(load.value)
        records.append(record(block, load, p99_ms))
        p99s.setdefault(load.value, {})[block] = p99_ms
    return p99s


def record(block: int, load: Load, p99_ms: float) -> TrialRecord:
    """One trial of the search, without a failure."""
    return TrialRecord(
        run_id="made up by a test", block=block, order=1, attempt=1, arm=BASELINE, accelerator=Accelerator.NONE,
        scenario=Scenario("nginx", WORKLOAD.name, load), client=ClientPlace.REMOTE, clients=1, guests=1,
        started_at="2026-01-01T00:00:00Z",
        measurements=(
            Measurement(
                role=Role.PRIMARY, tool="vegeta", requests=4000, successful=4000,
                response_time=Times(p99_us=1000 * p99_ms),
            ),
        ),
    )  # fmt: skip


def swept(machine: Machine) -> dict[float, dict[int, float]]:
    """The same for a sweep of the same steps."""
    return {rate: {block: machine.p99_ms(rate) for block in range(1, SWEEP_BLOCKS + 1)} for rate in RATES}


def carried(p99s: dict[float, dict[int, float]], *, searched: bool) -> UnitCapacity:
    """What the analysis makes of it."""
    steps = [
        RateStep(
            rate, {block: 1000 * p99_ms for block, p99_ms in ms.items()}, 4000 * len(ms), FLAWLESS, (), pd.DataFrame()
        )
        for rate, ms in sorted(p99s.items())
    ]
    return unit_capacity(steps, SLO, searched=searched)


def test_it_is_as_sure_as_the_sweep_in_a_quarter_of_its_trials() -> None:
    """The hardest case: the limit is reached exactly at a step, so that either may say too much or too little."""
    rng = np.random.default_rng(2009)
    too_much, missed, near, agree = {"search": 0, "sweep": 0}, 0, 0, 0
    for _ in range(RUNS):
        index = int(rng.integers(2, len(RATES) - 2))
        machine = Machine(rng, RATES[index])
        search, sweep = carried(searched(machine), searched=True), carried(swept(machine), searched=False)
        low, high, sweep_low = search.rates.low or 0.0, search.rates.high or 0.0, sweep.rates.low or 0.0
        beyond = min((step.rate_rps for step in search.steps if step.rate_rps > high), default=math.inf)
        too_much["search"] += low >= machine.true_rps
        too_much["sweep"] += sweep_low >= machine.true_rps
        missed += not low <= machine.true_rps <= beyond
        near += low >= RATES[index - 2]
        agree += abs(RATES.index(low) - RATES.index(sweep_low)) <= 1 if low else 0
    assert len(RATES) * SWEEP_BLOCKS >= 4 * BLOCKS
    assert too_much["search"] <= 0.05 * RUNS
    assert too_much["sweep"] <= 0.05 * RUNS
    assert missed <= 0.05 * RUNS
    assert near >= 0.9 * RUNS
    assert agree >= 0.9 * RUNS


def test_more_noise_makes_it_humble_and_not_wrong() -> None:
    rng = np.random.default_rng(7)
    too_much, lows = 0, []
    for _ in range(RUNS):
        machine = Machine(rng, RATES[9], noise=0.5)
        low = carried(searched(machine), searched=True).rates.low or 0.0
        too_much += low >= machine.true_rps
        lows.append(low)
    assert too_much <= 0.05 * RUNS
    assert np.median(lows) < RATES[8]

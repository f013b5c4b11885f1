"""Rates judged with their neighbours: what a finer sweep finds, on synthetic readings."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from vmtoll.capacity.estimate import ByEnd
from vmtoll.capacity.isotonic import pool_rising
from vmtoll.capacity.objective import Slo, SloPart
from vmtoll.capacity.rate_sweep import RateStep, UnitCapacity, unit_capacity

pytestmark = pytest.mark.slow

LIMIT_MS, IDLE_MS, BLOCKS, RUNS = 5.0, 0.9, 6, 100
SLO = Slo(LIMIT_MS)
FLAWLESS = ByEnd(0.9999, 1.0, 1.0)


def test_steps_that_contradict_the_order_are_pooled() -> None:
    steps = [{1: 1.0, 2: 1.2}, {1: 3.0, 2: 3.2}, {1: 2.0, 2: 2.2}, {}, {1: 4.0}]
    first, second, third, none, last = pool_rising(steps)
    assert first is not None and second is not None and second is third and none is None and last is not None
    assert second.estimate.mid == pytest.approx(2.6)
    assert (second.blocks, last.blocks) == (2, 1)
    low, high = stats.t.interval(0.95, 1, 2.6, stats.sem([2.5, 2.7]))
    assert (second.estimate.low, second.estimate.high) == pytest.approx((low, high)), "over the means of its blocks"
    assert last.estimate.all == (-math.inf, 4.0, math.inf)
    assert pool_rising([{}]) == [None]


def carried(rng: np.random.Generator, steps: int, noise: float, slow: float) -> UnitCapacity:
    """A sweep over rates up to 1.5 times the truth, which is 1: `slow` of the trials are e² times slower."""
    rates = np.geomspace(0.3, 1.5, steps)
    rates /= rates[np.abs(rates - 1).argmin()]  # the hardest case: the limit is reached exactly at a step
    busy = np.minimum(rates * (1 - IDLE_MS / LIMIT_MS), 0.999)
    logs = np.log(1000 * IDLE_MS / (1 - busy))[:, None] + rng.normal(0, noise, (steps, BLOCKS))
    logs += 2 * (rng.random(logs.shape) < slow)
    return unit_capacity(
        [
            RateStep(float(rate), dict(enumerate(np.exp(row), start=1)), 24_000, FLAWLESS, (), pd.DataFrame())
            for rate, row in zip(rates, logs, strict=True)
        ],
        SLO,
    )


def test_a_finer_sweep_finds_more_and_not_less() -> None:
    """By the first miss alone `low` fell from 0.55 to 0.45 of the truth between nine steps and 33."""
    rng, lows = np.random.default_rng(2), {}
    for steps in (9, 33):
        found = np.array([carried(rng, steps, 0.15, 0.05).rates.low or 0.0 for _ in range(RUNS)])
        lows[steps] = float(found.mean())
        assert (found >= 1).mean() <= 0.04
    assert lows[33] > lows[9] > 0.65
    assert lows[33] > 0.8


@pytest.mark.parametrize("noise", [0.15, 0.5])
def test_it_overestimates_in_less_than_one_of_twenty(noise: float) -> None:
    rng = np.random.default_rng(5)
    found = [carried(rng, 17, noise, 0.0) for _ in range(RUNS)]
    assert np.mean([(unit.rates.low or 0) >= 1 for unit in found]) <= 0.05
    beyond = [min((s.rate_rps for s in unit.steps if s.rate_rps > (unit.rates.high or 0)), default=2) for unit in found]
    assert np.mean(np.array(beyond) <= 1) <= 0.05


def test_a_step_that_misses_by_itself_ends_the_sweep() -> None:
    """In all six blocks 2,000/s is too slow and 3,000/s is not: no chance that a neighbour could average away."""
    p99s_ms = {1000.0: 2.0, 2000.0: 9.0, 3000.0: 2.5, 4000.0: 3.0}
    steps = [
        RateStep(
            rate, {block: 1000 * p99 * (1 + block / 1e3) for block in range(6)}, 24_000, FLAWLESS, (), pd.DataFrame()
        )
        for rate, p99 in p99s_ms.items()
    ]
    unit = unit_capacity(steps, SLO)
    assert unit.rates == ByEnd(1000.0, 1000.0, 1000.0)
    assert unit.missed_parts == ByEnd(SloPart.P99, SloPart.P99, SloPart.P99)


def test_less_than_six_blocks_show_nothing() -> None:
    steps = [RateStep(1000.0, dict.fromkeys(range(5), 1000.0), 24_000, FLAWLESS, (), pd.DataFrame())]
    assert unit_capacity(steps, SLO).rates == ByEnd(None, 1000.0, 1000.0)

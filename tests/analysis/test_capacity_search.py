"""Bisection finds what the ladder finds, as surely and in fewer trials."""

from __future__ import annotations

import math

import numpy as np
import pytest

from analysis.capacity.search import Answer, search, settle
from analysis.stats import half_width

RATES = [250.0 * i for i in range(1, 16)]
LIMIT_MS, IDLE_P99_MS, BLOCKS = 5.0, 0.9, 6
RUNS = 300


@pytest.mark.parametrize("met", range(16))
def test_it_finds_every_place_in_four_questions(met: int) -> None:
    asked: list[float] = []

    def measure(rate: float) -> Answer:
        asked.append(rate)
        return Answer.MEETS if rate <= 250.0 * met else Answer.MISSES

    found = search(RATES, measure)
    assert found.rate == (250.0 * met if met else None)
    assert found.open_end == (met == 15)
    assert len(asked) == 4
    assert list(found.answers) == asked


def test_what_is_unclear_is_not_met() -> None:
    found = search([1.0, 2.0, 3.0], lambda rate: Answer.UNCLEAR if rate == 2 else Answer.MEETS)
    assert found.rate == 1
    with pytest.raises(ValueError, match="rates that rise"):
        search([2.0, 1.0], lambda _: Answer.MEETS)


def test_a_trial_that_misses_the_availability_settles_it() -> None:
    assert settle(lambda: -math.inf) is Answer.MISSES


def margin(rng: np.random.Generator, rate: float, capacity: float, noise: float) -> float:
    """Log of the limit over the p99 of one trial, with p99 growing as 1/(1 − utilisation)."""
    p99_ms = IDLE_P99_MS / (1 - min(rate / capacity, 0.999))
    return math.log(LIMIT_MS / p99_ms) + float(rng.normal(0, noise))


def test_it_is_as_sure_as_the_ladder_in_a_fifth_of_its_trials() -> None:
    """Where the limit is reached exactly at a rate, either says too much in at most 2.5% of all runs or so: the
    ladder's upper end of a 95% interval, the search's two looks at 97.5% each.
    """
    rng = np.random.default_rng(2009)
    spent, too_much = [], {"search": 0, "ladder": 0}
    agree = 0
    for _ in range(RUNS):
        place = int(rng.integers(3, 13))
        true = RATES[place]  # at this rate p99 is the limit: just not met is as true as just met
        capacity, noise = true / (1 - IDLE_P99_MS / LIMIT_MS), 0.15
        trials = 0

        def trial(rate: float, capacity: float = capacity, noise: float = noise) -> float:
            nonlocal trials
            trials += 1
            return margin(rng, rate, capacity, noise)

        found = search(RATES, lambda rate: settle(lambda: trial(rate)))
        spent.append(trials)
        climbed = None
        for rate in RATES:
            logs = np.array([margin(rng, rate, capacity, noise) for _ in range(BLOCKS)])
            if logs.mean() - half_width(float(logs.std(ddof=1)), BLOCKS) <= 0:
                break
            climbed = rate
        too_much["search"] += (found.rate or 0) >= true
        too_much["ladder"] += (climbed or 0) >= true
        agree += found.rate == climbed
    ladder = len(RATES) * BLOCKS
    assert np.mean(spent) < ladder / 5
    assert max(spent) <= 4 * 6
    assert too_much["search"] <= 0.05 * RUNS
    assert too_much["ladder"] <= 0.05 * RUNS
    assert agree > 0.75 * RUNS

"""Simulated experiments on synthetic readings: how often the intervals and the claims are right.

Blocks drift (a random walk that metal and guest share) and so does the machine within a block, where the
order of the two is drawn at random. With 10,000 experiments the Monte-Carlo error of a share near 95% is
0.22 points; every bound is met with three such errors to spare, so that passing says something about the
truth and not about the seed.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest

from vmtoll.analysis.statistics import Paired, judge_family, paired, signed_rank_level

EXPERIMENTS = 10_000
POINTS = 0.015


def _log_ratios(rng: np.random.Generator, experiments: int, blocks: int, truth: float) -> npt.NDArray[np.float64]:
    """log(guest ÷ metal) per block, shape (experiments, blocks)."""
    shape = (experiments, blocks)
    drift = rng.normal(0, 0.1, shape).cumsum(axis=1)
    within = rng.normal(0, 0.01, shape)  # what the machine gains between the first and the second trial
    guest_first = rng.random(shape) < 0.5
    metal = drift + rng.normal(0, 0.02, shape) + np.where(guest_first, within, 0)
    guest = drift + rng.normal(0, 0.02, shape) + np.where(guest_first, 0, within) + truth
    return guest - metal


def _covered(logs: npt.NDArray[np.float64], truth: float) -> tuple[float, float]:
    """The shares of experiments whose t and signed-rank intervals hold the truth."""
    found = [(result.t, result.signed_rank) for result in map(paired, logs)]
    held = [[side is not None and side.low <= truth <= side.high for side in pair] for pair in found]
    t, rank = np.mean(held, axis=0)
    return float(t), float(rank)


def _error(share: float, experiments: int = EXPERIMENTS) -> float:
    return 3 * math.sqrt(share * (1 - share) / experiments)


@pytest.mark.parametrize("n", [6, 10, 20])
def test_coverage(n: int) -> None:
    """Nominal 95%: t within 1.5 points of it; signed-rank within 1.5 points of its own exact level."""
    truth = -0.1
    t, rank = _covered(_log_ratios(np.random.default_rng(n), EXPERIMENTS, n, truth), truth)
    exact = signed_rank_level(n)
    assert exact is not None and exact >= 0.95
    assert abs(t - 0.95) + _error(0.95) <= POINTS
    assert abs(rank - exact) + _error(exact) <= POINTS


def test_coverage_with_outliers() -> None:
    """One block in ten is wild: signed-rank keeps its exact level; t promises too little rather than too much."""
    rng = np.random.default_rng(1)
    logs = _log_ratios(rng, EXPERIMENTS, 10, 0.0)
    t, rank = _covered(logs + np.where(rng.random(logs.shape) < 0.1, rng.normal(0, 0.1, logs.shape), 0), 0.0)
    assert abs(rank - (signed_rank_level(10) or 0.0)) + _error(0.95) <= POINTS
    assert t >= 0.95


@pytest.mark.parametrize("n", [6, 10])
def test_equivalence_is_rarely_claimed_of_what_lies_on_the_margin(n: int) -> None:
    """A true difference of exactly the margin is called equivalent in at most 2.5% of experiments."""
    limit = math.log1p(0.02)
    # Quieter blocks: at 2% noise nothing could ever be called equivalent, and the test would be of no use.
    rows = 0.1 * _log_ratios(np.random.default_rng(n), EXPERIMENTS // 2, n, 0.0) + limit
    claims = np.mean([(paired(row).p_equivalence(limit) or 0.0) < 0.05 for row in rows])
    assert 0.025 - POINTS <= claims <= 0.025 + _error(0.025, EXPERIMENTS // 2)


def test_a_family_without_any_difference_rarely_finds_one() -> None:
    """Eight comparisons of a thing with itself: at least one false claim in at most 5% of experiments."""
    effects = _effects(np.random.default_rng(8), families=1000, truths=[0.0] * 8)
    found = np.mean([any(one and one.difference.holds for one in judge_family(row, 0.0198)) for row in effects])
    alone = np.mean([any((e.p_difference or 0.0) < 0.05 for e in row) for row in effects])
    assert found <= 0.05 + _error(0.05, 1000)
    assert alone > 0.25  # what it would be without the correction: 1 − 0.95^8 = 34%


def test_a_family_keeps_the_differences_that_are_there() -> None:
    """Four true differences of 10% and four of zero: Holm finds all true ones, and false ones in at most 5%."""
    effects = _effects(np.random.default_rng(9), families=1000, truths=[0.1] * 4 + [0.0] * 4)
    claims = np.array(
        [[one.difference.holds if one else False for one in judge_family(row, 0.0198)] for row in effects]
    )
    assert claims[:, :4].mean() > 0.95
    assert claims[:, 4:].any(axis=1).mean() <= 0.05 + _error(0.05, 1000)


def _effects(rng: np.random.Generator, families: int, truths: list[float]) -> list[list[Paired]]:
    """Ten blocks for each truth of each family."""
    columns = [[paired(row) for row in _log_ratios(rng, families, 10, truth)] for truth in truths]
    return [list(row) for row in zip(*columns, strict=True)]

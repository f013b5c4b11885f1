"""Simulated experiments through the engine's own page: how often its intervals and its claims of equality are right.

Blocks drift (a random walk that metal and guest share) and so does the machine within a block, where the
order of the two is drawn at random. Every bound is met with three Monte-Carlo errors to spare, so that passing
says something about the truth and not about the seed.
"""

import math

import numpy as np
import numpy.typing as npt
import pytest

from tests.support.evidence import evidence
from vmtoll.analysis.judge import Family
from vmtoll.model.metric import CPU
from vmtoll.model.verdict import DIFFERENT, Kind
from vmtoll.statistics.student import mean_of

Floats = npt.NDArray[np.float64]
EXPERIMENTS = 10_000
PAGES = 300
POINTS = 0.015


def _log_ratios(rng: np.random.Generator, shape: tuple[int, ...], truth: float) -> Floats:
    """log(guest ÷ metal) per block, the last axis."""
    drift = rng.normal(0, 0.1, shape).cumsum(axis=-1)
    within = rng.normal(0, 0.01, shape)  # what the machine gains between the first and the second trial
    guest_first = rng.random(shape) < 0.5
    metal = drift + rng.normal(0, 0.02, shape) + np.where(guest_first, within, 0)
    guest = drift + rng.normal(0, 0.02, shape) + np.where(guest_first, 0, within) + truth
    return np.asarray(guest - metal)


def _error(share: float, experiments: int = EXPERIMENTS) -> float:
    return 3 * math.sqrt(share * (1 - share) / experiments)


def _page(rows: Floats, margin: float | None = None) -> Family:
    return Family([evidence(row, metric=CPU) for row in rows], margin)


@pytest.mark.parametrize("n", [6, 10, 20])
def test_students_interval_of_independent_blocks(n: int) -> None:
    """Nominal 95%: within 1.5 points of it."""
    rows = _log_ratios(np.random.default_rng(n), (EXPERIMENTS, n), -0.1)
    held = [interval is not None and interval.low <= -0.1 <= interval.high for interval in (mean_of(r).t for r in rows)]
    assert abs(np.mean(held) - 0.95) + _error(0.95) <= POINTS


@pytest.mark.parametrize("n", [6, 10])
def test_equality_is_rarely_claimed_of_what_lies_on_the_margin(n: int) -> None:
    """A true difference of exactly the margin is called equivalent in at most 2.5% of pages of one comparison; and at
    the middle of the margin often enough that the test is of some use.
    """
    limit, rng = math.log1p(0.02), np.random.default_rng(n)
    # Quieter blocks: at 2% noise nothing could ever be called equivalent.
    rows = 0.05 * _log_ratios(rng, (PAGES * 4, n), 0.0)
    on_it, within = (
        np.mean([_page(row[None] + shift, 0.02).decide()[0] is Kind.EQUIVALENT for row in rows])
        for shift in (limit, 0.0)
    )  # fmt: skip
    assert on_it <= 0.025 + _error(0.025, len(rows))
    assert within > 0.9


def test_a_family_keeps_the_differences_that_are_there() -> None:
    """Four true differences of 10% and four of zero: all true ones are found, and false ones in at most 5%."""
    rng, kinds = np.random.default_rng(9), []
    for _ in range(PAGES):
        page = _page(_log_ratios(rng, (8, 10), 0.0) + np.repeat([[0.1], [0.0]], 4, axis=0))
        kinds.append([kind in DIFFERENT for kind in page.decide()])
    found = np.array(kinds)
    assert found[:, :4].mean() > 0.95
    assert found[:, 4:].any(axis=1).mean() <= 0.05 + _error(0.05, PAGES)

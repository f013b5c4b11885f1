"""Shares against published values and statsmodels."""

import pytest
from statsmodels.stats.proportion import proportion_confint

from vmtoll.statistics.proportions import clopper_pearson, mcnemar, wilson


# Newcombe, Statistics in Medicine 17 (1998), 857–872, table I, method 3.
@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_wilson_is_the_published_one_and_statsmodels(successes: int, trials: int, low: float, high: float) -> None:
    ours = wilson(successes, trials)
    assert (ours.low, ours.high) == pytest.approx((low, high), abs=5e-5)
    assert (ours.low, ours.high) == pytest.approx(proportion_confint(successes, trials, method="wilson"), abs=1e-12)


def test_wilson_at_a_million_requests_without_failure() -> None:
    """The upper bound of the failure rate is z²/(n + z²), about 3.84 in a million."""
    ours = wilson(1_000_000, 1_000_000)
    assert ours.high == 1.0
    assert 1 - ours.low == pytest.approx(3.8415e-6, rel=1e-4)


def test_exact_shares_are_statsmodels_and_the_published_one() -> None:
    """Newcombe 1998, table I, method 5: 15 of 148."""
    ours = clopper_pearson(15, 148)
    assert (ours.low, ours.high) == pytest.approx((0.0578, 0.1617), abs=5e-5)
    assert (ours.low, ours.high) == pytest.approx(proportion_confint(15, 148, method="beta"), abs=1e-12)


def test_mcnemar_by_hand() -> None:
    """Five of five, 2 × 1/32; four of five, 2 × 6/32."""
    assert mcnemar(5, 0) == mcnemar(0, 5) == pytest.approx(2 / 32)
    assert mcnemar(4, 1) == pytest.approx(12 / 32)
    assert mcnemar(0, 0) == 1.0

"""Student's intervals against scipy and published values, and how often they hold the truth."""

import math

import numpy as np
import pytest
from scipy import stats

from vmtoll.statistics.student import half_width, mean_of, t_quantile

# Student's sleep data (Cushny & Peebles 1905), as in R's `sleep`: hours gained by ten patients under two drugs.
DRUG_1 = np.array([0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0])
DRUG_2 = np.array([1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4])


def test_the_interval_is_the_published_one() -> None:
    """R: t.test(Pair(extra.1, extra.2) ~ 1) prints a 95% interval of −2.4598858 to −0.7001142."""
    ours = mean_of(DRUG_1 - DRUG_2)
    assert ours.t is not None
    assert (ours.mean, ours.t.low, ours.t.high) == pytest.approx((-1.58, -2.4598858, -0.7001142), abs=5e-8)


def test_it_is_that_of_scipy_at_any_level() -> None:
    values = np.random.default_rng(3).normal(0.1, 0.2, 10)
    for level in (0.05, 0.0025):
        low, high = stats.t.interval(1 - level, 9, values.mean(), stats.sem(values))
        half = half_width(float(values.std(ddof=1)), 10, level)
        assert (values.mean() - half, values.mean() + half) == pytest.approx((low, high), rel=1e-12)
    assert t_quantile(0.975, 5) == pytest.approx(2.570582, abs=5e-7)


def test_one_figure_has_no_interval_and_none_is_an_error() -> None:
    alone = mean_of([0.1])
    assert (alone.n, alone.mean, alone.sd, alone.t) == (1, 0.1, None, None)
    for bad in ([], [math.nan], [math.inf]):
        with pytest.raises(ValueError, match="finite numbers"):
            mean_of(bad)

"""One definition of a percentile."""

import numpy as np
import pytest

from vmtoll.statistics.ranks import nearest_rank, rank_of, value_at


@pytest.mark.parametrize(
    ("share", "total", "rank"),
    [(0.5, 2, 1), (0.5, 3, 2), (0.99, 100, 99), (0.99, 101, 100), (0.999, 1000, 999), (0.5, 1, 1)],
)
def test_the_rank_is_the_first_that_reaches_the_share(share: float, total: int, rank: int) -> None:
    assert rank_of(share, total) == rank


@pytest.mark.parametrize("share", [0.5, 0.9, 0.99, 0.999, 1.0])
def test_counted_values_have_the_percentiles_of_the_single_ones(share: float) -> None:
    """numpy's method of the same kind, and the definition itself: at least the share is at most the percentile."""
    random = np.random.default_rng(7)
    for size in (1, 2, 3, 10, 99, 100, 101, 300):
        drawn = random.integers(1, 50, size).astype(float)
        values, counts = np.unique(drawn, return_counts=True)
        upto = np.cumsum(counts).astype(float)
        found = nearest_rank(values, upto, share)
        assert found == np.percentile(drawn, 100 * share, method="inverted_cdf")
        assert np.mean(drawn <= found) >= share - 1e-9
        assert (value_at(values, upto, 1), value_at(values, upto, size)) == (drawn.min(), drawn.max())

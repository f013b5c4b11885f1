"""How often a bisection is right: simulated histories, and what docs say of them."""

import numpy as np
import pytest

from benchmarks import bisection as bench
from benchmarks.bisection import Rule
from benchmarks.verdicts import Noise
from vmtoll.bisect import search
from vmtoll.paths import PROJECT

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("noise", [Noise.NORMAL, Noise.HEAVY])
def test_of_500_bisections_95_percent_are_right(noise: Noise) -> None:
    """64 commits of lighttz, one of which adds 20 µs; the same seeds as in docs."""
    found = bench.characteristic(Rule.ANCHORS, noise, bench.BASE_US[0], bench.BISECTIONS)
    assert found.bisections == 500
    assert found.right >= 0.95
    assert found.at_least > 0.93
    assert found in list(bench.read())


def test_a_bisection_is_seldom_wrong_where_it_cannot_be_right() -> None:
    """A difference below the noise leaves several commits, or none; the right one is among them."""
    found = bench.characteristic(Rule.ANCHORS, Noise.PERSISTENT, 100.0, 50)
    assert found.right < 0.5
    assert found.wrong <= 0.05


def test_two_changes_are_noticed() -> None:
    """Of 30 histories with a second change of the same size, most end with a contradiction; each names a change."""
    noticed = 0
    for seed in range(30):
        history = bench.History(np.random.default_rng(seed), Noise.NORMAL, 20.0)
        second = (history.culprit + 31) % bench.COMMITS + 1
        history.logs[second:] += history.apart
        bisection = bench.bisect(history)
        named = bench.ended(bisection)
        assert named <= {history.culprit, second} or len(named) > 1 or not named
        noticed += bool(search.contradictions(bisection))
    assert noticed >= 15


def test_the_table_in_docs_is_that_of_the_figures() -> None:
    assert bench.table(list(bench.read())) in (PROJECT / "docs" / "statistics.md").read_text("utf-8")

"""Changes of level in a history of figures."""

import numpy as np
import pytest

from benchmarks.histories import delay, false_alarms
from vmtoll.statistics.change_points import FARTHEST, FEWEST_NIGHTS, change_points, spread


def nights(n: int, seed: int = 1, sd: float = 0.02) -> list[float]:
    return list(np.exp(np.random.default_rng(seed).normal(7, sd, n)))


def test_a_new_level_is_found_at_its_first_night() -> None:
    figures = nights(30)
    assert change_points([figure * (0.9 if night >= 20 else 1) for night, figure in enumerate(figures)]) == [20]


def test_the_unit_decides_nothing() -> None:
    figures = [figure * (0.9 if night >= 20 else 1) for night, figure in enumerate(nights(30))]
    assert change_points([1e6 * figure for figure in figures]) == change_points(figures)


@pytest.mark.parametrize("factor", [0.1, 0.8, 3.0])
def test_one_odd_night_is_no_level(factor: float) -> None:
    figures = nights(30)
    figures[15] *= factor
    assert change_points(figures) == []


def test_a_short_history_is_not_judged() -> None:
    figures = nights(FEWEST_NIGHTS - 1)
    assert change_points([*figures[:5], *(2 * figure for figure in figures[5:])]) == []


def test_equal_figures_have_no_change() -> None:
    assert change_points([5.0] * 40) == []


def test_more_figures_need_a_larger_change() -> None:
    figures = [figure * (0.975 if night >= 15 else 1) for night, figure in enumerate(nights(30, seed=3))]
    found = [bool(change_points(figures, among)) for among in (1, 10, 10_000)]
    assert found == sorted(found, reverse=True)


def test_the_spread_is_that_of_a_night_also_beside_a_change() -> None:
    figures = [figure * (0.5 if night >= 100 else 1) for night, figure in enumerate(nights(200))]
    assert spread(figures) == pytest.approx(0.02, rel=0.2)
    assert FARTHEST > 3


@pytest.mark.slow
def test_false_alarms_are_rare_and_a_tenth_is_seen_in_days() -> None:
    """The table of docs/statistics.md at a small scale."""
    assert sum(false_alarms("normal", seed, 60) for seed in range(12)) <= 1
    assert sorted(delay("normal", seed, 10) for seed in range(9))[4] <= 5

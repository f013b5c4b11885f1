"""Holm's correction against statsmodels, and by hand; its levels against its own p-values."""

import itertools

import numpy as np
import pytest
from statsmodels.stats.multitest import multipletests

from vmtoll.statistics.holm import holm
from vmtoll.statistics.thresholds import ALPHA


def test_it_is_that_of_statsmodels() -> None:
    p_values = [0.004, 0.011, 0.2, 0.039, 0.0001, 1.0, 0.011]
    rejects, theirs, *_ = multipletests(p_values, method="holm")
    ours = holm(p_values)
    assert [each.holm for each in ours] == pytest.approx(theirs.tolist(), rel=1e-12)
    assert [each.rejects for each in ours] == rejects.tolist()
    assert holm([]) == []


def test_by_hand() -> None:
    """Ascending 0.005, 0.01, 0.03, 0.04 times 4, 3, 2, 1; the last may not fall below the third."""
    adjusted = holm([0.01, 0.04, 0.03, 0.005])
    assert [each.holm for each in adjusted] == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert [each.rejects for each in adjusted] == [True, False, False, True]
    assert [each.level for each in adjusted] == pytest.approx([ALPHA / 3, ALPHA / 2, ALPHA / 2, ALPHA / 4])


def test_weights_by_hand() -> None:
    """Weights 1/2, 1/4, 1/4, and p ÷ weight 0.02, 0.032, 0.16: times 1, then 1/2, then 1/4."""
    adjusted = holm([0.01, 0.008, 0.04], [0.5, 0.25, 0.25])
    assert [each.holm for each in adjusted] == pytest.approx([0.02, 0.02, 0.04])
    assert [each.level for each in adjusted] == pytest.approx([ALPHA / 2, ALPHA / 2, ALPHA])
    assert holm([0.01, 0.04, 0.03, 0.005], [0.25] * 4) == holm([0.01, 0.04, 0.03, 0.005])


def test_a_share_divides_the_p_before_it_is_ordered() -> None:
    adjusted = holm([0.004, 0.003], shares=[1.0, 0.25])
    assert [each.p for each in adjusted] == [0.004, 0.003]
    assert [each.holm for each in adjusted] == pytest.approx([0.008, 0.012])
    assert [each.level for each in adjusted] == pytest.approx([ALPHA / 2, ALPHA / 4])


def test_before_a_look_nothing_is_rejected_and_others_keep_their_part() -> None:
    unseen, seen = holm([1e-9, 0.02], shares=[0.0, 1.0])
    assert (unseen.rejects, unseen.level, unseen.holm) == (False, 0.0, 1.0)
    assert seen.rejects and seen.holm == pytest.approx(0.04)


def test_what_is_not_rejected_has_the_level_at_which_it_stopped() -> None:
    """Two comparisons with p 0.03 and 0.04: neither is rejected, so both lie above the level of their intervals."""
    for first, second in itertools.permutations([0.03, 0.04]):
        assert [each.level for each in holm([first, second])] == [ALPHA / 2] * 2


def test_the_level_decides_as_the_correction_does() -> None:
    """p < level exactly where it is rejected, for any p-values, weights and shares."""
    rng = np.random.default_rng(11)
    for _ in range(2000):
        count = int(rng.integers(1, 9))
        p = (10 ** rng.uniform(-4, 0, count)).tolist()
        weights = rng.dirichlet(np.ones(count)).tolist()
        for each in holm(p, weights, rng.choice([1.0, 0.3, 0.05], count).tolist()):
            assert (each.p < each.level) == each.rejects

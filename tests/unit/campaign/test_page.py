"""The chart of a campaign's test beds."""

import math

import matplotlib.pyplot as plt
import pytest

from vmtoll.campaign.page import _ratio_ticks


@pytest.mark.parametrize(("low", "high"), [(0.0001, 1.1), (0.9, 1.1), (1.0, 40.0)])
def test_ratio_ticks_are_few_and_lie_in_the_picture(low: float, high: float) -> None:
    """A guest that is a thousand times slower is drawn like any other."""
    figure, axes = plt.subplots()
    axes.set_xlim(math.log(low), math.log(high))
    _ratio_ticks(axes)
    ticks = axes.get_xticks()
    plt.close(figure)
    assert 2 <= len(ticks) <= 5
    assert len(set(ticks)) == len(ticks)
    assert all(math.log(low) - 0.01 <= tick <= math.log(high) + 0.01 for tick in ticks)

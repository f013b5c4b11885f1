"""Where the level of a series changed: a penalized search over all partitions (PELT), for figures of one a night."""

from collections.abc import Sequence

import numpy as np

from vmtoll.statistics.thresholds import SPREAD_FLOOR

# A level has at least this many figures, so that no single night makes one.
LEAST_NIGHTS = 3
# A history shorter than this shows its own noise too badly to be judged.
FEWEST_NIGHTS = 10
# The gain that a further level must bring, in variances of a night. By simulation (docs/statistics.md, "Histories"),
# equal nights of one figure give less than one false alarm a year.
PENALTY = 25.0
# Nights further away than this many standard deviations count as if they were so far away: one odd night is no level.
FARTHEST = 4.0
_MAD_OF_NORMAL = 0.6745  # median absolute value of a standard normal variable


def change_points(figures: Sequence[float], among: int = 1) -> list[int]:
    """Indices at which a new level begins, of figures in their order, all above zero; none in a short history.

    `among`: the number of histories that are judged together. Their false alarms add up, and the penalty grows with
    their number (Bonferroni). Killick, Fearnhead and Eckley, "Optimal detection of changepoints with a linear
    computational cost", JASA 2012; the noise is that of successive differences, which a change of level leaves alone.
    """
    import ruptures  # noqa: PLC0415 (of an optional extra)

    if len(figures) < FEWEST_NIGHTS:
        return []
    logs = np.log(np.asarray(figures, dtype=float))
    deviations = np.clip((logs - np.median(logs)) / spread(figures), -FARTHEST, FARTHEST)
    search = ruptures.Pelt(model="l2", min_size=LEAST_NIGHTS, jump=1).fit(deviations[:, np.newaxis])
    return [int(index) for index in search.predict(pen=PENALTY + 2 * float(np.log(among)))[:-1]]


def spread(figures: Sequence[float]) -> float:
    """The standard deviation of a night's log figure, robustly from successive differences."""
    steps = np.abs(np.diff(np.log(np.asarray(figures, dtype=float))))
    return max(SPREAD_FLOOR, float(np.median(steps)) / (_MAD_OF_NORMAL * float(np.sqrt(2))))

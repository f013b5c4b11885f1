"""The capacity that shares are taken of."""

from dataclasses import dataclass
from typing import Literal

# Whose capacity a share is of. baseline: that of the experiment's baseline; slowest: the smallest of all environments'.
# With both a share is one rate for every arm and the whole run. own: that of each arm, measured in each block, so that
# a share is another rate for each.
SharesOf = Literal["baseline", "slowest", "own"]


@dataclass(frozen=True)
class CapacityEstimate:
    """Requests per second of a closed loop: the geometric mean of some trials and its 95% interval. The interval is
    Student's t of the logarithms; None for a single trial.
    """

    mean_rps: float
    low_rps: float | None
    high_rps: float | None
    trials: int

"""The capacity that a share of load refers to."""

from dataclasses import dataclass
from typing import Literal

# The capacity that a share refers to. baseline: that of the experiment's baseline; slowest: the smallest of all
# environments. With either, a share is the same rate for every arm and the whole run. own: each arm's own capacity,
# measured in each block, so each arm gets its own rate.
SharesOf = Literal["baseline", "slowest", "own"]


@dataclass(frozen=True)
class CapacityEstimate:
    """Requests per second of a closed loop: the geometric mean over `trials` and its 95% interval. The interval is
    Student's t of the logarithms; None for a single trial.
    """

    mean_rps: float
    low_rps: float | None
    high_rps: float | None
    trials: int

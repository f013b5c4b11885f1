"""What is asked for: the objective that one machine must meet, and the demand that all of them together must."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Slo:
    """The objective: 99% of the requests answered within `p99_ms`, counted from the intended send, and
    `availability_pct` of all requests answered with success.
    """

    p99_ms: float
    availability_pct: float = 99.9

    def __post_init__(self) -> None:
        if not 0 < self.p99_ms < math.inf:
            raise ValueError(f"p99 of {self.p99_ms:g} ms: must be a number above 0")
        if not 0 < self.availability_pct < 100:
            raise ValueError(
                f"availability of {self.availability_pct:g}%: must lie between 0 and 100; 100% cannot be shown by any"
                " number of requests"
            )

    @property
    def words(self) -> str:
        """`p99 ≤ 50 ms, 99.9% available`."""
        return f"p99 ≤ {self.p99_ms:g} ms, {self.availability_pct:.6g}% available"


@dataclass(frozen=True)
class Demand:
    """`rate_rps` for all machines together, planned for `headroom_pct` more than that, with `spare` machines beyond.

    `guests_per_host`: how many guests share a host. Costs in the user's own currency per host and hour, `watts` per
    host under load; null leaves the figure out.
    """

    rate_rps: float
    headroom_pct: float = 30.0
    spare: int = 1
    guests_per_host: int = 1
    host_cost_per_hour: float | None = None
    watts: float | None = None

    def __post_init__(self) -> None:
        if not 0 < self.rate_rps < math.inf:
            raise ValueError(f"rate of {self.rate_rps:g}/s: must be a number above 0")
        figures = {"headroom": self.headroom_pct, "spare": self.spare, "guests per host": self.guests_per_host - 1}
        figures |= {"cost": self.host_cost_per_hour or 0, "watts": self.watts or 0}
        for name, figure in figures.items():
            if not 0 <= figure < math.inf:
                raise ValueError(f"{name}: must be {'1' if name == 'guests per host' else '0'} or more")

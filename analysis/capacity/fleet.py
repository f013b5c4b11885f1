"""From the capacity of one to a number of them: spares, hosts, the load after a failure, cost and energy."""

from __future__ import annotations

import math
from typing import Any

from analysis.capacity.slo import Demand


def fleet(rate_of_one_rps: float, demand: Demand, *, guest: bool) -> dict[str, Any]:
    """How many machines of that capacity carry the demand, and what follows.

    `units`: machines, the spares among them; `hosts`: the same for metal, else what the guests fill;
    `load`, `load_after_failure`, `load_after_host_failure`: of each remaining machine, as a fraction of the capacity
    of one, at the demanded rate without headroom (null when none remains); `cost_per_million` and
    `watt_hours_per_million` requests at that rate, null where no price or power is given.
    """
    wanted = demand.rate_rps * (1 + demand.headroom_pct / 100)
    # A quotient that is whole but for the rounding of its floats is whole.
    units = max(1, math.ceil(wanted / rate_of_one_rps * (1 - 1e-12))) + demand.spare
    share = demand.guests_per_host if guest else 1
    hosts = math.ceil(units / share)
    millions_per_hour = demand.rate_rps * 3600 / 1e6

    def load(left: int) -> float | None:
        return demand.rate_rps / (left * rate_of_one_rps) if left > 0 else None

    def per_million(per_host_hour: float | None) -> float | None:
        return None if per_host_hour is None else hosts * per_host_hour / millions_per_hour

    return {
        "units": units,
        "hosts": hosts,
        "load": load(units),
        "load_after_failure": load(units - 1),
        "load_after_host_failure": load(units - min(share, units)),
        "cost_per_million": per_million(demand.host_cost_per_hour),
        "watt_hours_per_million": per_million(demand.watts),
    }

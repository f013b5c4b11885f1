"""Number of machines that a demand takes, their cost, and the capacity that remains when one fails."""

import math
from dataclasses import dataclass

from vmtoll.capacity.estimate import ByEnd, Estimate
from vmtoll.capacity.objective import Demand
from vmtoll.model.trial import MachineKind


@dataclass(frozen=True)
class FleetPlan:
    """`units`: machines, spares included; `hosts`: the same number for metal, else the hosts that the guests or
    containers fill.

    Loads are per remaining machine, as a fraction of its capacity, at the demanded rate without headroom (None when
    none remains). Costs are per million requests at that rate, None where no price or power is known.
    """

    units: int
    hosts: int
    load: float | None
    load_after_failure: float | None
    load_after_host_failure: float | None
    cost_per_million: float | None
    watt_hours_per_million: float | None


def plan_fleet(unit_rate_rps: float, demand: Demand, kind: MachineKind, watts: float | None = None) -> FleetPlan:
    """Plan the number of machines with a capacity of `unit_rate_rps` that carry the demand; `watts`: of one host."""
    wanted_rps = demand.rate_rps * (1 + demand.headroom_pct / 100)
    # A quotient that differs from a whole number only by float rounding is whole.
    units = max(1, math.ceil(wanted_rps / unit_rate_rps * (1 - 1e-12))) + demand.spare
    on_one_host = demand.guests_per_host if kind is not MachineKind.METAL else 1
    hosts = math.ceil(units / on_one_host)

    def load(machines: int) -> float | None:
        return demand.rate_rps / (machines * unit_rate_rps) if machines > 0 else None

    def per_million(per_host_hour: float | None) -> float | None:
        return None if per_host_hour is None else hosts * per_host_hour / (demand.rate_rps * 3600 / 1e6)

    return FleetPlan(
        units, hosts, load=load(units), load_after_failure=load(units - 1),
        load_after_host_failure=load(units - min(on_one_host, units)),
        cost_per_million=per_million(demand.host_cost_per_hour), watt_hours_per_million=per_million(watts),
    )  # fmt: skip


def watts_of_host(demand: Demand, measured_watts: Estimate | None, kind: MachineKind) -> ByEnd[float | None]:
    """Watts of a host to plan with at each end of the rate: the high power for the low rate.

    None where power is neither given nor counted, and for a counted host of several guests: it was never measured with
    all of them.
    """
    if demand.watts is not None:
        return ByEnd(demand.watts, demand.watts, demand.watts)
    if measured_watts is None or (kind is not MachineKind.METAL and demand.guests_per_host > 1):
        return ByEnd(None, None, None)
    return ByEnd(
        measured_watts.high if math.isfinite(measured_watts.high) else None, measured_watts.mid, measured_watts.low
    )

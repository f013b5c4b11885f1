"""What a host draws: as the user says, else as its processors and memory count it (RAPL)."""

from __future__ import annotations

from analysis.capacity.resources import Ends, as_dict
from analysis.capacity.rungs import HIGH, LOW, MID, Rung, geometric
from analysis.capacity.slo import Demand
from analysis.load import BASELINE, Run


def watts(rung: Rung) -> Ends | None:
    """The power of the processors and memory at a rung, with its interval over blocks; None where none was counted.

    Fans, disks and what the power supply loses are not in it.
    """
    return as_dict(geometric(rung.trials["host_energy_j"] / rung.trials["duration_s"]))


def per_host(demand: Demand, counted: Ends | None, environment: str) -> dict[str, float | None]:
    """Watts to plan with at each end of the interval of the rate: the lower that rate, the higher the power.

    Null where it is neither given nor counted: a host of several guests was never measured with all of them.
    """
    if demand.watts is not None:
        return dict.fromkeys((LOW, MID, HIGH), demand.watts)
    if counted is None or _shared(demand, environment):
        return dict.fromkeys((LOW, MID, HIGH))
    return {LOW: counted[HIGH], MID: counted[MID], HIGH: counted[LOW]}


def power_notes(run: Run, rung: Rung, demand: Demand | None, environment: str) -> list[str]:
    """What a reader has to know of a counted power; nothing where it was not counted, or is given."""
    if watts(rung) is None or (demand and demand.watts is not None):
        return []
    said = []
    if demand and _shared(demand, environment):
        said.append(f"what a host with {demand.guests_per_host} guests draws was not measured; --watts gives it")
    if run.meta.get("lab") == "embedded" or (rung.trials["client"] == "localhost").any():
        said.append("the energy is that of the whole machine, on which the load generator ran as well")
    return said


def power_words(counted: Ends) -> str:
    """`85 W [83, 87] for its processors and memory`."""
    mid, low, high = counted[MID], counted[LOW], counted[HIGH]
    between = f" [{low:,.0f}, {high:,.0f}]" if low and high else ""
    return f"{mid:,.0f} W{between} for its processors and memory"


def _shared(demand: Demand, environment: str) -> bool:
    return environment != BASELINE and demand.guests_per_host > 1

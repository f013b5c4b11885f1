"""Capacity plans from synthetic rate sweeps, and the parts that tests read."""

from pathlib import Path
from typing import Any

from tests.support.synthetic_run import Row, Truth, make_run, rate_load, with_findings
from vmtoll.analysis.run import load_run
from vmtoll.capacity.fleet import FleetPlan
from vmtoll.capacity.objective import Demand, Slo
from vmtoll.capacity.planner import CapacityAssessment, CapacityResult, assess_capacity
from vmtoll.model.finding import Code, Finding

RATES = (500, 1000, 1500, 2000, 2500, 3000, 3500, 3900)
STEPS = tuple(map(rate_load, RATES))
SLO = Slo(5.0)


def truth(**changes: Any) -> Truth:
    plain: dict[str, Any] = {"servers": {"nginx": 0.6}, "drift": 0.0, "aa": False, "loads": STEPS}
    return Truth(**(plain | changes))


def planned(tmp_path: Path, what: Truth, slo: Slo = SLO, **demand: Any) -> CapacityAssessment:
    return assess_capacity(load_run(make_run(tmp_path, what)), slo, Demand(**({"rate_rps": 8000} | demand)))


def side(of: CapacityAssessment, environment: str) -> CapacityResult:
    (result,) = [result for result in of.results if result.environment == environment]
    return result


def recommended(of: CapacityAssessment, environment: str) -> FleetPlan:
    plans = side(of, environment).plan
    assert plans is not None
    assert plans.low is not None
    return plans.low


def codes(result: CapacityResult) -> list[str]:
    return [note.code for note in result.notes]


def failing(from_rps: float, block: int | None, fraction: float) -> Any:
    """A change that makes this fraction of the requests fail at this rate and above, in this block (None: in all)."""

    def change(row: Row) -> list[Row]:
        if row["offered_rps"] < from_rps or (block is not None and row["block"] != block):
            return [row]
        failed = int(fraction * row["requests"])
        return [with_findings(row, Code.FAILED_REQUESTS) | {"successful": row["requests"] - failed, "failed": failed}]

    return change


def unknown(row: Row) -> list[Row]:
    """A change: a client without keep-alive that may need more CPU for a request than the server on metal."""
    measured = [key for key in row if key.endswith("_rps")]
    refusal = Finding(Code.CAPACITY_UNKNOWN, detail="metal: client-saturated in 3 of 3 trials")
    return [with_findings(row, refusal) | dict.fromkeys(measured)]

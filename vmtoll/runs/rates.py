"""Rates of a run's closed loops, from which the runner derives the number of requests that a load needs."""

from collections.abc import Iterable
from dataclasses import dataclass

from vmtoll.model.load import Load
from vmtoll.model.trial import Arm, Scenario, TrialRecord


@dataclass(frozen=True)
class Endpoint:
    """Target of a load; the replicates of an arm have the same one, because they are one machine."""

    environment: str
    server: str
    workload: str

    @classmethod
    def of(cls, arm: Arm, scenario: Scenario) -> "Endpoint":
        return cls(arm.environment, scenario.server, scenario.workload)


class Rates:
    """The latest requests per second of each endpoint, by closed loop and tool."""

    def __init__(self, records: Iterable[TrialRecord] = ()) -> None:
        self._rates: dict[tuple[Endpoint, Load, str], float] = {}
        for record in records:
            self._remember_closed_loops(record)

    def _remember_closed_loops(self, record: TrialRecord) -> None:
        if record.offered.users:
            for measurement in record.measurements:
                if measurement.throughput_rps:
                    self.remember(record.arm, record.scenario, measurement.tool, measurement.throughput_rps)

    def of(self, arm: Arm, scenario: Scenario, tool: str) -> float | None:
        """Rate in requests per second that the tool got in the last closed loop of this load; None without one."""
        return self._rates.get((Endpoint.of(arm, scenario), scenario.load, tool))

    def remember(self, arm: Arm, scenario: Scenario, tool: str, rate_rps: float) -> None:
        self._rates[Endpoint.of(arm, scenario), scenario.load, tool] = rate_rps

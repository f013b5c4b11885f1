"""The measurements of a trial's loads, one per tool, and the resources used during the first."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from vmtoll.loadgen import OpenLoad, ToolResult
from vmtoll.model.density import DensityFigures
from vmtoll.model.finding import Finding, Role
from vmtoll.model.operation import OperationTimes
from vmtoll.model.trial import Counts, Measurement, Offered, Resources
from vmtoll.trial import gates, latency
from vmtoll.trial.loads import ToolRun
from vmtoll.trial.usage import resources, with_cpu


@dataclass(frozen=True)
class TrialResults:
    """Results of a trial's loads. `runs` and `measurements`: the tool's, then the cross-check's if there is one."""

    offered: Offered
    runs: Sequence[ToolRun]
    measurements: tuple[Measurement, ...]
    findings: Sequence[Finding]
    counts: Counts = field(default_factory=Counts)
    density: DensityFigures | None = None
    operation: OperationTimes | None = None  # when the arm's operation was

    @property
    def logged_role(self) -> Role | None:
        """Role whose latencies go into the trial's histograms; None if they are not logged.

        In a closed loop it is the cross-check if it logs latencies, else the tool; otherwise it is the tool.
        """
        roles = (Role.CROSSCHECK, Role.PRIMARY) if self.offered.users else (Role.PRIMARY,)
        logs = {run.role for run in self.runs if run.result.latencies_us is not None}
        return next((role for role in roles if role in logs), None)

    def results(self, role: Role) -> list[ToolResult]:
        """Result of each client in this role."""
        return [result for run in self.runs if run.role is role for result in run.results]

    def with_histogram(self, name: str) -> tuple[Measurement, ...]:
        """The measurements, with `name` as the histogram file of the one whose latencies are in it."""
        return tuple(
            replace(m, histogram=name) if m.role is self.logged_role else m for m in self.measurements
        )  # fmt: skip

    def resources(self) -> Resources:
        """Resources that the server and its machines used: memory and processes are the highest of all readings, the
        rest is from the tool's load.
        """
        readings = [(run.before, run.after) for run in self.runs]
        return resources(readings, self.runs[0].result.transactions)


def utc(time_s: float) -> str:
    """Seconds since the epoch as ISO 8601."""
    return datetime.fromtimestamp(time_s, UTC).isoformat(timespec="milliseconds")


def base_measurement(run: ToolRun, per_s: float) -> Measurement:
    """The figures that every kind of load has; throughput is over `per_s` seconds."""
    done, result = run.execution, run.result
    measurement = Measurement(
        role=run.role,
        tool=run.tool,
        requests=run.planned,
        duration_s=done.wall_s,
        transactions=result.transactions,
        successful=result.successful,
        failed=result.failed,
        availability_pct=result.availability_pct,
        transferred_mb=result.transferred_mb,
        throughput_rps=result.transactions / per_s,
        throughput_mb_per_s=None if result.transferred_mb is None else result.transferred_mb / per_s,
        dropped_figures=result.dropped,
        client_cpu_s=done.cpu_s,
        client_cpu_share=done.cpu_share,
        start_spread_ms=None if run.start_spread_s is None else run.start_spread_s * 1000,
    )
    measurement = with_cpu(measurement, run.before, run.after)
    if run.server_times is None:
        return measurement
    return replace(
        measurement,
        server_time=run.server_times.service.percentiles,
        server_loop_lag=run.server_times.loop_lag.percentiles,
    )


def with_service_times(measurement: Measurement, latencies_us: NDArray[np.int64] | None) -> Measurement:
    """The measurement with its service times; unchanged for a tool that logs none."""
    if latencies_us is None:
        return measurement
    return replace(measurement, service_time=replace(latency.times(latencies_us), max_us=None))


def tool_findings(run: ToolRun) -> list[Finding]:
    """Findings on failed requests, saturated clients, and clients that did not start together."""
    result, in_flight = run.result, None if isinstance(run.load, OpenLoad) else run.load.in_flight
    return [
        *gates.failed_requests(
            run.planned, result.transactions, result.successful, result.failed, run.role, run.tool
        ),
        *(
            finding
            for part in run.parts
            for finding in gates.client_saturated(
                part.execution.cpu_share, run.role, run.tool, part.client, in_flight=in_flight
            )
        ),
        *gates.start_spread(run.start_spread_s, run.execution.wall_s, run.role, run.tool),
    ]  # fmt: skip

"""What a trial's loads came to, and the columns that all kinds of load have."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from workloads.runner.cold import read_columns
from workloads.runner.driver import Phase
from workloads.runner.gates import Reason
from workloads.runner.results import Row
from workloads.runner.usage import cpu_columns, energy_j
from workloads.tools import ToolResult


@dataclass(frozen=True)
class Measured:
    """`row` and `reasons` of the kind of load; `phases`: the tool's, and the twin's where there is one.

    `logged` are the results, one of each client, whose latencies go into the histograms.
    """

    row: Row
    reasons: list[Reason]
    phases: list[Phase]
    logged: Sequence[ToolResult]

    def columns(self) -> Row:
        """All of the trial's columns that come from its loads."""
        own, *twins = self.phases
        readings = [reading for phase in self.phases for reading in (phase.before, phase.after)]
        columns = {
            "memory_pss_kib": max(reading.pss_kib for reading in readings),
            "processes": max(reading.processes for reading in readings),
            **_own(own),
        }
        for twin in twins:
            columns |= _twin(twin)
        return columns | self.row


def utc(time_s: float) -> str:
    """Seconds since the epoch as ISO 8601."""
    return datetime.fromtimestamp(time_s, UTC).isoformat(timespec="milliseconds")


def _own(phase: Phase) -> Row:
    done, result = phase.done, phase.result
    return {
        "started_at": utc(done.started_at_s),
        "requests": phase.load.requests,
        "duration_s": done.wall_s,
        "transactions": result.transactions,
        "availability_pct": result.availability_pct,
        "transferred_mb": result.transferred_mb,
        "successful": result.successful,
        "failed": result.failed,
        "client_cpu_s": done.cpu_s,
        "client_cpu_share": done.cpu_share,
        "start_spread_ms": None if phase.start_spread_s is None else phase.start_spread_s * 1000,
        **cpu_columns(phase.before, phase.after, result.transactions),
        **read_columns(phase.before, phase.after),
        "host_energy_j": energy_j(phase.before, phase.after),
    }


def _twin(phase: Phase) -> Row:
    done, result = phase.done, phase.result
    cpu = cpu_columns(phase.before, phase.after, result.transactions)
    return {
        "twin_requests": phase.load.requests,
        "twin_duration_s": done.wall_s,
        "twin_throughput_rps": result.transactions / done.wall_s,
        "twin_failed": result.failed,
        "twin_client_cpu_share": done.cpu_share,
        "twin_server_cpu_us_per_request": cpu["server_cpu_us_per_request"],
        "twin_host_cpu_us_per_request": cpu.get("host_cpu_us_per_request"),
    }

"""Metrics that are compared: each with its fields of a measurement, its direction and the findings that limit it."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from vmtoll.model.finding import OPEN_PACE_LIMITS, PACE_LIMITS, Code, Role
from vmtoll.model.load import Load
from vmtoll.model.trial import METAL, Measurement, TrialRecord

# A request that was given up took CPU as well: where fewer than this share were answered, the CPU time of an answer
# says nothing. A ramp gives up what does not come within its deadline.
ANSWERED = 0.9


class Loop(StrEnum):
    """CLOSED: the server sets the rate, because users wait. OPEN: requests are sent at a rate, whatever it does."""

    CLOSED = "closed"
    OPEN = "open"


def loop_of(load: Load) -> Loop:
    """The kind of loop of a load."""
    return Loop.OPEN if load.is_open else Loop.CLOSED


def is_answered(measured: Measurement) -> bool:
    """Return whether most requests of a measurement were answered, as far as is known."""
    requests, answers = measured.requests, measured.transactions
    return requests is None or answers is None or answers >= ANSWERED * requests


@dataclass(frozen=True)
class Metric:
    """`field`: of a Measurement; `guest_field`: the one that a guest's side is compared by, where it is another.

    `loops`: the loops under which the figure says something about the server. `limits`: findings of the measurement
    that holds the figure which say that the client or the link set it; none where their pace does not matter.
    `percentile`: a fraction, of a percentile. `is_per_answer`: an amount divided by the answers. `is_primary`: what its
    kind of loop is measured for; half of the 5% of a page's errors are kept for such metrics.
    """

    name: str
    unit: str
    higher_is_better: bool
    loops: tuple[Loop, ...]
    field: str
    guest_field: str = ""
    limits: frozenset[Code] = frozenset()
    percentile: float | None = None
    is_primary: bool = False
    is_per_answer: bool = False

    def value(self, record: TrialRecord, role: Role) -> float | None:
        """The figure of a trial's measurement of this role; None where it has none."""
        measured = record.measurement(role)
        return None if measured is None else self.of(measured, guest=record.arm.environment != METAL)

    def of(self, measured: Measurement, *, guest: bool) -> float | None:
        """The figure of one measurement; None where it has none."""
        if self.is_per_answer and not is_answered(measured):
            return None
        value: float | None = getattr(measured, self.guest_field if guest and self.guest_field else self.field)
        return value

    def is_limited(self, record: TrialRecord, role: Role) -> bool:
        """Return whether the measurement that holds the figure is client-limited or link-limited."""
        return bool(self.limits & record.limits(role))


THROUGHPUT = Metric("throughput", "1/s", True, (Loop.CLOSED,), "throughput_rps", limits=PACE_LIMITS, is_primary=True)
TAIL = Metric(
    "tail", "µs", False, (Loop.OPEN,), "response_time_p99_us", limits=OPEN_PACE_LIMITS,
    percentile=0.99, is_primary=True,
)  # fmt: skip
LATENCY_P99 = Metric(
    "latency_p99", "µs", False, (Loop.CLOSED,), "service_time_p99_us", limits=PACE_LIMITS, percentile=0.99
)
CPU = Metric("cpu", "µs", False, (Loop.CLOSED, Loop.OPEN), "server_cpu_us_per_request", is_per_answer=True)
HOST_CPU = Metric(
    "host_cpu", "µs", False, (Loop.CLOSED, Loop.OPEN), "server_cpu_us_per_request", "host_cpu_us_per_request",
    is_per_answer=True,
)  # fmt: skip

METRICS: Mapping[str, Metric] = {metric.name: metric for metric in (THROUGHPUT, TAIL, LATENCY_P99, CPU, HOST_CPU)}

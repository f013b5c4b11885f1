"""Metrics that vmtoll compares: each with its field of a Measurement, its direction and the findings that limit it."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from vmtoll.model.finding import CLOSED_LOOP_LIMITS, OPEN_LOOP_LIMITS, Code, Role
from vmtoll.model.load import Load
from vmtoll.model.trial import Accelerator, Measurement, TrialRecord

# A request that the client gave up took CPU too: if fewer than this share were answered, CPU time per answer means
# nothing. A ramp gives up every request that misses its deadline.
MIN_ANSWERED_SHARE = 0.9


class Loop(StrEnum):
    """CLOSED: the server sets the rate, because users wait. OPEN: the client does, whatever the server answers."""

    CLOSED = "closed"
    OPEN = "open"


def loop_of(load: Load) -> Loop:
    """The kind of loop of a load."""
    return Loop.OPEN if load.is_open else Loop.CLOSED


def is_answered(measurement: Measurement) -> bool:
    """Return whether most requests of a measurement were answered, as far as is known."""
    requests, answers = measurement.requests, measurement.transactions
    return requests is None or answers is None or answers >= MIN_ANSWERED_SHARE * requests


@dataclass(frozen=True)
class Metric:
    """`field`: of a Measurement; `guest_field`: the field that a guest is compared by, where it differs. `like_field`:
    the field that every arm is compared by where it has a figure, as in runs since it exists.

    `loops`: the loops under which the figure describes the server. `limits`: findings that make the measurement of the
    figure client-limited or link-limited; empty where neither affects the figure. `percentile`: a fraction, for
    percentiles. `is_per_answer`: the figure is an amount divided by the answers. `is_primary`: the main metric of its
    kind of loop; half of a page's 5% of wrong verdicts is reserved for primary metrics.
    """

    name: str
    unit: str
    higher_is_better: bool
    loops: tuple[Loop, ...]
    field: str
    guest_field: str = ""
    like_field: str = ""
    limits: frozenset[Code] = frozenset()
    percentile: float | None = None
    is_primary: bool = False
    is_per_answer: bool = False

    def value(self, record: TrialRecord, role: Role) -> float | None:
        """The figure of a trial's measurement of this role; None where it has none."""
        measurement = record.measurement(role)
        return None if measurement is None else self.of(measurement, guest=record.accelerator is not Accelerator.NONE)

    def of(self, measurement: Measurement, *, guest: bool) -> float | None:
        """The figure of one measurement; None where it has none."""
        if self.is_per_answer and not is_answered(measurement):
            return None
        if self.like_field and (alike := measurement.column(self.like_field)) is not None:
            return alike
        return measurement.column(self.guest_field if guest and self.guest_field else self.field)

    def is_limited(self, record: TrialRecord, role: Role) -> bool:
        """Return whether the measurement that holds the figure is client-limited or link-limited."""
        return bool(self.limits & record.limits(role))


THROUGHPUT = Metric(
    "throughput", "1/s", True, (Loop.CLOSED,), "throughput_rps", limits=CLOSED_LOOP_LIMITS, is_primary=True
)
TAIL = Metric(
    "tail", "µs", False, (Loop.OPEN,), "response_time_p99_us", limits=OPEN_LOOP_LIMITS,
    percentile=0.99, is_primary=True,
)  # fmt: skip
LATENCY_P99 = Metric(
    "latency_p99", "µs", False, (Loop.CLOSED,), "service_time_p99_us", limits=CLOSED_LOOP_LIMITS, percentile=0.99
)
CPU = Metric("cpu", "µs", False, (Loop.CLOSED, Loop.OPEN), "server_cpu_us_per_request", is_per_answer=True)
HOST_CPU = Metric(
    "host_cpu", "µs", False, (Loop.CLOSED, Loop.OPEN), "server_cpu_us_per_request", "host_cpu_us_per_request",
    "machine_cpu_us_per_request", is_per_answer=True,
)  # fmt: skip

METRICS: Mapping[str, Metric] = {metric.name: metric for metric in (THROUGHPUT, TAIL, LATENCY_P99, CPU, HOST_CPU)}

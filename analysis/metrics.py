"""What is compared: each metric with its columns, its direction, its kind of loop and the gates that limit it."""

from __future__ import annotations

from dataclasses import dataclass, field

CLOSED = "closed"  # users wait for the answer before they ask again: the server sets the rate
OPEN = "open"  # requests are sent at a rate, whatever the server does

Limits = dict[str, frozenset[str]]

# Where a figure comes from: the tool (siege, vegeta) or its twin (h2load, oha), and the gates that say that
# the client or the link, not the server, set the pace there.
LIMITING: Limits = {
    "tool": frozenset({"client-saturated", "link-bound"}),
    "twin": frozenset({"twin-client-saturated", "link-bound"}),
}
# Under an open loop a client that lags also changes the load and waits for itself.
OPEN_LIMITING: Limits = {
    "tool": LIMITING["tool"] | {"client-starved", "rate-not-reached"},
    "twin": LIMITING["twin"] | {"twin-client-starved", "rate-not-reached"},
}


@dataclass(frozen=True)
class Metric:
    """`columns` and `guest_columns` map a source (`tool`, `twin`) to a column of trials.csv.

    `loops`: the loops under which the figure says something about the server. `limits`: per source the gates
    that distort it; none where the client's pace does not matter.
    """

    name: str
    label: str
    unit: str
    higher_is_better: bool
    loops: tuple[str, ...]
    columns: dict[str, str]
    guest_columns: dict[str, str] = field(default_factory=dict)
    limits: Limits = field(default_factory=dict)
    note: str = ""

    @property
    def open_only(self) -> bool:
        """True when it is a figure of open loops alone."""
        return self.loops == (OPEN,)

    def column(self, source: str, *, guest: bool) -> str:
        """The column that holds this metric for that source on that side."""
        return (self.guest_columns if guest and self.guest_columns else self.columns)[source]


def loop_of(offered_load: str) -> str:
    """The kind of loop of an `offered_load`: `closed:10` is closed, `rate:2000` and `share:0.7` are open."""
    return CLOSED if offered_load.startswith("closed:") else OPEN


_CPU = {"tool": "server_cpu_us_per_request", "twin": "twin_server_cpu_us_per_request"}
_HOST_CPU = {"tool": "host_cpu_us_per_request", "twin": "twin_host_cpu_us_per_request"}

THROUGHPUT = Metric(
    "throughput", "requests per second", "1/s", True, (CLOSED,),
    {"tool": "throughput_rps", "twin": "twin_throughput_rps"}, limits=LIMITING,
)  # fmt: skip
TAIL = Metric(
    "tail", "p99 response time (open loop)", "µs", False, (OPEN,),
    {"tool": "response_time_p99_us", "twin": "twin_response_time_p99_us"}, limits=OPEN_LIMITING,
    note="the 99th percentile of each trial, counted from the intended send: waiting caused by a stall is in it",
)  # fmt: skip
LATENCY_P99 = Metric(
    "latency_p99", "p99 latency (closed-loop)", "µs", False, (CLOSED,),
    {"twin": "service_time_p99_us"}, limits=LIMITING,
    note="service time under a fixed number of users: a closed loop hides stalls, so this is no open-loop tail",
)  # fmt: skip
CPU = Metric(
    "cpu", "server CPU per request", "µs", False, (CLOSED, OPEN), _CPU,
    note="CPU of the server's processes as the SUT itself accounts it",
)  # fmt: skip
HOST_CPU = Metric(
    "host_cpu", "host CPU per request", "µs", False, (CLOSED, OPEN), _CPU, _HOST_CPU,
    note="QEMU and vhost on the KVM host, with the guest's whole kernel, against the server's processes on metal",
)  # fmt: skip

METRICS = (THROUGHPUT, TAIL, LATENCY_P99, CPU, HOST_CPU)

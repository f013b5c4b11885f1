"""What is compared: each metric with its columns, its direction and the gates that limit it."""

from __future__ import annotations

from dataclasses import dataclass, field

# Where a figure comes from: the tool (siege) or its twin (h2load), and the gates that say that the
# client or the link, not the server, set the pace there.
LIMITING: dict[str, frozenset[str]] = {
    "tool": frozenset({"client-saturated", "link-bound"}),
    "twin": frozenset({"twin-client-saturated", "link-bound"}),
}


@dataclass(frozen=True)
class Metric:
    """`columns` and `guest_columns` map a source (`tool`, `twin`) to a column of trials.csv."""

    name: str
    label: str
    unit: str
    higher_is_better: bool
    columns: dict[str, str]
    guest_columns: dict[str, str] = field(default_factory=dict)
    paced: bool = True  # whether a saturated client or link distorts it
    note: str = ""

    def column(self, source: str, *, guest: bool) -> str:
        """The column that holds this metric for that source on that side."""
        return (self.guest_columns if guest and self.guest_columns else self.columns)[source]


_CPU = {"tool": "server_cpu_us_per_request", "twin": "twin_server_cpu_us_per_request"}
_HOST_CPU = {"tool": "host_cpu_us_per_request", "twin": "twin_host_cpu_us_per_request"}

THROUGHPUT = Metric(
    "throughput", "requests per second", "1/s", True,
    {"tool": "throughput_rps", "twin": "twin_throughput_rps"},
)  # fmt: skip
LATENCY_P99 = Metric(
    "latency_p99", "p99 latency (closed-loop)", "µs", False, {"twin": "service_time_p99_us"},
    note="service time under a fixed number of users: a closed loop hides stalls, so this is no open-loop tail",
)  # fmt: skip
CPU = Metric(
    "cpu", "server CPU per request", "µs", False, _CPU, paced=False,
    note="CPU of the server's processes as the SUT itself accounts it",
)  # fmt: skip
HOST_CPU = Metric(
    "host_cpu", "host CPU per request", "µs", False, _CPU, _HOST_CPU, paced=False,
    note="QEMU and vhost on the KVM host, with the guest's whole kernel, against the server's processes on metal",
)  # fmt: skip

METRICS = (THROUGHPUT, LATENCY_P99, CPU, HOST_CPU)

"""A trial: the plan, each tool's measurement, the machines' conditions, and the gates' findings."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from pydantic import ConfigDict, TypeAdapter

from vmtoll.model.density import DensityFigures
from vmtoll.model.finding import ACCIDENTS, Code, Finding, Role, Validity, validity
from vmtoll.model.hardware import Hardware
from vmtoll.model.load import Load
from vmtoll.model.machine_cpu import MachineCpu
from vmtoll.model.message import WithText
from vmtoll.model.operation import OperationTimes
from vmtoll.model.percentiles import FEWEST
from vmtoll.model.table import Described, Part, column, columns, columns_of, nested

METAL = "metal"
# Environments that are a container on a host of the inventory: with its own network card (veth on a bridge), or
# with the host's network.
CONTAINER, CONTAINER_HOST_NETWORK = "container", "container-host-network"
CONTAINERS = (CONTAINER, CONTAINER_HOST_NETWORK)
NO_GUESTS = (METAL, *CONTAINERS)


class MachineKind(StrEnum):
    """What the machine of an environment is."""

    METAL = "metal"
    PROCESS = "process"
    CONTAINER = "container"
    GUEST = "guest"


def kind_of(machine: str, declared: Mapping[str, str] = MappingProxyType({})) -> MachineKind:
    """The kind of the machine that inventories name by this environment: the one that is declared for it. Without a
    declaration, whatever is neither metal nor a container is a guest, by the name of its profile.
    """
    if machine in declared:
        return MachineKind(declared[machine])
    if machine == METAL:
        return MachineKind.METAL
    return MachineKind.CONTAINER if machine in CONTAINERS else MachineKind.GUEST


class Accelerator(WithText):
    """What ran a machine's code: NONE (metal), KVM, or TCG (software emulation)."""

    NONE = "none"
    KVM = "kvm", "KVM"
    TCG = "tcg", "TCG (emulation)"
    UNKNOWN = "unknown"


def is_shape_only(accelerator: Accelerator, hardware: Hardware) -> bool:
    """Return whether a machine's figures show only that the path works, not what it costs: software emulated its CPU or
    its host's CPU.
    """
    return accelerator is Accelerator.TCG or hardware is Hardware.EMULATED


class ClientPlace(StrEnum):
    """Where the load tool ran: REMOTE on the clients, LOCALHOST on the machine under test."""

    REMOTE = "remote"
    LOCALHOST = "localhost"


@dataclass(frozen=True)
class Arm:
    """One side of a comparison: an environment and its replicate."""

    environment: str = column("metal, a container, a guest's profile (kvm-…), or a change or an operation of one")
    replicate: int = column(
        "1, or 2 for the A/A control: the same environment measured again in the block", "none", least=1, default=1
    )

    def __str__(self) -> str:
        return self.environment if self.replicate == 1 else f"{self.environment}#{self.replicate}"

    @property
    def is_control(self) -> bool:
        """Return whether it is a second replicate, which shows the noise floor."""
        return self.replicate > 1


@dataclass(frozen=True)
class Scenario:
    """A server under a load, compared between arms."""

    server: str = column("server under measurement")
    workload: str = column("what was sent, and how")
    load: Load = nested()

    @property
    def sort_key(self) -> tuple[Any, ...]:
        """Sort key: by server, closed loops first, then from light to heavy load."""
        return (self.server, self.load.sort_key, self.workload)


@dataclass(frozen=True)
class TrialSpec:
    """A scenario on an arm and its place in the schedule; block, order and boot count from 1."""

    block: int
    order: int
    arm: Arm
    scenario: Scenario
    boot: int = 1

    @property
    def key(self) -> tuple[int, int]:
        return self.block, self.order

    def name(self, attempt: int) -> str:
        return trial_name(self.block, self.order, attempt)


def trial_name(block: int, order: int, attempt: int) -> str:
    """`b001-o003-a1`: the name of a trial's files."""
    return f"b{block:03d}-o{order:03d}-a{attempt}"


def figure(description: str, **options: Any) -> Any:
    """A field that may be missing, with its column of trials.csv; its name contains its unit."""
    return column(description, default=None, **options)


_SERVICE_TIME = (
    "service time, counted from the actual send; hides stalls. "
    "Mail that is sent: the delay in the server until it is in the mailbox"
)
_RESPONSE_TIME = "response time of an open loop, counted from the intended send time"
_LATENESS = "tool's own delay in an open loop; it is part of the response time"
_SERVER_TIME = (
    "time inside the server, from noticing a request to handing its response to the kernel. By the server's own "
    "histogram (buckets of half an octave, interpolated); empty for a server without one"
)
_LOOP_LAG = (
    "length of the turns of the server's event loop: how long the next event may wait. By the server's own histogram; "
    "empty for a server without one"
)
_STEAL = "CPU time that the SUT's hypervisor took away, of the CPUs that the server may use"
_BACKGROUND = (
    "CPU time of processes other than the server and the load generator on the machine under test, of the CPUs that "
    "the server may use"
)
_HOST_BACKGROUND = (
    "CPU time of processes outside the measurement on the host's CPUs under the SUT; empty for a SUT without a host"
)
_MHZ_SPREAD = "how far the CPUs' clock rate sank below its highest, if governed"
_CLOCK_STEP = "largest step of any machine's wall clock"
_WARMUP_SLOWER = "how much slower the first third was than the rest; 0 if by chance"
_CONNECT = "time to open a connection, of tools that log it (oha)"
_FIRST_RESPONSE = "time from the open connection to the first byte of the body, of tools that log it (oha)"
_REPLIES = "the reply rates that a ramp's tool reads every 5 s; empty for a shorter load"
# Figures that only some load tools print, as columns of trials.csv → what they are.
TOOL_FIGURES = {
    "response_time_mean_ms": "mean response time in the tool's own summary (siege: 10 ms ticks)",
    "longest_ms": "longest transaction in the tool's own summary",
    "shortest_ms": "shortest transaction in the tool's own summary",
    "connect_mean_ms": f"closed loop: mean {_CONNECT}",
    "connect_max_ms": f"closed loop: longest {_CONNECT}",
    "connect_min_ms": f"closed loop: shortest {_CONNECT}",
    "first_response_mean_ms": f"closed loop: mean {_FIRST_RESPONSE}",
    "first_response_max_ms": f"closed loop: longest {_FIRST_RESPONSE}",
    "first_response_min_ms": f"closed loop: shortest {_FIRST_RESPONSE}",
    "connection_rps": "ramp: connections per second that the tool opened",
    "request_rps": "ramp: requests per second that the tool sent",
    "reply_rps_min": f"lowest of {_REPLIES}",
    "reply_rps_mean": f"mean of {_REPLIES}",
    "reply_rps_max": f"highest of {_REPLIES}",
    "reply_rps_stddev": f"standard deviation of {_REPLIES}",
}
_STATISTICS = {
    "mean": "mean", "p50": "median", "p90": "90th percentile of the", "p99": "99th percentile of the",
    "p999": "99.9th percentile of the", "max": "longest",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Times:
    """Statistics of the requests' times, in µs; None: not measured, or of too few requests."""

    mean_us: float | None = None
    p50_us: float | None = None
    p90_us: float | None = None
    p99_us: float | None = None
    p999_us: float | None = None
    max_us: float | None = None

    def of(self, statistic: str) -> float | None:
        """A statistic by its name: `mean`, `p50`, …, `p999`, `max`."""
        value: float | None = getattr(self, f"{statistic}_us")
        return value


def _times(kind: str, what: str, *statistics: str) -> list[Described]:
    """The columns of a field of Times: its statistics of `what`."""
    return [
        Described(doc=f"{_STATISTICS[each]} {what}", name=f"{kind}_{each}_us", source=f"{kind}.{each}_us")
        for each in statistics
    ]


def _tool_figure(name: str, doc: str) -> Described:
    return Described(doc=doc, name=name, source="tool_figures", kind="number", value=lambda figures: figures.get(name))


@dataclass(frozen=True, kw_only=True)
class Offered:
    """The load of this scenario, resolved to numbers for this machine."""

    users: int | None = figure("simulated users of a closed loop")
    offered_rps: float | None = figure("requests per second that the open loop meant to send")
    capacity_rps: float | None = figure(
        "capacity of which the load is a share: the closed-loop rate of the side that `shares_of` names, a mean of "
        "several trials"
    )
    capacity_low_rps: float | None = figure("lower end of its 95% interval")
    capacity_high_rps: float | None = figure("upper end of its 95% interval")
    capacity_trials: int | None = figure("trials that it is the mean of")
    deadline_ms: float | None = figure("deadline of the goodput")
    arrivals: str | None = figure(
        "open loop: poisson (random) or constant (even intervals); older runs: constant", unit="1"
    )
    arrivals_seed: int | None = figure("what the schedule of random arrivals was drawn from; empty for even ones")


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One tool's measured load."""

    role: Role
    tool: str = column("load tool")
    histogram: str | None = None  # file of its latencies in the run's folder, None where it logs none
    requests: int | None = figure("requests planned")
    duration_s: float | None = figure("wall clock around the tool; several clients: first start to last end")
    transactions: int | None = figure("responses that the tool counted")
    successful: int | None = figure("requests answered with success")
    failed: int | None = figure("requests that failed")
    availability_pct: float | None = figure("share of requests that the tool calls successful", most=100)
    transferred_mb: float | None = figure("bytes of the responses, 10⁶ bytes")
    throughput_rps: float | None = figure(
        "responses per second of wall clock. Closed loop of a tool that logs its requests: of the time in which all "
        "users had one in flight. Open loop: of the time from the first intended send to the last response. Mail that "
        "is sent: messages found in mailboxes, per second until the queue was empty"
    )
    throughput_mb_per_s: float | None = figure("10⁶ bytes per second of wall clock")
    goodput_rps: float | None = figure(
        "correct responses within the deadline, per second of the time in which the requests were to be sent"
    )
    concurrency: float | None = figure("requests in flight on average")
    blackout_ms: float | None = figure(
        "experiments with `during`: the longest time without an answer, operation or not"
    )
    brownout_s: float | None = figure(
        "with and without an operation: from its beginning to the end of the last window of "
        "100 requests that is late: its p99 above the deadline and above all windows' before, or requests lost"
    )
    late_answers: int | None = figure(
        "with and without an operation: answers later than a second after their intended send"
    )
    tool_figures: Mapping[str, float] = columns(
        *(_tool_figure(name, doc) for name, doc in TOOL_FIGURES.items()), default_factory=dict
    )
    service_time: Times = columns(
        *_times("service_time", _SERVICE_TIME, "mean", "p50", "p90", "p99", "p999"), default=Times()
    )
    response_time: Times = columns(
        *_times("response_time", _RESPONSE_TIME, "mean", "p50", "p90", "p99", "p999", "max"), default=Times()
    )
    lateness: Times = columns(*_times("lateness", _LATENESS, "p99", "max"), default=Times())
    dropped_figures: int | None = figure(
        "impossible values of the tool's summary that were left out: `nan`, `inf`, a percentile of fewer "
        "requests than it needs, percentiles that do not rise"
    )
    client_cpu_s: float | None = figure("CPU of the tool, of all clients")
    client_cpu_share: float | None = figure("the tool's CPU, of its threads' limit; of the client nearest to it")
    start_spread_ms: float | None = figure(
        "several clients: how far apart their first requests were (their tools' starts, where the tool logs "
        "no requests); empty for one"
    )
    server_cpu_user_s: float | None = figure("user CPU of the server's processes during the tool")
    server_cpu_system_s: float | None = figure("system CPU of the server's processes during the tool")
    server_cpu_us_per_request: float | None = figure("CPU of the server's processes per request, by the SUT's account")
    host_cpu_s: float | None = figure(
        "guests: CPU of QEMU and vhost threads on the KVM host during the tool; containers: of their control group; "
        "empty for a tool on the guest or in the container itself"
    )
    host_cpu_us_per_request: float | None = figure("guests, containers: the same per request")
    machine_cpu: MachineCpu | None = None  # that the physical machine spent on the arm; None where it is not seen
    server_time: Times = columns(*_times("server_time", _SERVER_TIME, "p50", "p99", "p999"), default=Times())
    server_loop_lag: Times = columns(*_times("server_loop_lag", _LOOP_LAG, "p50", "p99", "p999"), default=Times())
    steal_pct: float | None = figure(_STEAL)
    host_steal_pct: float | None = figure(
        "CPU time that the host's own hypervisor took away, of the host's CPUs under the SUT; empty for a SUT without "
        "a host"
    )
    background_cpu_pct: float | None = figure(_BACKGROUND)
    host_background_cpu_pct: float | None = figure(_HOST_BACKGROUND)
    cpus: int | None = figure(
        "CPUs of the machine under test that `steal_pct` and `background_cpu_pct` are shares of; several machines: of "
        "the one with most background CPU"
    )
    host_cpus: int | None = figure("CPUs of the host that `host_steal_pct` and `host_background_cpu_pct` are shares of")
    cpu_mhz_spread_pct: float | None = figure(_MHZ_SPREAD, most=100)
    clock_step_ms: float | None = figure(_CLOCK_STEP)
    warmup_slower_pct: float | None = figure(_WARMUP_SLOWER, most=100)
    retransmitted_segments: int | None = figure("TCP segments sent again, client and SUT together")
    retransmission_timeouts: int | None = figure(
        "times that TCP waited in vain for an acknowledgement, client and SUT together: timeouts and loss probes"
    )

    @property
    def server_cpu_s(self) -> float | None:
        """CPU time of the server's processes, computed from the time per request where the record lacks the sum."""
        if self.server_cpu_user_s is not None and self.server_cpu_system_s is not None:
            return self.server_cpu_user_s + self.server_cpu_system_s
        if self.server_cpu_us_per_request is None or self.transactions is None:
            return None
        return self.server_cpu_us_per_request * self.transactions / 1e6

    @property
    def machine_cpu_us_per_request(self) -> float | None:
        """CPU of the physical machine per request; None where it is not seen, or nothing was answered."""
        if self.machine_cpu is None or not self.transactions:
            return None
        return self.machine_cpu.total_s * 1e6 / self.transactions

    @property
    def logs_service_times(self) -> bool:
        return self.service_time.p50_us is not None

    def times(self, kind: str) -> Times:
        """Times of a kind: `service_time`, `response_time`, `lateness`, `server_time`, `server_loop_lag`."""
        kept: Times = getattr(self, kind)
        return kept

    def column(self, name: str) -> float | None:
        """The figure in a column of trials.csv, by its name without the prefix of the cross-check."""
        if name in TIME_COLUMNS:
            kind, statistic = TIME_COLUMNS[name]
            return self.times(kind).of(statistic)
        value: float | None = self.tool_figures.get(name) if name in TOOL_FIGURES else getattr(self, name)
        return value

    def with_columns(self, figures: Mapping[str, Any]) -> "Measurement":
        """The measurement with these figures, by the names of their columns."""
        plain = {
            name: value for name, value in figures.items() if name not in TIME_COLUMNS.keys() | TOOL_FIGURES.keys()
        }
        printed = {name: figures[name] for name in TOOL_FIGURES if figures.get(name) is not None}
        kinds: dict[str, dict[str, float | None]] = {}
        for name, (kind, statistic) in TIME_COLUMNS.items():
            if name in figures:
                kinds.setdefault(kind, {})[f"{statistic}_us"] = figures[name]
        changed: dict[str, Any] = {kind: replace(self.times(kind), **values) for kind, values in kinds.items()}
        return replace(self, **plain, **changed, tool_figures={**self.tool_figures, **printed})


# Column of trials.csv → its kind of times and its statistic.
TIME_COLUMNS = {
    each.name: (kind, statistic.removesuffix("_us"))
    for each in columns_of(Measurement)
    for kind, _, statistic in [each.source.partition(".")]
    if statistic
}


@dataclass(frozen=True, kw_only=True)
class Resources:
    """Resources that the server and its machines used during the primary measurement."""

    memory_pss_kib: int | None = figure("peak proportional set size of the server's processes")
    processes: int | None = figure("most processes that the server had")
    server_cores: int | None = figure("cores that the server may use: all of the machine's, or those of the workload")
    read_mb: float | None = figure("10⁶ bytes that the SUT's kernel read from its disks during the tool")
    host_read_mb: float | None = figure("guests: the same of the KVM host")
    host_energy_j: float | None = figure(
        "energy of the processors and memory of the physical machine under the server during the tool, by RAPL. "
        "Other processes are included; empty where the machine has no such counter"
    )
    host_exits_per_request: float | None = figure(
        "guests: how often KVM took over from the guest, per request; empty where KVM counts none, as under emulation"
    )
    host_vcpu_cpu_us_per_request: float | None = figure(
        "guests: CPU per request of the threads of the virtual CPUs, with what KVM or the emulator does for them"
    )
    host_qemu_cpu_us_per_request: float | None = figure("guests: the same of QEMU's other threads (devices)")
    host_vhost_cpu_us_per_request: float | None = figure("guests: the same of the kernel's vhost threads (network)")
    server_wait_us_per_request: float | None = figure(
        "time per request that the server's threads waited for a CPU of their machine, all threads together: able to "
        "run, while something else ran. Without threads that ended during the tool"
    )
    host_vcpu_wait_us_per_request: float | None = figure(
        "guests: the same of the threads of the virtual CPUs on the KVM host (CPU ready); in a guest it is steal"
    )
    host_qemu_wait_us_per_request: float | None = figure("guests: the same of QEMU's other threads (devices)")
    host_iothread_wait_us_per_request: float | None = figure("guests: the same of QEMU's I/O threads (disks)")
    host_vhost_wait_us_per_request: float | None = figure("guests: the same of the kernel's vhost threads (network)")
    host_irqs_per_request: float | None = figure("guests: all interrupts of the KVM host, per request")
    guest_irqs_per_request: float | None = figure("guests: interrupts that the guest itself counted, per request")
    steal_pct: float | None = figure(_STEAL)
    link_used_pct: float | None = figure(
        "share of the client's line rate; several clients: of the busiest; empty for an unshaped or unused link"
    )
    neighbour_rps: float | None = figure(
        "answers per second of the neighbour, a further guest on the host; 0 for no load, empty without a neighbour"
    )


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """Conditions on the machines during the primary measurement."""

    client_background_cpu_pct: float | None = figure(
        "CPU time of processes other than the load generator on the client's CPUs; several clients: the worst. "
        "Empty when the client is on the machine under test"
    )
    background_cpu_pct: float | None = figure(_BACKGROUND)
    host_background_cpu_pct: float | None = figure(_HOST_BACKGROUND)
    cpu_mhz_spread_pct: float | None = figure(_MHZ_SPREAD, most=100)
    guests_paused: int | None = figure(
        "idle guests on the physical machine under test, paused during the trial; empty where none idled there"
    )
    clock_step_ms: float | None = figure(_CLOCK_STEP)
    retransmitted_pct: float | None = figure("TCP segments sent again, of client or SUT, whichever is more")
    listen_drops: int | None = figure("connections that the SUT's kernel turned away at a full listen queue")
    ports_used_pct: float | None = figure(
        "the client's local ports in use or in TIME_WAIT toward the server, of all; several clients: the worst"
    )
    longest_gap_ms: float | None = figure(
        "longest time without any data at the client, ±50 ms (loads under 2 s: ±20 ms); several: the worst"
    )
    warmup_slower_pct: float | None = figure(_WARMUP_SLOWER, most=100)


@dataclass(frozen=True, kw_only=True)
class Counts:
    """Counts during the load: mail from its mailboxes, response bodies from their digests."""

    messages_accepted: int | None = figure("mail: messages that the server accepted")
    messages_delivered: int | None = figure("mail: how many of them were in a mailbox when the queue was empty")
    messages_lost: int | None = figure("mail: how many were found in none")
    messages_doubled: int | None = figure("mail: how many copies too many were found")
    bodies_checked: int | None = figure("responses whose digest was compared with the manifest's")
    bodies_wrong: int | None = figure("of these, how many differed")


CROSSCHECK = "crosscheck_"
# A figure that both the primary tool and the whole trial have is the same: one column.
_OF_TRIAL = [each.name for group in (Resources, Conditions, Counts) for each in columns_of(group)]


def _codes_text(findings: Sequence[Finding]) -> str:
    codes = [f"{each.code}@crosscheck" if each.role is Role.CROSSCHECK else str(each.code) for each in findings]
    return " ".join(dict.fromkeys(codes))


@dataclass(frozen=True, kw_only=True)
class TrialRecord:
    """One attempt at a trial, a line of trials.jsonl."""

    __pydantic_config__ = ConfigDict(extra="forbid", allow_inf_nan=False)

    run_id: str = column("the run that the trial belongs to")
    block: int = column("block, from 1; each scenario occurs once in a block", "none", least=1)
    order: int = column(
        "place within the block, from 1; a scenario's environments follow each other, reversed in every other block",
        "none", least=1,
    )  # fmt: skip
    attempt: int = column("attempt at this trial, from 1", "none", least=1)
    arm: Arm = nested()
    accelerator: Accelerator = column(
        "what ran the machine's code: none (metal, container), kvm, tcg (software emulation)"
    )
    scenario: Scenario = nested(unit="none")
    client: ClientPlace = column(
        "where the load tool ran: remote (on the clients) or localhost (on the machine under test)"
    )
    clients: int = column(
        "machines that sent the load together; mail and a ramp are sent by the first client alone", "none", least=1
    )
    guests: int = column("machines under test that shared the load; their CPU and memory are added up", "none", least=1)
    started_at: str = column("start of the measured load, UTC, ISO 8601", kind="datetime")
    boot: int = column(
        "boot of the machines under test in this run, from 1; the blocks of a boot follow each other", "none", least=1,
        before="order", default=1,
    )  # fmt: skip
    offered: Offered = nested(default=Offered())
    # The primary one first, empty where it failed.
    measurements: tuple[Measurement, ...] = nested(
        Part(of=Measurement, source="primary", without=_OF_TRIAL),
        Part(of=Measurement, source="crosscheck", prefix=CROSSCHECK, lead="cross-check: "),
        default=(),
    )
    resources: Resources = nested(default=Resources())
    conditions: Conditions = nested(default=Conditions())
    counts: Counts = nested(default=Counts())
    findings: tuple[Finding, ...] = columns(
        Described(doc="whether the trial may be used: valid, suspect or invalid", name="validity", source="validity"),
        Described(
            doc="codes of the checks that fired, separated by spaces; code@crosscheck where it concerns only the "
            "cross-check. trials.jsonl has machine, process, value and limit of each",
            value=_codes_text,
        ),
        default=(),
    )
    fixed_cost_s: float = column(
        "wall clock of the trial less the time under load", required=False, before="validity", default=0.0
    )
    loaded_s: float | None = column(
        "wall clock of its loads: warm-up, measurements, a capacity measured for it", before="validity", default=None
    )
    hardware: Hardware = column(
        "what the host of the machine runs on: native (the hardware itself), nested (another hypervisor), pvm (KVM's "
        "module kvm_pvm, without the CPU's virtualization), emulated (a CPU emulated in software). Unknown: not "
        "recorded, or its sources do not tell", before="server",
        default=Hardware.UNKNOWN,
    )  # fmt: skip
    release: str = column(
        "operating system of the machine, as Debian 13; unknown: the run does not record it", before="server",
        default="unknown",
    )  # fmt: skip
    operation: OperationTimes | None = None  # of an arm with an operation
    density: DensityFigures | None = None  # what each guest got, in an experiment with `density`

    @property
    def key(self) -> tuple[int, int]:
        return self.block, self.order

    @property
    def name(self) -> str:
        return trial_name(self.block, self.order, self.attempt)

    @property
    def validity(self) -> Validity:
        return validity(self.findings)

    @property
    def codes(self) -> frozenset[Code]:
        return frozenset(finding.code for finding in self.findings)

    @property
    def accidents(self) -> tuple[Finding, ...]:
        """The findings for which vmtoll repeats a trial."""
        return tuple(finding for finding in self.findings if finding.code in ACCIDENTS)

    def measurement(self, role: Role) -> Measurement | None:
        """The measurement with this role; None where there is none."""
        for measurement in self.measurements:  # a generator would double the time, and analysis asks for it often
            if measurement.role is role:
                return measurement
        return None

    @property
    def primary(self) -> Measurement | None:
        return self.measurement(Role.PRIMARY)

    @property
    def crosscheck(self) -> Measurement | None:
        return self.measurement(Role.CROSSCHECK)

    def limits(self, role: Role) -> frozenset[Code]:
        """Codes of the findings that concern a measurement: its own, and those of the whole trial. More users in flight
        than planned are a tool's rounding and limit nothing.
        """
        return frozenset(
            finding.code
            for finding in self.findings
            if finding.role in (role, None) and not (finding.code is Code.LITTLES_LAW and finding.is_above_limit)
        )


_RECORD = TypeAdapter(TrialRecord)


def to_json(record: TrialRecord) -> bytes:
    """One line of trials.jsonl, without the line break; missing and empty fields of measurements are left out."""
    content = _RECORD.dump_python(record, mode="json", exclude_none=True)
    for measured in content["measurements"]:
        for name in [name for name, value in measured.items() if value == {}]:
            del measured[name]
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()


def from_json(line: bytes | str) -> TrialRecord:
    """A line of trials.jsonl. Raises pydantic.ValidationError."""
    return _RECORD.validate_json(line)


def without_thin_percentiles(record: TrialRecord) -> TrialRecord:
    """The record without percentiles of too few requests, which tools print and older records contain."""
    return replace(record, measurements=tuple(map(_without_thin_percentiles, record.measurements)))


def _without_thin_percentiles(measurement: Measurement) -> Measurement:
    requests = measurement.requests if measurement.transactions is None else measurement.transactions
    if requests is None or requests >= max(FEWEST.values()):
        return measurement
    thin = [f"{percentile}_us" for percentile, fewest in FEWEST.items() if requests < fewest]
    kinds = {kind: measurement.times(kind) for kind, _ in TIME_COLUMNS.values()}
    changed: dict[str, Any] = {kind: replace(kept, **dict.fromkeys(thin)) for kind, kept in kinds.items()}
    return replace(measurement, **changed)


def last_attempts(records: Sequence[TrialRecord]) -> list[TrialRecord]:
    """Return the last attempt at each planned trial, in the order of the schedule."""
    last = {record.key: record for record in sorted(records, key=lambda r: (r.key, r.attempt))}
    return [last[key] for key in sorted(last)]

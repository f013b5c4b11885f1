"""Gates: they flag a trial as suspect or invalid. Pure functions; each returns findings, or none.

The fields of a finding, by code. Where `role` is not listed it is None: the finding concerns the whole trial. `tool` is
the load tool that ran when the gate fired. `a -> b`: the reference, then the observed value.

client-saturated     value: share of the CPU time that the tool's threads could have had; limit: 0.85; role, tool,
                     machine: the client; process: the neighbour's tool, if its CPU time is included. Never with one
                     request in flight. Ramp: value: requests for which no descriptor or port was left; limit: requests
                     planned; detail: `unsent`
client-starved       value: background CPU in % of the client's CPUs; limit: 2; role, tool, machine: the client or its
                     host; process: the one that used most
rate-not-reached     value: share of its rate that the client had achieved when it was furthest behind (oha: at its last
                     request), n / (n + rate × delay) for its n requests; limit: 0.98; role, tool, machine: the client;
                     detail: the rate offered to it
client-late          value: p99 of the client's delay in µs; limit: a tenth of the p99 of the response time; role, tool
start-spread         value: ms between the clients' first requests; limit: ms; role, tool
littles-law          value: requests in flight; limit: users of this client × their streams; role: primary; tool,
                     machine: the client
mean-over-p99        value: mean in µs; limit: p99 in µs; role, tool; detail: `service_time` or `response_time`
link-bound           value: % of the line rate; limit: 90; machine
retransmits          value: % of the segments sent; limit: 0.1; tool, machine
listen-drops         value: connections turned away; limit: 0; tool, machine
ports-exhausted      value: % of the local ports; limit: 50; tool, machine; detail: `used/available`
steal                value: % of CPU time; limit: 0.5; machine
background-cpu       value: % of CPU time; limit: 1; tool, machine; process: the one that used most
host-background-cpu  the same for the host's CPUs that the machine under test runs on; machine: the host; detail: the
                     machine under test
frequency-spread     value: % of the highest clock rate; limit: 5; tool, machine
clock-source         tool, machine; detail: `tsc -> hpet`
clock-stepped        value: s, signed; limit: 0.01; tool, machine
warmup-drift         value: % by which the first third was slower; limit: 10; tool, machine: those under test, `a, b`
stalled              value: s without a response; limit: s; tool, machine: those under test, `a, b`
not-cold             value: MB read; limit: 95% of the MB served; machine
sysctl               machine; detail: `name: 4096 -> 128`, several separated by `; `
failed-requests      value: requests without success; limit: 0.1% of those planned (`requests` of the measurement; for a
                     ramp those that were not late): with more the trial is invalid, else suspect; role, tool; detail:
                     `successful/planned`
wrong-body           value: wrong bodies; limit: 0; detail: the first one
lost-mail            value: messages lost or doubled; limit: 0; role: primary; Counts has the figures
fingerprint          machine; process: the server; detail: the keys that differ, or `content_digest: a -> b`, or
                     `TLS cipher: a -> b`: the configured value, and the handshake's; for a certificate its digests on
                     the reference machine and on this one
capacity-unknown, timed-out, tool-failed, server-failed, host-lost
                     detail: the message; process: `cleanup` if the error came during the cleanup of a failed trial;
                     machine: the tool's client; the server's machine; the machine that was lost, or its host if that
                     was lost as well. None if unknown, and for capacity-unknown
"""

import math
from collections.abc import Mapping, Sequence

from vmtoll.model.facts import covers
from vmtoll.model.finding import Code, Finding, Role
from vmtoll.model.payload import (
    ClockSources,
    Difference,
    Fingerprint,
    HostedMachine,
    OfferedRate,
    Ports,
    Successes,
    Sysctls,
    TimesKind,
    Unsent,
    WrongBody,
)
from vmtoll.model.transport import CIPHER, PROTOCOL, Transport
from vmtoll.model.trial import Counts, Measurement
from vmtoll.statistics.thresholds import (
    BACKGROUND_PCT,
    BUSY,
    CLOCK_STEP_S,
    COLD_SHARE,
    RATE_REACHED,
    STEAL_PCT,
)
from vmtoll.trial.background_cpu import BackgroundCpu

LINK_PCT = 90.0
LITTLE_TOLERANCE = 0.05
# The tool's own work between an answer and its user's next request: h2load took 2 to 2.5 µs; others were not measured.
# It makes a difference between two servers or machines look smaller, so MAX_OWN_WORK limits how much it may explain.
OWN_WORK_S = 4e-6
MAX_OWN_WORK = 0.1
LATE_SHARE = 0.1
SPREAD_S = 0.050
SPREAD_SHARE = 0.02
# The kernel counts a CPU's idle and stolen time in ticks of 10 ms: a single tick is no finding. It counts a process's
# CPU time in nanoseconds. The daemons of a machine at rest use a few ms during any load; in a load of 0.6 s, AT_REST_S
# still lets the gate see 3% (18 ms).
TICK_S = 0.010
AT_REST_S = 0.015
CLIENT_BACKGROUND_PCT = 2.0
CLIENT_IDLE_PCT = 15.0
RETRANSMITTED_PCT = 0.1
PORTS_PCT = 50.0  # connect() tries every second port first; beyond half of them it scans all of these before the others
SPREAD_PCT = 5.0
SLOWER_PCT = 10.0
STALL_S = 0.25
# A gap in which this many responses were due is not explained by a low rate.
STALL_RESPONSES = 20
FAILED_SHARE = 0.001
FINGERPRINT_KEYS = ("binary_sha256", "config_sha256", "workers")


def hidden_pct(load_s: float) -> float:
    """CPU time, in percent of one CPU, that background processes and the hypervisor together may take from the machine
    under test during a load of `load_s` without a finding.
    """
    tick_pct = 100 * TICK_S / load_s
    return max(BACKGROUND_PCT, 100 * AT_REST_S / load_s) + max(STEAL_PCT, tick_pct)


def client_saturated(
    share: float | None,
    role: Role,
    tool: str,
    machine: str,
    neighbour_tool: str | None = None,
    *,
    in_flight: int | None = None,
) -> list[Finding]:
    """The tool used more than 85% of the CPU time that its threads could have had.

    `in_flight`: a closed loop's requests in flight. With only one there is no finding: no other request waits for the
    client, so the result contains only its CPU time per request, which the measurement records.
    """
    if share is None or share <= BUSY or in_flight == 1:
        return []
    return [Finding(Code.CLIENT_SATURATED, share, BUSY, role, tool, machine, neighbour_tool)]


def unsent(requests: int, planned: int, tool: str) -> list[Finding]:
    """A ramp's tool had no descriptor or port left for some requests."""
    return [Finding(Code.CLIENT_SATURATED, requests, planned, Role.PRIMARY, tool, payload=Unsent())] if requests else []


def client_starved(background: BackgroundCpu, role: Role, tool: str, machine: str) -> list[Finding]:
    """Background processes took CPU on the client, and it had none to spare."""
    if (
        background.share_pct <= CLIENT_BACKGROUND_PCT
        or background.spent_s <= AT_REST_S
        or background.idle_pct >= CLIENT_IDLE_PCT
    ):
        return []
    return [
        Finding(
            Code.CLIENT_STARVED, background.share_pct, CLIENT_BACKGROUND_PCT, role, tool, machine, background.process
        )
    ]


def rate_not_reached(
    requests: int, rate_rps: float, most_late_us: float, role: Role, tool: str, machine: str
) -> list[Finding]:
    """An open loop fell behind by more than 2% of its requests. `most_late_us`: the delay of its most delayed request.

    The delay of the last request is not enough if the tool reports each one's: a client that paused midway and caught
    up sent a different load.
    """
    reached = requests / (requests + rate_rps * max(most_late_us, 0) / 1e6)
    if reached >= RATE_REACHED:
        return []
    offered = OfferedRate(rate_rps)
    return [Finding(Code.RATE_NOT_REACHED, reached, RATE_REACHED, role, tool, machine, payload=offered)]


def client_late(measurement: Measurement) -> list[Finding]:
    """At the 99th percentile the client's own delay is more than a tenth of the response time, which includes it."""
    late_us, p99_us = measurement.lateness.p99_us, measurement.response_time.p99_us
    if late_us is None or p99_us is None or late_us <= LATE_SHARE * p99_us:
        return []
    return [Finding(Code.CLIENT_LATE, late_us, LATE_SHARE * p99_us, measurement.role, measurement.tool)]


def start_spread(spread_s: float | None, wall_s: float, role: Role, tool: str) -> list[Finding]:
    """The clients' first requests were more than 50 ms, and more than 2% of the load's duration, apart."""
    limit_s = max(SPREAD_S, SPREAD_SHARE * wall_s)
    if spread_s is None or spread_s <= limit_s:
        return []
    return [Finding(Code.START_SPREAD, spread_s * 1000, limit_s * 1000, role, tool)]


def littles_law(
    concurrency: float | None, users: int, requests: int, elapsed_s: float, tick_s: float, tool: str, machine: str
) -> list[Finding]:
    """The mean number of requests in flight is not the number of users, as it must be in a closed loop without pauses.

    A tool that counts time in ticks of `tick_s` only samples it, so a deviation within two standard deviations of that
    sample is no finding. Neither is a shortfall that the tool's own work on each request explains.
    """
    if concurrency is None or elapsed_s <= 0:
        return []
    noise = max(LITTLE_TOLERANCE, 2 * math.sqrt(tick_s / (users * elapsed_s)))
    own_work = min(MAX_OWN_WORK, OWN_WORK_S * requests / (users * elapsed_s))
    if -max(noise, own_work) <= concurrency / users - 1 <= noise:
        return []
    return [Finding(Code.LITTLES_LAW, concurrency, users, Role.PRIMARY, tool, machine)]


def mean_over_p99(measurement: Measurement) -> list[Finding]:
    """The mean is above the 99th percentile: less than 1% of the requests took most of the time."""
    figures = {
        TimesKind("service_time"): (measurement.service_time.mean_us, measurement.service_time.p99_us),
        TimesKind("response_time"): (measurement.response_time.mean_us, measurement.response_time.p99_us),
    }
    return [
        Finding(Code.MEAN_OVER_P99, mean, p99, measurement.role, measurement.tool, payload=kind)
        for kind, (mean, p99) in figures.items()
        if mean is not None and p99 is not None and mean > p99
    ]


def failed_requests(
    planned: int, transactions: int, successful: int, failed: int, role: Role, tool: str
) -> list[Finding]:
    """Not every planned request succeeded; with more than 0.1% of failures the trial is invalid."""
    if failed == 0 and transactions == successful == planned:
        return []
    missing, tolerated = max(failed, planned - successful), math.floor(FAILED_SHARE * planned)
    return [Finding(Code.FAILED_REQUESTS, missing, tolerated, role, tool, payload=Successes(successful, planned))]


def link_bound(used_pct: float, machine: str) -> list[Finding]:
    """The load used more than 90% of the line rate, so equal rates are no evidence of low overhead."""
    return _above(Code.LINK_BOUND, used_pct, LINK_PCT, machine)


def steal(steal_pct: float | None, machine: str) -> list[Finding]:
    """The machine's hypervisor stole more than 0.5% of its CPU time."""
    return _above(Code.STEAL, steal_pct, STEAL_PCT, machine)


def not_cold(read_mb: float | None, served_mb: float | None, machine: str) -> list[Finding]:
    """The disks delivered less than 95% of the served bytes: the rest came from a cache."""
    if read_mb is None or served_mb is None or read_mb >= COLD_SHARE * served_mb:
        return []
    return [Finding(Code.NOT_COLD, read_mb, COLD_SHARE * served_mb, machine=machine)]


def background_cpu(background: BackgroundCpu, tool: str, machine: str, sut: str = "") -> list[Finding]:
    """Processes other than the server and the harness used more than 1% of the machine's CPU time.

    `sut`: a machine under test; `machine` is then its host, and the CPUs are those that `sut` runs on.
    """
    if background.share_pct <= BACKGROUND_PCT or background.spent_s <= AT_REST_S:
        return []
    code = Code.HOST_BACKGROUND_CPU if sut else Code.BACKGROUND_CPU
    payload = HostedMachine(sut) if sut else None
    return [Finding(code, background.share_pct, BACKGROUND_PCT, None, tool, machine, background.process, "", payload)]


def retransmits(share_pct: float, tool: str, machine: str) -> list[Finding]:
    """More than 0.1% of the segments sent were retransmissions."""
    return _above(Code.RETRANSMITS, share_pct, RETRANSMITTED_PCT, machine, tool)


def listen_drops(drops: float, tool: str, machine: str) -> list[Finding]:
    """The kernel turned connections away because the listen queue was full."""
    return _above(Code.LISTEN_DROPS, drops, 0, machine, tool)


def ports_exhausted(used: int, available: int, tool: str, machine: str) -> list[Finding]:
    """More than half of the local ports toward the server are in use or in TIME_WAIT."""
    if 100 * used <= PORTS_PCT * available:
        return []
    used_pct, ports = 100 * used / max(available, 1), Ports(used, available)
    return [Finding(Code.PORTS_EXHAUSTED, used_pct, PORTS_PCT, tool=tool, machine=machine, payload=ports)]


def clock_stepped(step_s: float, tool: str, machine: str) -> list[Finding]:
    """The wall clock moved against the monotonic one by more than 10 ms."""
    if abs(step_s) <= CLOCK_STEP_S:
        return []
    return [Finding(Code.CLOCK_STEPPED, step_s, CLOCK_STEP_S, tool=tool, machine=machine)]


def clock_source(first: str, now: str, tool: str, machine: str) -> list[Finding]:
    """The clock source is not the one that the machine had when the run began."""
    if first == now:
        return []
    return [Finding(Code.CLOCK_SOURCE, tool=tool, machine=machine, payload=ClockSources(first, now))]


def frequency_spread(spread_pct: float, tool: str, machine: str) -> list[Finding]:
    """The lowest sampled clock rate was more than 5% below the highest."""
    return _above(Code.FREQUENCY_SPREAD, spread_pct, SPREAD_PCT, machine, tool)


def warmup_drift(slower_pct: float | None, tool: str, machine: str) -> list[Finding]:
    """The first third of the load was more than 10% slower than the rest."""
    return _above(Code.WARMUP_DRIFT, slower_pct, SLOWER_PCT, machine, tool)


def stalled(gap_s: float | None, throughput_rps: float, tool: str, machine: str) -> list[Finding]:
    """No response came for 0.25 s, or for the time in which 20 were due, whichever is longer."""
    limit_s = max(STALL_S, STALL_RESPONSES / max(throughput_rps, 1e-9))
    if gap_s is None or gap_s <= limit_s:
        return []
    return [Finding(Code.STALLED, gap_s, limit_s, tool=tool, machine=machine)]


def lost_mail(counts: Counts) -> list[Finding]:
    """Messages that the server accepted are in no mailbox, or were delivered twice."""
    wrong = (counts.messages_lost or 0) + (counts.messages_doubled or 0)
    return [Finding(Code.LOST_MAIL, wrong, 0, Role.PRIMARY)] if wrong else []


def wrong_bodies(wrong: Sequence[str]) -> list[Finding]:
    """Bodies had another digest than the manifest's. `wrong`: a description of each."""
    return [Finding(Code.WRONG_BODY, len(wrong), 0, payload=WrongBody(wrong[0]))] if wrong else []


def fingerprint(
    reference: Mapping[str, object], observed: Mapping[str, object], server: str, machine: str
) -> list[Finding]:
    """Binary, configuration or worker count differ from the reference machine's."""
    keys = tuple(key for key in FINGERPRINT_KEYS if reference.get(key) != observed.get(key))
    if not keys:
        return []
    return [Finding(Code.FINGERPRINT, machine=machine, process=server, payload=Fingerprint(keys))]


def tls(
    transport: Transport,
    *,
    kernel: bool,
    certificate: str | None,
    observed: Mapping[str, object],
    server: str,
    machine: str,
) -> list[Finding]:
    """The handshake's TLS parameters differ from those that every server is configured for.

    `kernel`: whether the kernel must encrypt. `certificate`: its SHA-256 on the reference machine, None if not known
    yet.
    """
    expected = {
        "protocol": PROTOCOL,
        "cipher": CIPHER,
        "alpn": transport.alpn,
        "resumption": transport.resumption,
        "kernel": kernel,
    }
    differences = [
        Difference(f"TLS {key}", str(value), str(observed.get(key)))
        for key, value in expected.items()
        if observed.get(key) != value
    ]
    if certificate and observed.get("certificate_sha256") != certificate:
        digest = str(observed.get("certificate_sha256"))[:12]
        differences.append(Difference("TLS certificate", certificate[:12], digest))
    if not differences:
        return []
    payload = Fingerprint(differences=tuple(differences))
    return [Finding(Code.FINGERPRINT, machine=machine, process=server, payload=payload)]


def content(expected: str, observed: str | None, machine: str) -> list[Finding]:
    """The site on the machine is not the one that the experiment names."""
    if observed == expected:
        return []
    digests = Difference("content_digest", expected[:12], str(observed)[:12])
    return [Finding(Code.FINGERPRINT, machine=machine, payload=Fingerprint(differences=(digests,)))]


def sysctls(
    reference: Mapping[str, str], observed: Mapping[str, str], machine: str, declared: Sequence[str]
) -> list[Finding]:
    """Kernel parameters differ from the reference machine's, and the experiment does not declare it."""
    differences = tuple(
        Difference(name, value, str(observed.get(name)))
        for name, value in reference.items()
        if observed.get(name) != value and not any(covers(item, f"sysctls: {name}") for item in declared)
    )
    if not differences:
        return []
    return [Finding(Code.SYSCTL, machine=machine, payload=Sysctls(differences))]


def _above(code: Code, value: float | None, limit: float, machine: str, tool: str | None = None) -> list[Finding]:
    return [] if value is None or value <= limit else [Finding(code, value, limit, tool=tool, machine=machine)]

"""Gates: what makes a trial suspect or invalid. Pure functions; each gives findings or none.

What the fields of a finding hold, by code. Where `role` is not named it is None: it concerns the whole trial. `tool` is
the load tool during whose load it was seen. `a -> b`: the reference, then what was seen.

client-saturated     value: share of the CPU time that the tool's threads could have had; limit: 0.85; role, tool,
                     machine: the client; process: the neighbour's tool, where its CPU counts with it. Not of one user.
                     Ramp: value: requests for which no descriptor or port was left; limit: requests planned; detail:
                     `unsent`
client-starved       value: background CPU in % of the client's CPUs; limit: 2; role, tool, machine: the client or its
                     host; process: which took most
rate-not-reached     value: share of its rate that the client had kept to when it was furthest behind (oha: at its last
                     request), n / (n + rate × delay) of its n requests; limit: 0.98; role, tool, machine: the client;
                     detail: the rate offered to it
client-late          value: p99 of the client's delay in µs; limit: a tenth of the p99 of the response time; role, tool
start-spread         value: ms between the clients' first requests; limit: ms; role, tool
littles-law          value: requests in flight; limit: users of this client, times their streams; role: primary; tool,
                     machine: the client
mean-over-p99        value: mean in µs; limit: p99 in µs; role, tool; detail: `service_time` or `response_time`
link-bound           value: % of the line rate; limit: 90; machine
retransmits          value: % of the segments sent; limit: 0.1; tool, machine
listen-drops         value: connections turned away; limit: 0; tool, machine
ports-exhausted      value: % of the local ports; limit: 50; tool, machine; detail: `used/available`
steal                value: % of CPU time; limit: 0.5; machine
background-cpu       value: % of CPU time; limit: 1; tool, machine; process: which took most
host-background-cpu  the same of the host's CPUs that the machine under test, `detail`, runs on; machine: the host
frequency-spread     value: % of the highest clock rate; limit: 5; tool, machine
clock-source         tool, machine; detail: `tsc -> hpet`
clock-stepped        value: s, signed; limit: 0.01; tool, machine
warmup-drift         value: % that the first third was slower; limit: 10; tool, machine: those under test, `a, b`
stalled              value: s without a response; limit: s; tool, machine: those under test, `a, b`
not-cold             value: MB read; limit: MB that had to be read, 95% of those served; machine
sysctl               machine; detail: `name: 4096 -> 128`, several separated by `; `
failed-requests      value: requests without success; limit: the most that leave the trial suspect, 0.1% of those
                     planned (`requests` of the measurement; of a ramp those that were not late); role, tool; detail:
                     `successful/planned`
wrong-body           value: wrong bodies; limit: 0; detail: the first one
lost-mail            value: messages lost or doubled; limit: 0; role: primary; Counts has the figures
fingerprint          machine; process: the server; detail: the keys that differ, or `content_digest: a -> b`, or
                     `TLS cipher: a -> b`: what it is configured to, and what a handshake came to; of a certificate
                     the digest on the reference machine, and here
capacity-unknown, timed-out, tool-failed, server-failed, host-lost
                     detail: the message; process: `cleanup` where it came while a failed trial was cleaned up; machine:
                     the client that the tool ran on; the server's; the one that was lost, and of a guest its host where
                     that was lost as well. None where it is not known, and of an unknown capacity
"""

import math
from collections.abc import Mapping, Sequence

from vmtoll.model.finding import Code, Finding, Role
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
LITTLE_OFF = 0.05
# What a tool does between an answer and its user's next request: h2load took 2 to 2.5 µs; others were not measured.
# It makes a difference between two servers or machines look smaller, hence a limit to what it explains.
OWN_WORK_S = 4e-6
OWN_WORK_OFF = 0.1
LATE_SHARE = 0.1
SPREAD_S = 0.050
SPREAD_SHARE = 0.02
# The kernel tells how long a CPU was idle, and what was stolen from it, in ticks of 10 ms; what one of them explains is
# no finding. What a process used it tells in nanoseconds. The daemons of a machine at rest use some ms in any load; of
# one of 0.6 s, AT_REST_S leaves 3% in sight (18 ms).
TICK_S = 0.010
AT_REST_S = 0.015
CLIENT_BACKGROUND_PCT = 2.0
CLIENT_IDLE_PCT = 15.0
RETRANSMITTED_PCT = 0.1
PORTS_PCT = 50.0  # connect() tries every second port first; above that it scans all of them before it takes another
SPREAD_PCT = 5.0
SLOWER_PCT = 10.0
STALL_S = 0.25
# A gap that this many responses would have filled is no effect of a low rate.
STALL_RESPONSES = 20
FAILED_SHARE = 0.001
FINGERPRINT_KEYS = ("binary_sha256", "config_sha256", "workers")


def hidden_pct(load_s: float) -> float:
    """CPU time, in percent of one CPU, that others may take from the machine under test during a load of this length
    without a finding: by processes, and by the hypervisor.
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
    """The tool used more than 85 % of the CPU time its threads could have had.

    `in_flight`: requests that a closed loop has under way. One alone is no limit: nothing waits for the client but the
    client itself, so its CPU time per request, which the measurement has, is all that the figure contains of it.
    """
    if share is None or share <= BUSY or in_flight == 1:
        return []
    return [Finding(Code.CLIENT_SATURATED, share, BUSY, role, tool, machine, neighbour_tool)]


def unsent(requests: int, planned: int, tool: str) -> list[Finding]:
    """A ramp's tool had no descriptor or port left for some requests."""
    return [Finding(Code.CLIENT_SATURATED, requests, planned, Role.PRIMARY, tool, detail="unsent")] if requests else []


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
    """An open loop fell behind by more than 2 % of its requests: its latest one left `most_late_us` late.

    Not the last one alone, where the tool tells of each: a client that stood still in the middle and made up for it
    sent another load.
    """
    reached = requests / (requests + rate_rps * max(most_late_us, 0) / 1e6)
    if reached >= RATE_REACHED:
        return []
    offered = f"{rate_rps:.10g}"
    return [Finding(Code.RATE_NOT_REACHED, reached, RATE_REACHED, role, tool, machine, detail=offered)]


def client_late(measurement: Measurement) -> list[Finding]:
    """The client's own delay, which counts in the response time, is more than a tenth of it at the 99th percentile."""
    late_us, p99_us = measurement.lateness_p99_us, measurement.response_time_p99_us
    if late_us is None or p99_us is None or late_us <= LATE_SHARE * p99_us:
        return []
    return [Finding(Code.CLIENT_LATE, late_us, LATE_SHARE * p99_us, measurement.role, measurement.tool)]


def start_spread(spread_s: float | None, wall_s: float, role: Role, tool: str) -> list[Finding]:
    """The clients' first requests lay more than 50 ms and 2 % of the load's time apart."""
    limit_s = max(SPREAD_S, SPREAD_SHARE * wall_s)
    if spread_s is None or spread_s <= limit_s:
        return []
    return [Finding(Code.START_SPREAD, spread_s * 1000, limit_s * 1000, role, tool)]


def littles_law(
    concurrency: float | None, users: int, requests: int, elapsed_s: float, tick_s: float, tool: str, machine: str
) -> list[Finding]:
    """Requests in flight on average must be the number of users, in a closed loop without pauses.

    A tool that counts time in ticks of `tick_s` counts a sample of them: what two standard deviations of
    that count explain is no finding. A shortfall that the tool's own work at each request explains is none either.
    """
    if concurrency is None or elapsed_s <= 0:
        return []
    noise = max(LITTLE_OFF, 2 * math.sqrt(tick_s / (users * elapsed_s)))
    own_work = min(OWN_WORK_OFF, OWN_WORK_S * requests / (users * elapsed_s))
    if -max(noise, own_work) <= concurrency / users - 1 <= noise:
        return []
    return [Finding(Code.LITTLES_LAW, concurrency, users, Role.PRIMARY, tool, machine)]


def mean_over_p99(measurement: Measurement) -> list[Finding]:
    """A mean above the 99th percentile: under one request in a hundred took most of the time."""
    figures = {
        "service_time": (measurement.service_time_mean_us, measurement.service_time_p99_us),
        "response_time": (measurement.response_time_mean_us, measurement.response_time_p99_us),
    }
    return [
        Finding(Code.MEAN_OVER_P99, mean, p99, measurement.role, measurement.tool, detail=kind)
        for kind, (mean, p99) in figures.items()
        if mean is not None and p99 is not None and mean > p99
    ]


def failed_requests(
    planned: int, transactions: int, successful: int, failed: int, role: Role, tool: str
) -> list[Finding]:
    """Every planned request was made and succeeded; a trial with more than 0.1% of failures is void."""
    if failed == 0 and transactions == successful == planned:
        return []
    missing, tolerated = max(failed, planned - successful), math.floor(FAILED_SHARE * planned)
    return [Finding(Code.FAILED_REQUESTS, missing, tolerated, role, tool, detail=f"{successful}/{planned}")]


def link_bound(used_pct: float, machine: str) -> list[Finding]:
    """More than 90 % of the line rate: no evidence of low overhead."""
    return _above(Code.LINK_BOUND, used_pct, LINK_PCT, machine)


def steal(steal_pct: float | None, machine: str) -> list[Finding]:
    """The machine's own host took CPU time away."""
    return _above(Code.STEAL, steal_pct, STEAL_PCT, machine)


def not_cold(read_mb: float | None, served_mb: float | None, machine: str) -> list[Finding]:
    """Less was read from the disks than was served."""
    if read_mb is None or served_mb is None or read_mb >= COLD_SHARE * served_mb:
        return []
    return [Finding(Code.NOT_COLD, read_mb, COLD_SHARE * served_mb, machine=machine)]


def background_cpu(background: BackgroundCpu, tool: str, machine: str, sut: str = "") -> list[Finding]:
    """More than 1 % of the machine's CPU time went to processes other than the server and the harness.

    `sut`: the machine is the host, and these are the CPUs that this machine under test runs on.
    """
    if background.share_pct <= BACKGROUND_PCT or background.spent_s <= AT_REST_S:
        return []
    code = Code.HOST_BACKGROUND_CPU if sut else Code.BACKGROUND_CPU
    return [Finding(code, background.share_pct, BACKGROUND_PCT, None, tool, machine, background.process, sut)]


def retransmits(share_pct: float, tool: str, machine: str) -> list[Finding]:
    """Segments sent again, in percent of those sent."""
    return _above(Code.RETRANSMITS, share_pct, RETRANSMITTED_PCT, machine, tool)


def listen_drops(drops: float, tool: str, machine: str) -> list[Finding]:
    """Connections that the kernel turned away because the listen queue was full."""
    return _above(Code.LISTEN_DROPS, drops, 0, machine, tool)


def ports_exhausted(used: int, available: int, tool: str, machine: str) -> list[Finding]:
    """More than half of the local ports toward the server are in use or in TIME_WAIT."""
    if 100 * used <= PORTS_PCT * available:
        return []
    used_pct, detail = 100 * used / max(available, 1), f"{used}/{available}"
    return [Finding(Code.PORTS_EXHAUSTED, used_pct, PORTS_PCT, tool=tool, machine=machine, detail=detail)]


def clock_stepped(step_s: float, tool: str, machine: str) -> list[Finding]:
    """The wall clock moved against the monotonic one."""
    if abs(step_s) <= CLOCK_STEP_S:
        return []
    return [Finding(Code.CLOCK_STEPPED, step_s, CLOCK_STEP_S, tool=tool, machine=machine)]


def clock_source(first: str, now: str, tool: str, machine: str) -> list[Finding]:
    """The clock source is the one that the machine had when the run began."""
    if first == now:
        return []
    return [Finding(Code.CLOCK_SOURCE, tool=tool, machine=machine, detail=f"{first} -> {now}")]


def frequency_spread(spread_pct: float, tool: str, machine: str) -> list[Finding]:
    """The slowest second's clock rate lies more than 5 % below the fastest one's."""
    return _above(Code.FREQUENCY_SPREAD, spread_pct, SPREAD_PCT, machine, tool)


def warmup_drift(slower_pct: float | None, tool: str, machine: str) -> list[Finding]:
    """The first third was more than 10 % slower than the rest."""
    return _above(Code.WARMUP_DRIFT, slower_pct, SLOWER_PCT, machine, tool)


def stalled(gap_s: float | None, throughput_rps: float, tool: str, machine: str) -> list[Finding]:
    """No response for a quarter of a second, where many were due."""
    limit_s = max(STALL_S, STALL_RESPONSES / max(throughput_rps, 1e-9))
    if gap_s is None or gap_s <= limit_s:
        return []
    return [Finding(Code.STALLED, gap_s, limit_s, tool=tool, machine=machine)]


def lost_mail(counts: Counts) -> list[Finding]:
    """A message that the server accepted is in no mailbox, or in one twice."""
    wrong = (counts.messages_lost or 0) + (counts.messages_doubled or 0)
    return [Finding(Code.LOST_MAIL, wrong, 0, Role.PRIMARY)] if wrong else []


def wrong_bodies(wrong: Sequence[str]) -> list[Finding]:
    """Bodies whose digest is not the manifest's."""
    return [Finding(Code.WRONG_BODY, len(wrong), 0, detail=wrong[0])] if wrong else []


def fingerprint(
    reference: Mapping[str, object], seen: Mapping[str, object], server: str, machine: str
) -> list[Finding]:
    """Binary, configuration and worker count are those of the reference machine."""
    differ = [key for key in FINGERPRINT_KEYS if reference.get(key) != seen.get(key)]
    if not differ:
        return []
    return [Finding(Code.FINGERPRINT, machine=machine, process=server, detail=", ".join(differ))]


def tls(
    transport: Transport,
    *,
    kernel: bool,
    certificate: str | None,
    seen: Mapping[str, object],
    server: str,
    machine: str,
) -> list[Finding]:
    """Client and server agreed on what every server of a lab is configured to. `kernel`: it is to encrypt.
    `certificate`: its SHA-256 on the reference machine, None where nothing is known of it yet.
    """
    expected = {
        "protocol": PROTOCOL,
        "cipher": CIPHER,
        "alpn": transport.alpn,
        "resumption": transport.resumption,
        "kernel": kernel,
    }
    differ = [f"TLS {key}: {value} -> {seen.get(key)}" for key, value in expected.items() if seen.get(key) != value]
    if certificate and seen.get("certificate_sha256") != certificate:
        differ.append(f"TLS certificate: {certificate[:12]} -> {str(seen.get('certificate_sha256'))[:12]}")
    return [Finding(Code.FINGERPRINT, machine=machine, process=server, detail="; ".join(differ))] if differ else []


def content(expected: str, seen: str | None, machine: str) -> list[Finding]:
    """The site on the machine is the one that the experiment names."""
    if seen == expected:
        return []
    detail = f"content_digest: {expected[:12]} -> {str(seen)[:12]}"
    return [Finding(Code.FINGERPRINT, machine=machine, detail=detail)]


def sysctls(
    reference: Mapping[str, str], seen: Mapping[str, str], machine: str, declared: Sequence[str]
) -> list[Finding]:
    """Kernel parameters are those of the reference machine, unless the experiment declares that they differ."""
    differ = [f"{name}: {value} -> {seen.get(name)}" for name, value in reference.items() if seen.get(name) != value]
    if not differ or "sysctls" in declared:
        return []
    return [Finding(Code.SYSCTL, machine=machine, detail="; ".join(differ))]


def _above(code: Code, value: float | None, limit: float, machine: str, tool: str | None = None) -> list[Finding]:
    return [] if value is None or value <= limit else [Finding(code, value, limit, tool=tool, machine=machine)]

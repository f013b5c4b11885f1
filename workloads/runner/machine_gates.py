"""Gates on what the machines went through while a load ran. Pure functions; each gives reasons or none."""

from collections.abc import Mapping, Sequence

from workloads.runner.gates import Reason
from workloads.runner.neighbours import Others

FOREIGN_PCT = 1.0
# Processes are counted in ticks of 10 ms; what two of them explain is no finding.
FOREIGN_S = 0.025
CLIENT_FOREIGN_PCT = 2.0
CLIENT_IDLE_PCT = 15.0
RETRANSMITTED_PCT = 0.1
PORTS_PCT = 90.0
STEP_S = 0.010
SPREAD_PCT = 5.0
SLOWER_PCT = 10.0
STALL_S = 0.25
# A gap that this many responses would have filled is no accident of a low rate.
STALL_RESPONSES = 20


def _taken(others: Others) -> str:
    return f"{others.share_pct:.1f} % of its CPUs, most of it {others.worst}"


def client_starved(others: Others, machine: str, tool: str, *, twin: bool = False) -> list[Reason]:
    """Others took CPU on the client, and it had none to spare."""
    if others.share_pct <= CLIENT_FOREIGN_PCT or others.spent_s <= FOREIGN_S or others.idle_pct >= CLIENT_IDLE_PCT:
        return []
    code = "twin-client-starved" if twin else "client-starved"
    return [Reason(code, f"{machine}: others than {tool} took {_taken(others)}")]


def foreign_cpu(others: Others, machine: str) -> list[Reason]:
    """More than 1 % of the machine's CPU time went to others than the server and the harness."""
    if others.share_pct <= FOREIGN_PCT or others.spent_s <= FOREIGN_S:
        return []
    return [Reason("foreign-cpu", f"{machine}: others than the server took {_taken(others)}")]


def host_foreign_cpu(others: Others, host: str, sut: str) -> list[Reason]:
    """The same on the host's CPUs that the machine under test runs on."""
    if others.share_pct <= FOREIGN_PCT or others.spent_s <= FOREIGN_S:
        return []
    return [Reason("host-foreign-cpu", f"{host}: others than {sut} took {_taken(others)}")]


def retransmits(share_pct: float, machine: str) -> list[Reason]:
    """Segments sent again, in percent of those sent."""
    if share_pct <= RETRANSMITTED_PCT:
        return []
    return [Reason("retransmits", f"{machine} sent {share_pct:.2f} % of its segments again")]


def listen_drops(drops: float, machine: str) -> list[Reason]:
    """Connections that the kernel turned away because the listen queue was full."""
    return [Reason("listen-drops", f"{machine} turned {drops:.0f} connections away")] if drops > 0 else []


def ports_exhausted(used: int, available: int, machine: str) -> list[Reason]:
    """More than 90 % of the local ports toward the server are in use or in TIME_WAIT."""
    if 100 * used <= PORTS_PCT * available:
        return []
    return [Reason("ports-exhausted", f"{machine}: {used} of {available} local ports in use or in TIME_WAIT")]


def clock_stepped(step_s: float, machine: str) -> list[Reason]:
    """The wall clock moved against the monotonic one."""
    if abs(step_s) <= STEP_S:
        return []
    return [Reason("clock-stepped", f"{machine}: the clock was set by {step_s:+.3f} s")]


def clock_source(first: str, now: str, machine: str) -> list[Reason]:
    """The clock source is the one that the machine had when the run began."""
    return [] if first == now else [Reason("clock-source", f"{machine}: {now}, at the start of the run {first}")]


def frequency_spread(spread_pct: float, machine: str) -> list[Reason]:
    """The slowest second's clock rate lies more than 5 % below the fastest one's."""
    if spread_pct <= SPREAD_PCT:
        return []
    return [Reason("frequency-spread", f"{machine}: the clock rate moved by {spread_pct:.1f} %")]


def warmup_drift(slower_pct: float | None, machine: str) -> list[Reason]:
    """The first third was more than 10 % slower than the rest."""
    if slower_pct is None or slower_pct <= SLOWER_PCT:
        return []
    return [Reason("warmup-drift", f"{machine}: the first third was {slower_pct:.0f} % slower than the rest")]


def stalled(gap_s: float | None, throughput_rps: float, machine: str) -> list[Reason]:
    """No response for a quarter of a second, where many were due."""
    if gap_s is None or gap_s <= max(STALL_S, STALL_RESPONSES / max(throughput_rps, 1e-9)):
        return []
    return [Reason("stalled", f"{machine}: no response for {gap_s:.2f} s")]


def sysctls(
    reference: Mapping[str, str], seen: Mapping[str, str], machine: str, declared: Sequence[str]
) -> list[Reason]:
    """Kernel parameters are those of the reference machine, unless the experiment declares that they differ."""
    differ = [f"{name} is {seen.get(name)!r}, not {value!r}" for name, value in reference.items()
              if seen.get(name) != value]  # fmt: skip
    if not differ or "sysctls" in declared:
        return []
    return [Reason("sysctl", f"{machine}: {'; '.join(differ)}")]

"""The limit that kept a trial, or most trials of a side, from answering more requests, by findings and figures."""

from collections import Counter
from collections.abc import Iterable

from vmtoll.analysis.run import Run
from vmtoll.model.finding import Code, Role
from vmtoll.model.limiter import Limiter
from vmtoll.model.trial import METAL, Arm, Measurement, TrialRecord
from vmtoll.statistics.thresholds import BUSY, RATE_REACHED

_CLIENT = frozenset({Code.CLIENT_SATURATED, Code.CLIENT_STARVED, Code.RATE_NOT_REACHED})


def limiter_of(record: TrialRecord, role: Role = Role.PRIMARY, cores: int | None = None) -> Limiter | None:
    """The first limiter that applies; None where the figures do not show one. `cores`: those that the server can fill,
    given its machine and its workers; by default those of the record.

    LINK is judged by the link's use during the primary measurement.
    """
    measured, codes = record.measurement(role), record.limits(role)
    if measured is None or not measured.duration_s:
        return None
    by_client = Limiter.CLIENT_CPU if codes & _CLIENT else Limiter.LINK if Code.LINK_BOUND in codes else None
    offered, answered = record.offered.offered_rps, measured.throughput_rps
    if by_client or not (record.scenario.load.is_open and offered and answered is not None):
        return by_client or _by_figures(record, role, cores)
    return Limiter.NOTHING if answered >= RATE_REACHED * offered else _by_figures(record, role, cores)


def _by_figures(record: TrialRecord, role: Role, cores: int | None) -> Limiter | None:
    measured, cpus = record.measurement(role), cores or record.resources.server_cores
    if measured is None or not measured.duration_s or not cpus or (spent_s := measured.server_cpu_s) is None:
        return None
    on_host = measured.host_cpu_s if record.arm.environment != METAL else None
    if spent_s >= BUSY * cpus * measured.duration_s:
        return Limiter.SERVER_CPU
    if on_host is not None and on_host / measured.duration_s >= BUSY * cpus:
        return Limiter.HOST_CPU
    if role is Role.PRIMARY and (waiting := _by_waits(record, measured, cpus)):
        return waiting
    turned_away = record.limits(role) & {Code.LISTEN_DROPS, Code.PORTS_EXHAUSTED}
    return Limiter.CONNECTIONS if turned_away or not record.scenario.load.is_open else None


def _by_waits(record: TrialRecord, measured: Measurement, cpus: int) -> Limiter | None:
    """A CPU that ran something else while the guest, or else the server, was able to run."""
    used, answers = record.resources, measured.transactions or 0
    wanted_us = (
        (Limiter.HOST_WAIT, used.host_vcpu_cpu_us_per_request, used.host_vcpu_wait_us_per_request),
        (Limiter.CPU_WAIT, measured.server_cpu_us_per_request, used.server_wait_us_per_request),
    )
    full_us = BUSY * cpus * (measured.duration_s or 0.0) * 1e6
    for limiting, ran_us, wait_us in wanted_us:
        if ran_us is not None and wait_us is not None and answers and (ran_us + wait_us) * answers >= full_us:
            return limiting
    return None


def limiter(run: Run, trials: Iterable[TrialRecord], role: Role = Role.PRIMARY) -> Limiter | None:
    """The most frequent limiter of these trials; None if none has one."""
    counts = Counter(
        name for trial in trials if (name := limiter_of(trial, role, _cores(run, trial.arm, trial.scenario.server)))
    )
    return min(counts, key=lambda name: (-counts[name], list(Limiter).index(name)), default=None)


def _cores(run: Run, arm: Arm, server: str) -> int | None:
    """The cores that a server can fill: those of its machine, or its workers if fewer; None if not known."""
    facts = next((host for host in run.hosts.values() if host.get("environment") == arm.environment), {})
    limits = (facts.get("cpus_allowed"), (facts.get("servers") or {}).get(server, {}).get("workers"))
    return min((int(limit) for limit in map(str, limits) if limit.isdigit() and int(limit)), default=None)

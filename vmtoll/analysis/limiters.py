"""The limit that kept a trial, or most trials of a side, from answering more requests, by findings and figures."""

from collections import Counter
from collections.abc import Iterable

from vmtoll.analysis.run import Run
from vmtoll.model.finding import Code, Role
from vmtoll.model.limiter import Limiter
from vmtoll.model.trial import Accelerator, Arm, Measurement, TrialRecord
from vmtoll.statistics.thresholds import BUSY, RATE_REACHED

_CLIENT = frozenset({Code.CLIENT_SATURATED, Code.CLIENT_STARVED, Code.RATE_NOT_REACHED})


def limiter_of(record: TrialRecord, role: Role = Role.PRIMARY, cores: int | None = None) -> Limiter | None:
    """The first limiter that applies; None where the figures do not show one. `cores`: those that the server can fill,
    given its machine and its workers, on each of the machines that share the load; by default those of the record.

    LINK is judged by the link's use during the primary measurement.
    """
    measurement, codes = record.measurement(role), record.limits(role)
    if measurement is None or not measurement.duration_s:
        return None
    by_client = Limiter.CLIENT_CPU if codes & _CLIENT else Limiter.LINK if Code.LINK_BOUND in codes else None
    offered_rps, answered_rps = record.offered.offered_rps, measurement.throughput_rps
    if by_client or not (record.scenario.load.is_open and offered_rps and answered_rps is not None):
        return by_client or _by_figures(record, role, cores)
    return Limiter.NOTHING if answered_rps >= RATE_REACHED * offered_rps else _by_figures(record, role, cores)


def _by_figures(record: TrialRecord, role: Role, cores: int | None) -> Limiter | None:
    measurement, cpus = record.measurement(role), (cores or record.resources.server_cores or 0) * max(record.guests, 1)
    if (
        measurement is None
        or not measurement.duration_s
        or not cpus
        or (server_cpu_s := measurement.server_cpu_s) is None
    ):
        return None
    host_cpu_s = measurement.host_cpu_s
    if record.accelerator is Accelerator.NONE:  # what else a container runs shares its CPUs with the server
        server_cpu_s, host_cpu_s = max(server_cpu_s, host_cpu_s or 0.0), None
    if server_cpu_s >= BUSY * cpus * measurement.duration_s:
        return Limiter.SERVER_CPU
    if host_cpu_s is not None and host_cpu_s / measurement.duration_s >= BUSY * cpus:
        return Limiter.HOST_CPU
    if role is Role.PRIMARY and (wait_limiter := _by_waits(record, measurement, cpus)):
        return wait_limiter
    connection_findings = record.limits(role) & {Code.LISTEN_DROPS, Code.PORTS_EXHAUSTED}
    return Limiter.CONNECTIONS if connection_findings or not record.scenario.load.is_open else None


def _by_waits(record: TrialRecord, measurement: Measurement, cpus: int) -> Limiter | None:
    """A CPU that ran something else while the guest, or else the server, was able to run."""
    resources, answers = record.resources, measurement.transactions or 0
    cpu_demands = (
        (Limiter.HOST_WAIT, resources.host_vcpu_cpu_us_per_request, resources.host_vcpu_wait_us_per_request),
        (Limiter.CPU_WAIT, measurement.server_cpu_us_per_request, resources.server_wait_us_per_request),
    )
    full_us = BUSY * cpus * (measurement.duration_s or 0.0) * 1e6
    for wait_limiter, ran_us, wait_us in cpu_demands:
        if ran_us is not None and wait_us is not None and answers and (ran_us + wait_us) * answers >= full_us:
            return wait_limiter
    return None


def limiter(run: Run, trials: Iterable[TrialRecord], role: Role = Role.PRIMARY) -> Limiter | None:
    """The most frequent limiter of these trials; None if none has one."""
    counts = Counter(
        name for trial in trials if (name := limiter_of(trial, role, _cores(run, trial.arm, trial.scenario.server)))
    )
    return min(counts, key=lambda name: (-counts[name], list(Limiter).index(name)), default=None)


def _cores(run: Run, arm: Arm, server: str) -> int | None:
    """The cores that a server can fill: those of its machine, or its workers if fewer; None if not known."""
    facts = run.machine(arm.environment)
    return min(filter(None, (facts.cpus_allowed, facts.server(server).workers)), default=None)

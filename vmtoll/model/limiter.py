"""Limiter that kept a trial from answering more requests: one a trial, from its findings and its figures."""

from enum import StrEnum

from vmtoll.model.finding import Code, Role
from vmtoll.model.trial import METAL, TrialRecord

FULL = 0.85  # of the CPU time of the server's cores; kernel work that belongs to no process comes on top
REACHED = 0.98  # of the offered rate


class Limiter(StrEnum):
    """HOST_CPU: the guest's threads on its host fill their cores, and its server does not fill the guest's.
    CONNECTIONS: no resource is full; the users, ports or the listen queue allow no more. NOTHING: the rate was reached.
    """

    CLIENT_CPU = "client-cpu"
    LINK = "link"
    SERVER_CPU = "server-cpu"
    HOST_CPU = "host-cpu"
    CONNECTIONS = "connections"
    NOTHING = "nothing"


_CLIENT = frozenset({Code.CLIENT_SATURATED, Code.CLIENT_STARVED, Code.RATE_NOT_REACHED})


def limiter_of(record: TrialRecord, role: Role = Role.PRIMARY, cores: int | None = None) -> Limiter | None:
    """The first that applies; None where the figures do not say. `cores`: those that the server can fill, by its
    machine and its workers; by the record where nobody knows.

    The figures of the host and of the link are those of the primary measurement.
    """
    measured, codes = record.measurement(role), record.limits(role)
    if measured is None or not measured.duration_s:
        return None
    by_client = Limiter.CLIENT_CPU if codes & _CLIENT else Limiter.LINK if Code.LINK_BOUND in codes else None
    offered, answered = record.offered.offered_rps, measured.throughput_rps
    if by_client or not (record.scenario.load.is_open and offered and answered is not None):
        return by_client or _by_figures(record, role, cores)
    return Limiter.NOTHING if answered >= REACHED * offered else _by_figures(record, role, cores)


def _by_figures(record: TrialRecord, role: Role, cores: int | None) -> Limiter | None:
    measured, cpus = record.measurement(role), cores or record.resources.server_cores
    share = _server_share(record, role, cpus) if cpus else None
    if measured is None or not measured.duration_s or share is None or cpus is None:
        return None
    on_host = measured.host_cpu_s if record.arm.environment != METAL else None
    if share >= FULL:
        return Limiter.SERVER_CPU
    if on_host is not None and on_host / measured.duration_s >= FULL * cpus:
        return Limiter.HOST_CPU
    turned_away = record.limits(role) & {Code.LISTEN_DROPS, Code.PORTS_EXHAUSTED}
    return Limiter.CONNECTIONS if turned_away or not record.scenario.load.is_open else None


def _server_share(record: TrialRecord, role: Role, cores: int) -> float | None:
    """The CPU time of the server's processes, of that of its cores."""
    measured = record.measurement(role)
    if measured is None or not measured.duration_s:
        return None
    if measured.server_cpu_user_s is not None and measured.server_cpu_system_s is not None:
        spent_s = measured.server_cpu_user_s + measured.server_cpu_system_s
    elif measured.server_cpu_us_per_request is not None and measured.transactions is not None:
        spent_s = measured.server_cpu_us_per_request * measured.transactions / 1e6
    else:
        return None
    return spent_s / measured.duration_s / cores

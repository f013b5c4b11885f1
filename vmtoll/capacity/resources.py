"""Cost of a request and a load's use of a machine: CPU, memory, link, power; Erlang C from the same figures. `trials`:
rows of `Run.frame`, one per block.
"""

from dataclasses import dataclass
from typing import Any

import pandas as pd

from vmtoll.analysis.run import Run
from vmtoll.capacity.erlang import RandomArrivals, random_arrivals, rate_within
from vmtoll.capacity.estimate import Estimate, geometric
from vmtoll.capacity.objective import Slo
from vmtoll.model.facts import kvm_hosts

MIB = 2**20


@dataclass(frozen=True)
class Size:
    """A machine under test: its CPUs, its memory, and the workers of one server; None where not known."""

    cpus: int | None = None
    memory_kib: int | None = None
    workers: int | None = None


def size_of(run: Run, environment: str, server: str = "") -> Size:
    """The size of the machine behind an environment."""
    facts = run.machine(environment)
    return Size(_positive(facts.cpus_allowed), _positive(facts.memory_kib), _positive(facts.server(server).workers))


def host_cpus(run: Run) -> int | None:
    """CPUs of the KVM host that the guests were measured on; None if it was not seen, or if several hosts differ in
    them.
    """
    cpus = {_positive(facts.cpus_allowed) for facts in kvm_hosts(run.hosts).values()}
    return cpus.pop() if len(cpus) == 1 else None


@dataclass(frozen=True)
class MachineUsage:
    """Use of the machine, as fractions; None where it is not known.

    CPU: of the server and of everything else on the machine under test, or of the guest's threads on its host,
    whichever is more. Memory: the server's proportional set size.
    """

    cpu: float | None
    memory: float | None
    link: float | None


def usage(trials: pd.DataFrame, size: Size) -> MachineUsage:
    """The median use of a machine in these trials."""
    cpus, cpu = _cpus(trials, size), None
    if cpus:
        by_machine = trials["server_cpu_us_per_request"] * trials["throughput_rps"] / 1e6 / cpus
        by_machine += trials["background_cpu_pct"].fillna(0) / 100
        by_host = trials["host_cpu_us_per_request"] * trials["throughput_rps"] / 1e6 / cpus
        cpu = _median(pd.concat([by_machine, by_host], axis=1).max(axis=1))
    memory, link_pct = _median(trials["memory_pss_kib"].astype(float)), _median(trials["link_used_pct"])
    return MachineUsage(
        cpu=None if cpu is None else min(cpu, 1.0),
        memory=memory / size.memory_kib if memory is not None and size.memory_kib else None,
        link=None if link_pct is None else link_pct / 100,
    )


@dataclass(frozen=True)
class RequestCost:
    """Cost of one request: CPU of the server, CPU on the guest's host, energy of the host, and size of the body."""

    cpu_ms: Estimate | None
    host_cpu_ms: Estimate | None
    host_energy_j: Estimate | None
    body_mib: Estimate | None


def request_cost(trials: pd.DataFrame) -> RequestCost:
    """The cost of a request in these trials, with intervals over blocks."""
    transactions = trials["transactions"].astype(float)
    return RequestCost(
        cpu_ms=geometric(trials["server_cpu_us_per_request"] / 1e3),
        host_cpu_ms=geometric(trials["host_cpu_us_per_request"] / 1e3),
        host_energy_j=geometric(trials["host_energy_j"] / transactions),
        body_mib=geometric(trials["transferred_mb"] * 1e6 / MIB / transactions),
    )


def power_w(trials: pd.DataFrame) -> Estimate | None:
    """The power of the host's processors and memory, as they count it (RAPL); None where none was counted.

    Fans, disks and losses of the power supply are not included.
    """
    return geometric(trials["host_energy_j"] / trials["duration_s"])


@dataclass(frozen=True)
class ErlangBound:
    """Rate that an M/M/c queue with these CPUs and this work per request would carry at the objective's p99."""

    cpus: int
    work_us: float
    rate_rps: float
    random: RandomArrivals  # the shares of the even rate that it still carries with random arrivals


def erlang_bound(trials: pd.DataFrame, size: Size, slo: Slo) -> ErlangBound | None:
    """The Erlang C bound by the median CPU time per request, a guest's on its host if known; None without figures."""
    cpus = int(_cpus(trials, size) or 0)
    work_us = _median(trials["host_cpu_us_per_request"]) or _median(trials["server_cpu_us_per_request"])
    if not work_us or not cpus:
        return None
    queue = (slo.p99_ms / 1e3, 0.01, work_us / 1e6, cpus)
    return ErlangBound(cpus, work_us, rate_within(*queue), random_arrivals(*queue))


def _cpus(trials: pd.DataFrame, size: Size) -> float | None:
    """The CPUs that the server might use: its machine's, unless the workload kept it to fewer."""
    return _median(trials["server_cores"].astype(float)) or size.cpus


def _median(values: pd.Series) -> float | None:
    present = values.dropna()
    return None if present.empty else float(present.median())


def _positive(value: Any) -> int | None:
    try:
        return int(value) if int(value) > 0 else None
    except (TypeError, ValueError):
        return None

"""What a request costs and how much of a machine a rung used: CPU, memory, link; and Erlang C from the same figures."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from analysis.capacity.erlang import rate_within
from analysis.capacity.rungs import ENDS, Estimate, Rung, geometric
from analysis.capacity.slo import Slo
from analysis.grounds import machine
from analysis.load import AA_ARM, BASELINE, Run

MIB = 2**20

Ends = dict[str, float | None]  # `low`, `mid`, `high`


def used(run: Run, rung: Rung, environment: str) -> dict[str, float | None]:
    """How much of the machine a rung used, as fractions: `cpu`, `memory`, `link`; None where it is not known.

    CPU: of the server and of all else on the machine under test, or of the guest's threads on its host, whichever
    is more. Memory: the server's proportional set size.
    """
    trials = rung.trials
    cpus, memory_kib = _cpus(run, trials, environment), _positive(host_facts(run, environment).get("memory_kib"))
    cpu = None
    if cpus:
        inside = trials["server_cpu_us_per_request"] * trials["throughput_rps"] / 1e6 / cpus
        inside += trials["foreign_cpu_pct"].fillna(0) / 100
        outside = trials["host_cpu_us_per_request"] * trials["throughput_rps"] / 1e6 / cpus
        cpu = _median(pd.concat([inside, outside], axis=1).max(axis=1))
    memory = _median(trials["memory_pss_kib"].astype(float))
    return {
        "cpu": None if cpu is None else min(cpu, 1.0),
        "memory": memory / memory_kib if memory is not None and memory_kib else None,
        "link": _share(_median(trials["link_used_pct"])),
    }


def per_request(rung: Rung) -> dict[str, Ends | None]:
    """CPU milliseconds and MiB of body per request, with intervals over blocks: `cpu_ms`, `host_cpu_ms`, `mib`;
    `host_j`: joules of the machine's processors and memory.
    """
    trials = rung.trials
    columns = {
        "cpu_ms": trials["server_cpu_us_per_request"] / 1e3,
        "host_cpu_ms": trials["host_cpu_us_per_request"] / 1e3,
        "host_j": trials["host_energy_j"] / trials["transactions"].astype(float),
        "mib": trials["transferred_mb"] * 1e6 / MIB / trials["transactions"].astype(float),
    }
    return {name: as_dict(geometric(values)) for name, values in columns.items()}


def erlang_bound(run: Run, rung: Rung, slo: Slo, environment: str) -> dict[str, Any] | None:
    """What an M/M/c queue with these CPUs and this work per request would do at that p99; None without figures.

    The work is the median of the rung: of a guest its threads' on the host, where known.
    """
    trials = rung.trials
    cpus = int(_cpus(run, trials, environment) or 0)
    work_us = _median(trials["host_cpu_us_per_request"]) or _median(trials["server_cpu_us_per_request"])
    if not work_us or not cpus:
        return None
    return {"cpus": cpus, "work_us": work_us, "rate_rps": rate_within(slo.p99_ms / 1e3, 0.01, work_us / 1e6, cpus)}


def size_words(run: Run, server: str, environment: str) -> str:
    """What `one` is: `1 CPU, 2.0 GiB, 1 worker`."""
    facts = host_facts(run, environment)
    workers = machine(run, (server, "", "", ""), environment).get("server workers")
    parts = []
    if cpus := _positive(facts.get("cpus_allowed")):
        parts.append(many(int(cpus), "CPU"))
    if memory_kib := _positive(facts.get("memory_kib")):
        parts.append(f"{memory_kib / 2**20:.1f} GiB")
    if workers:
        parts.append(many(int(workers), "worker"))
    return ", ".join(parts) or "of unknown size"


def host_facts(run: Run, environment: str) -> dict[str, Any]:
    """The facts of the machine under test behind an environment."""
    place = BASELINE if environment == AA_ARM else environment
    return next((facts for facts in run.hosts.values() if facts.get("environment") == place), {})


def as_dict(estimate: Estimate | None) -> Ends | None:
    """`low`, `mid`, `high` for JSON; an end that is not known is null."""
    if estimate is None:
        return None
    return {end: value if math.isfinite(value := getattr(estimate, end)) else None for end in ENDS}


def many(count: int, noun: str) -> str:
    """`1 guest`, `5 guests`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _cpus(run: Run, trials: pd.DataFrame, environment: str) -> float | None:
    """The CPUs that the server might use: its machine's, unless the workload kept it to fewer."""
    kept_to = _median(trials["server_cores"].astype(float))
    return kept_to or _positive(host_facts(run, environment).get("cpus_allowed"))


def _median(values: pd.Series) -> float | None:
    kept = values.dropna()
    return None if kept.empty else float(kept.median())


def _share(percent: float | None) -> float | None:
    return None if percent is None else percent / 100


def _positive(value: Any) -> float | None:
    try:
        return float(value) if float(value) > 0 else None
    except (TypeError, ValueError):
        return None

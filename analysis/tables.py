"""The tables of report and ODS: numbers per server and environment, and facts of every host."""

from __future__ import annotations

from typing import Any

import pandas as pd

from analysis import sides
from analysis.compare import twin_name
from analysis.latency import merged_percentiles
from analysis.load import GATES, SCENARIO, Run, scenario_labels
from analysis.plot import figures

# name of the column in the table → (column of trials.csv, unit)
NUMBERS = {
    "offered_rps": "req/s, offered",
    "throughput_rps": "req/s, tool",
    "goodput_rps": "req/s, good",
    "twin_throughput_rps": "req/s, twin",
    "availability_pct": "availability, %",
    "response_time_p50_us": "p50, open loop, µs",
    "response_time_p99_us": "p99, open loop, µs",
    "response_time_p999_us": "p99.9, open loop, µs",
    "service_time_p50_us": "p50, closed loop, µs",
    "service_time_p99_us": "p99, closed loop, µs",
    "service_time_p999_us": "p99.9, closed loop, µs",
    "server_cpu_us_per_request": "server CPU, µs/req",
    "host_cpu_us_per_request": "host CPU, µs/req",
    "memory_pss_kib": "memory, KiB",
    "client_cpu_share": "client CPU, share",
    "steal_pct": "steal, %",
}


def numbers(run: Run) -> pd.DataFrame:
    """One row per scenario and environment: trials by verdict, medians over trials that are not invalid,
    and percentiles of all requests merged where the histograms are there (`merged_p…_us`).
    """
    rows: list[dict[str, Any]] = []
    for scenario, label in scenario_labels(run).items():
        for environment in run.environments:
            used = figures(run, scenario, environment)
            row: dict[str, Any] = dict(zip(("server", "workload", "tool", "offered_load"), scenario, strict=True))
            row |= {"label": label, "environment": environment, "accelerator": run.accelerator(environment)}
            row |= _counts(run, scenario, environment)
            if row["trials"] == 0:
                continue
            row |= {column: _median(used[column]) for column in NUMBERS}
            logged = used["response_time_p50_us"].notna() | used["service_time_p50_us"].notna()
            merged = merged_percentiles(run.path, used[logged])
            for name, value in zip(("p50", "p90", "p99", "p999"), merged or (None,) * 4, strict=True):
                row[f"merged_{name}_us"] = value
            row["twin_failure_rate"] = _rate(used["twin_failed"], used["twin_requests"])
            rows.append(row)
    return pd.DataFrame(rows)


def _counts(run: Run, scenario: tuple[str, ...], environment: str) -> dict[str, int]:
    cell = run.cells[scenario]
    cell = cell[cell["environment"] == environment]
    counts = {name: int((cell["verdict"] == name).sum()) for name in ("valid", "suspect", "invalid")}
    return {"trials": len(cell), **counts}


def _median(values: pd.Series) -> float | None:
    values = values.dropna().astype(float)
    return None if values.empty else float(values.median())


def _rate(part: pd.Series, whole: pd.Series) -> float | None:
    total = whole.dropna().astype(float).sum()
    return float(part.dropna().astype(float).sum() / total) if total else None


def gates(run: Run) -> tuple[list[dict[str, Any]], list[str]]:
    """(a row per gate that fired: `code`, `verdict`, `meaning`, `trials` by environment; codes of the others)."""
    trials = run.trials[["codes", "environment"]].itertuples(index=False)
    fired = [(code, environment) for codes, environment in trials for code in set(codes)]
    rows = []
    for code in dict.fromkeys([*GATES, *sorted({code for code, _ in fired})]):
        counts = {environment: fired.count((code, environment)) for environment in run.environments}
        if any(counts.values()):
            known = GATES.get(code, {"verdict": "unknown", "meaning": "this version knows no such gate"})
            rows.append({"code": code, "trials": counts} | known)
    rows.sort(key=lambda row: -sum(row["trials"].values()))
    return rows, [code for code in GATES if code not in {code for code, _ in fired}]


def availability(run: Run) -> list[dict[str, Any]]:
    """One row per scenario, environment and tool (or twin): `requests`, `failed`, `share` with Wilson's `low`, `high`.

    Over all trials that have counts, those too that the gates refused.
    """
    rows = []
    for scenario, label in scenario_labels(run).items():
        tools = {"tool": scenario[SCENARIO.index("tool")], "twin": twin_name(run, scenario)}
        for environment in run.environments:
            for source, tool in tools.items():
                if counts := sides.availability(run.cells[scenario], environment, source):
                    row = {"label": label, "environment": environment, "tool": tool, **counts}
                    rows.append(row | {"failed": counts["requests"] - counts["successful"]})
    return rows


HOST_FACTS = {
    "role": "role", "environment": "environment", "virtualization": "virtualization", "container": "container",
    "kernel": "kernel", "cpu_model": "CPU", "cpus_allowed": "CPUs allowed", "memory_kib": "memory, KiB",
    "clock_source": "clock source", "governor": "governor", "smt": "SMT", "numa_nodes": "NUMA nodes",
    "microcode": "microcode", "mitigations": "mitigations", "nic": "NIC", "workers": "workers",
    "qemu_version": "QEMU", "libvirt_version": "libvirt", "cmdline": "kernel command line",
}  # fmt: skip


def host_facts(run: Run) -> tuple[list[str], list[tuple[str, list[str]]]]:
    """(host names, [(fact, one text per host)]); facts that no host states are left out."""
    names = [name for name, facts in run.hosts.items() if isinstance(facts, dict)]
    rows = []
    for key, words in HOST_FACTS.items():
        values = [run.hosts[name].get(key) for name in names]
        if any(value not in (None, "", {}, []) for value in values):
            rows.append((words, [_in_words(value) for value in values]))
    return names, rows


def _in_words(value: Any) -> str:
    if value in (None, "", {}, []):
        return "—"
    if isinstance(value, dict):
        return "; ".join(f"{key}: {_in_words(item)}" for key, item in value.items())
    if isinstance(value, list):
        return ", ".join(_in_words(item) for item in value)
    return str(value)

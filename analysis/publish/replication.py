"""Two runs of one experiment, scenario by scenario: reproduced, not reproduced, or not comparable and why."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

from analysis.grounds import DECISIVE, grounds, machine
from analysis.load import BASELINE, SCENARIO, Run
from analysis.publish.agreement import NOT_COMPARABLE, NOT_REPRODUCED, REPRODUCED, Agreement, agreement
from analysis.verdict import margin_of, verdict_of

# Facts that must be alike too before absolute figures may be set side by side.
ALIKE = (
    "kernel", "cpus_allowed", "microcode", "mitigations", "governor", "smt", "numa_nodes", "clock_source",
    "memory_kib", "virtualization", "container", "nic", "sysctls",
)  # fmt: skip
FIGURES = ("throughput_rps", "response_time_p99_us", "service_time_p99_us", "server_cpu_us_per_request")
_SAME = ("label", *SCENARIO, "environment", "accelerator")


def compare_runs(published: Run, again: Run) -> dict[str, Any]:
    """JSON-serialisable: `scenarios`, each with `status`, `reason`, `facts` (that differ and forbid a comparison),
    `other_differences`, `metrics` and `absolute`; `counts` by status. The first run is the one to be reproduced.
    """
    first, second = _results(published), _results(again)
    scenarios = [
        _scenario(published, again, first.get(key), second.get(key)) for key in dict.fromkeys([*first, *second])
    ]
    return {
        "published": _identity(published),
        "again": _identity(again),
        "counts": dict(Counter(scenario["status"] for scenario in scenarios)),
        "scenarios": scenarios,
    }


def _identity(run: Run) -> dict[str, Any]:
    named = {key: run.meta.get(key) for key in ("run_id", "commit", "started_at", "lab", "link")}
    return {"experiment": run.meta["experiment"].get("name"), **named, "emulated": run.emulated}


def _results(run: Run) -> dict[tuple[str, ...], dict[str, Any]]:
    return {tuple(r[key] for key in (*SCENARIO, "environment")): r for r in verdict_of(run)["results"]}


def _scenario(
    published: Run, again: Run, first: dict[str, Any] | None, second: dict[str, Any] | None
) -> dict[str, Any]:
    if first is None or second is None:
        there = first or second or {}
        only = "the first" if first else "the second"
        reason = f"only in {only} run"
        return {key: there[key] for key in _SAME} | {"status": NOT_COMPARABLE, "reason": reason, "metrics": {}}
    scenario, guest = tuple(first[key] for key in SCENARIO), first["environment"]
    facts = _differences(_decisive(published, scenario, guest), _decisive(again, scenario, guest))
    others = _differences(_others(published, guest), _others(again, guest))
    metrics = {
        name: _metric(one, second["metrics"][name], facts, margin_of(published))
        for name, one in first["metrics"].items()
        if name in second["metrics"] and one["applies"] and one["blocks"]
    }
    status, reason = _overall(metrics, facts)
    alike = not facts and not others
    return {key: first[key] for key in _SAME} | {
        "status": status,
        "reason": reason,
        "facts": facts,
        "other_differences": others,
        "metrics": metrics,
        "absolute": _absolute(published, again, scenario, (BASELINE, guest)) if alike else None,
    }


def _decisive(run: Run, scenario: tuple[str, ...], guest: str) -> dict[str, Any]:
    found = grounds(run, scenario, guest)
    for environment in (BASELINE, guest):
        facts = machine(run, scenario, environment)
        found |= {f"{name} on {environment}": value for name, value in facts.items() if name in DECISIVE}
    return found


def _others(run: Run, guest: str) -> dict[str, Any]:
    hosts = {facts.get("environment"): facts for facts in run.hosts.values()}
    return {f"{fact} on {e}": hosts.get(e, {}).get(fact) for e in (BASELINE, guest) for fact in ALIKE}


def _differences(first: dict[str, Any], second: dict[str, Any]) -> list[dict[str, Any]]:
    names = sorted(name for name in first.keys() | second.keys() if first.get(name) != second.get(name))
    return [{"fact": name, "published": first.get(name), "again": second.get(name)} for name in names]


def _metric(
    published: dict[str, Any], again: dict[str, Any], facts: list[dict[str, Any]], margin: float
) -> dict[str, Any]:
    shown = ("kind", "text", "bound", "blocks", "ratio", "ratio_low", "ratio_high")
    found = Agreement(NOT_COMPARABLE, _fact_words(facts)) if facts else agreement(published, again, margin)
    interval = found.interval and [math.exp(found.interval.low), math.exp(found.interval.high)]
    return {
        "status": found.status,
        "reason": found.reason,
        "change": None if found.change is None else math.exp(found.change),
        "change_interval": interval,
        "published": {key: published.get(key) for key in shown},
        "again": {key: again.get(key) for key in shown},
    }


def _overall(metrics: dict[str, dict[str, Any]], facts: list[dict[str, Any]]) -> tuple[str, str]:
    """Not reproduced when any metric is not; reproduced when one is and none is not."""
    if facts:
        return NOT_COMPARABLE, _fact_words(facts)
    statuses = [one["status"] for one in metrics.values()]
    for status in (NOT_REPRODUCED, REPRODUCED):
        if status in statuses:
            return status, ", ".join(name for name, one in metrics.items() if one["status"] == status)
    return NOT_COMPARABLE, next((one["reason"] for one in metrics.values()), "the first run has no figure to reproduce")


def _fact_words(facts: list[dict[str, Any]]) -> str:
    return "; ".join(f"{fact['fact']} differs" for fact in facts)


def _absolute(
    published: Run, again: Run, scenario: tuple[str, ...], environments: tuple[str, ...]
) -> dict[str, dict[str, float]]:
    """Per environment and figure: median again / median published."""
    found: dict[str, dict[str, float]] = {}
    for environment in environments:
        first, second = (_medians(run, scenario, environment) for run in (published, again))
        found[environment] = {name: second[name] / first[name] for name in first if name in second and first[name] > 0}
    return found


def _medians(run: Run, scenario: tuple[str, ...], environment: str) -> dict[str, float]:
    rows = run.cells[scenario]
    used = rows[(rows["environment"] == environment) & (rows["verdict"] != "invalid")]
    return {name: float(used[name].median()) for name in FIGURES if used[name].notna().any()}

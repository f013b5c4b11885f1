"""What two runs must share before their figures may be put side by side."""

from __future__ import annotations

from typing import Any

from analysis.load import AA_ARM, BASELINE, SCENARIO, Run

MACHINE_FACTS = ("cpu_model", "kernel", "memory_kib", "content_digest", "workers")
SERVER_FACTS = ("version", "binary_sha256", "config_sha256", "workers")
# Of these, the ones without which a ratio of two environments answers another question.
DECISIVE = frozenset({
    "cpu model", "workers", "content digest", "server version", "server binary sha256", "server config sha256",
    "server workers",
})  # fmt: skip


def grounds(run: Run, scenario: tuple[str, ...], environment: str) -> dict[str, Any]:
    """Facts without which the same scenario is another one: accelerator, lab, link, tools, and what was sent."""
    resolved = run.meta["experiment"].get("resolved", {})
    workload = resolved.get("workloads", {}).get(scenario[SCENARIO.index("workload")], {})
    facts = {"accelerator": run.accelerator(environment), "lab": run.meta.get("lab"), "link": run.meta.get("link")}
    tools = {scenario[SCENARIO.index("tool")], *run.cells[scenario]["twin"]} - {""}
    facts |= {f"version of {tool}": run.meta.get("versions", {}).get(tool) for tool in sorted(tools)}
    if workload:
        workload = {"kind": "closed", **workload}  # an older run had no other kind, and did not say so
    for kind, definition in (("workload", workload), ("site", resolved.get("site", {}))):
        facts |= {f"{kind} {key}": value for key, value in definition.items() if key not in ("name", "description")}
    return {name: value for name, value in facts.items() if value is not None}


def machine(run: Run, scenario: tuple[str, ...], environment: str) -> dict[str, Any]:
    """Facts of the machine and of the server that may well be why two runs differ."""
    place = BASELINE if environment == AA_ARM else environment
    host = next((facts for facts in run.hosts.values() if facts.get("environment") == place), {})
    server = host.get("servers", {}).get(scenario[0], {})
    facts = {fact.replace("_", " "): host.get(fact) for fact in MACHINE_FACTS}
    facts |= {f"server {fact.replace('_', ' ')}": server.get(fact) for fact in SERVER_FACTS}
    return {name: value for name, value in facts.items() if value is not None}

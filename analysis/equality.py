"""The equality proof: which facts of metal and guest are the same, which differ as declared, which else."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from analysis.load import AA_ARM, BASELINE, Run

EQUAL, DECLARED, UNDECLARED = "equal", "declared difference", "UNDECLARED DIFFERENCE"
PROOF = ("binary_sha256", "config_sha256", "workers", "version")
FACTS = (
    "kernel", "cmdline", "cpu_model", "cpus_allowed", "microcode", "mitigations", "governor", "smt",
    "numa_nodes", "clock_source", "memory_kib", "virtualization", "container", "nic", "sysctls", "packages",
    "servers", "content_digest", "workers",
)  # fmt: skip


@dataclass(frozen=True)
class Fact:
    """One compared fact; `values` maps environment → what to print, one entry when equal."""

    name: str
    status: str
    values: dict[str, str]


def equality(run: Run) -> list[Fact]:
    """Compare the machines under test; undeclared differences first, then declared ones, then what is equal."""
    machines = suts(run)
    if len(machines) < 2:
        return []
    declared = [str(item) for item in run.meta["differences"].get("declared", [])]
    flat = {environment: dict(_flatten(facts)) for environment, facts in machines.items()}
    names = list(dict.fromkeys(name for facts in flat.values() for name in facts))
    found = [_fact(name, {e: facts.get(name) for e, facts in flat.items()}, declared) for name in names]
    found = _runner_says(run, found)
    grouped = [f for f in found if f.status != EQUAL] + _group_equal([f for f in found if f.status == EQUAL])
    rank = {UNDECLARED: 0, DECLARED: 1, EQUAL: 2}
    return sorted(grouped, key=lambda fact: rank[fact.status])


def suts(run: Run) -> dict[str, dict[str, Any]]:
    """Environment → facts of its machine, for the environments of this run, the baseline first."""
    found = {str(f["environment"]): f for f in run.hosts.values() if isinstance(f, dict) and f.get("environment")}
    wanted = [e for e in dict.fromkeys([BASELINE, *run.environments]) if e != AA_ARM]
    return {e: found[e] for e in wanted if e in found}


def _flatten(facts: dict[str, Any], prefix: str = "") -> Iterable[tuple[str, str]]:
    for key, value in facts.items():
        if not prefix and key not in FACTS:
            continue
        name = f"{prefix}: {key}" if prefix else key
        if isinstance(value, dict):
            yield from _flatten(value, name)
        else:
            yield name, "—" if value is None else str(value)


def _fact(name: str, values: dict[str, str | None], declared: list[str]) -> Fact:
    printed = {environment: short("absent" if v is None else v) for environment, v in values.items()}
    if len(set(values.values())) == 1:
        return Fact(name, EQUAL, dict(list(printed.items())[:1]))
    return Fact(name, DECLARED if _is_declared(name, declared) else UNDECLARED, printed)


def _is_declared(name: str, declared: list[str]) -> bool:
    """`nic` declares `nic: driver` too."""
    return any(_covers(item, name) for item in declared)


def _covers(item: str, name: str) -> bool:
    return name == item or name.startswith(f"{item}: ")


def _runner_says(run: Run, found: list[Fact]) -> list[Fact]:
    """The runner compared the machines as they were; a difference that only it saw is added."""
    for item in run.meta["differences"].get("undeclared", []):
        name = str(item.get("fact"))
        if any(_covers(name, fact.name) and fact.status == UNDECLARED for fact in found):
            continue
        values = {str(e): short(str(v)) for e, v in dict(item.get("values") or {}).items()}
        found = [fact for fact in found if not _covers(name, fact.name)] + [Fact(name, UNDECLARED, values)]
    return found


def _group_equal(facts: list[Fact]) -> list[Fact]:
    """Package versions and kernel settings are many: one line each, with their count."""
    kept, counted = [], {"packages": 0, "sysctls": 0}
    for fact in facts:
        group, _, entry = fact.name.partition(": ")
        if group in counted and entry:
            counted[group] += 1
        else:
            kept.append(fact)
    words = {"packages": "package versions", "sysctls": "kernel settings (sysctl)"}
    kept += [Fact(words[g], EQUAL, {BASELINE: f"all {n} compared"}) for g, n in counted.items() if n]
    return sorted(kept, key=lambda fact: (not _is_proof(fact.name), fact.name))


def _is_proof(name: str) -> bool:
    return name.rpartition(": ")[2] in PROOF or name == "content_digest"


def short(value: str) -> str:
    """A digest by its first twelve digits, anything else whole."""
    hexadecimal = len(value) >= 40 and all(c in "0123456789abcdef" for c in value)
    return f"{value[:12]}…" if hexadecimal else value

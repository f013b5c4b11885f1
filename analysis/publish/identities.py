"""Which names a run knows, and what each becomes: machines take the names of their roles."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

from analysis.load import LoadError, Run
from analysis.publish.scrub import Scrubber

PRIVATE = "private.json"
_FULL_HOST_NAME = re.compile(r"([a-z][a-z0-9-]*)(?:\.[a-z0-9-]+)+", re.I)


def roles(hosts: dict[str, dict[str, Any]]) -> dict[str, str]:
    """Inventory name → `client`, the environment's name (`metal`, `kvm-default`), `kvm-host-1`, …"""
    found: dict[str, str] = {}
    seen: Counter[str] = Counter()
    for name, facts in hosts.items():
        role = str(facts.get("environment") or str(facts.get("role", "machine")).replace("_", "-"))
        seen[role] += 1
        numbered = role == "kvm-host" or seen[role] > 1
        found[name] = f"{role}-{seen[role]}" if numbered else role
    return found


def scrubber(run: Run) -> Scrubber:
    """All that is known about the run's machines and users, and the words of the run that must stay."""
    names = roles(run.hosts)
    private = _private(run.path / PRIVATE)
    known = dict(names)
    for host, texts in private.get("hosts", {}).items():
        known |= dict.fromkeys(texts, names.get(host, "[host]"))
    known |= dict.fromkeys(private.get("users", []), "[user]")
    for domain in _domains(run):
        known.setdefault(domain, "[guest]")
    for name, place in list(known.items()):
        if short := _FULL_HOST_NAME.fullmatch(name):
            known.setdefault(short[1], place)
    return Scrubber(known, _vocabulary(run) | frozenset(names.values()))


def domains(run: Run, scrub: Scrubber) -> dict[str, str]:
    """Libvirt domain → the name of its guest's role, or `guest-1`, … where nothing tells whose it is."""
    found: dict[str, str] = {}
    for number, domain in enumerate(_domains(run), start=1):
        place = scrub.known.get(domain, "[guest]")
        found[domain] = f"guest-{number}" if place.startswith("[") else place
    return found


def _domains(run: Run) -> list[str]:
    return [name for facts in run.hosts.values() for name in facts.get("domains") or {}]


def _vocabulary(run: Run) -> frozenset[str]:
    """What the run itself calls things: its lists and tables must go on to fit together."""
    experiment = run.meta["experiment"]
    words = {str(experiment.get("name", "")), *run.meta["accelerators"]}
    words |= {word for key in ("environments", "servers", "workloads") for word in experiment.get(key, [])}
    words.add(str(experiment.get("resolved", {}).get("site", {}).get("name", "")))
    for column in ("environment", "server", "workload", "tool", "twin"):
        words |= set(run.attempts[column])
    for facts in run.hosts.values():
        words |= set(facts.get("servers") or {})
    return frozenset(words - {""})


def _private(path: Path) -> dict[str, Any]:
    """What the runner wrote for this purpose alone; older runs have none."""
    if not path.exists():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise LoadError(f"{path}: {error}") from None
    if not isinstance(content, dict):
        raise LoadError(f"{path}: expected an object")
    return content

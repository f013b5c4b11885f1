"""The proof that the machines of a comparison differ only where the experiment says they may."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from workloads.runner.experiment import COMPARED_FACTS


class Difference(TypedDict):
    fact: str
    values: dict[str, Any]


class Differences(TypedDict):
    declared: list[str]
    undeclared: list[Difference]


def _compare(fact: str, values: dict[str, Any]) -> list[Difference]:
    texts = {json.dumps(v, sort_keys=True) for v in values.values()}
    return [] if len(texts) == 1 else [{"fact": fact, "values": values}]


def differences(suts: Mapping[str, Mapping[str, Any]], declared: Sequence[str]) -> Differences:
    """Compare the facts of each environment's machine.

    `declared` facts that do differ are listed by name; every other difference with its values. A fact that
    is a mapping is compared entry by entry, named `packages: nginx-light`.
    """
    found: list[Difference] = []
    passed: list[str] = []
    for fact in COMPARED_FACTS:
        values = {environment: facts.get(fact) for environment, facts in suts.items()}
        maps = {environment: v for environment, v in values.items() if isinstance(v, dict)}
        if len(maps) == len(values):
            names = sorted({name for v in maps.values() for name in v})
            here = [d for n in names for d in _compare(f"{fact}: {n}", {e: v.get(n) for e, v in maps.items()})]
        else:
            here = _compare(fact, values)
        if here and fact in declared:
            passed.append(fact)
        else:
            found += here
    return {"declared": passed, "undeclared": found}


def accelerator(role: str, virtualization: str, domain_xml: str) -> str:
    """`none`, `kvm` or `tcg`: KVM only when the guest's own word and its definition agree."""
    if role == "metal":
        return "none"
    defined = re.search(r"<domain[^>]*\btype=['\"](\w+)['\"]", domain_xml)
    return "kvm" if virtualization == "kvm" and defined and defined[1] == "kvm" else "tcg"

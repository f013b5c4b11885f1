"""Expand `vary` of an experiment's file: a change for each combination of the factors' values."""

import itertools
import re
from collections.abc import Iterator, Mapping
from typing import Any

# As YAML reads them.
_SWITCHES = {True: "on", False: "off"}


def expand(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """The document of an experiment with environments and changes in place of what `vary` stands for; without `vary`,
    or with what a run has recorded of it, the same one. Raises ValueError.
    """
    factors, environments = document.get("vary"), document.get("environments")
    if not isinstance(factors, Mapping) or not factors:
        return document
    if document.get("changes") and list(_machines(document)) == [environments]:
        return document
    if not isinstance(environments, list) or len(environments) != 1 or document.get("changes"):
        raise ValueError("vary: it needs one environment, which it varies, and no `changes`")
    for factor, values in factors.items():
        if not isinstance(values, list) or not values:
            raise ValueError(f"vary.{factor}: give a list of values")
    values_of = {
        str(factor): [_SWITCHES[value] if isinstance(value, bool) else value for value in values]
        for factor, values in factors.items()
    }
    arms = varied(environments[0], values_of)
    changes = {name: change for name, change in arms.items() if change}
    return {**document, "vary": values_of, "environments": list(arms), "changes": changes}


def _machines(document: Mapping[str, Any]) -> Iterator[list[str]]:
    """For each machine that is changed, the environments that `vary` makes of it."""
    changes = document["changes"]
    for of in dict.fromkeys(change.get("of") for change in changes.values()) if isinstance(changes, Mapping) else ():
        yield list(varied(str(of), document["vary"]))


def varied(of: str, factors: Mapping[str, list[Any]]) -> dict[str, dict[str, Any] | None]:
    """The environments of all combinations of these factors' values: name → the keys of its change, None for the
    machine as it is. `of`: the environment that names the machine. A factor with a dot is a kernel parameter.
    """
    environments: dict[str, dict[str, Any] | None] = {}
    for combination in itertools.product(*factors.values()):
        chosen = {factor: value for factor, value in zip(factors, combination, strict=True) if value is not None}
        sysctls = {factor: value for factor, value in chosen.items() if "." in factor}
        settings = {factor: value for factor, value in chosen.items() if factor not in sysctls}
        name = "-".join(f"{_slug(factor.rpartition('.')[2])}-{_slug(value)}" for factor, value in chosen.items())
        environments[name or of] = {"of": of, "settings": settings or None, "sysctls": sysctls} if chosen else None
    return environments


def _slug(text: object) -> str:
    return re.sub(r"[^a-z0-9]+", "-", str(text).lower()).strip("-")

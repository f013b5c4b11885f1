"""Expand what stands for more in an experiment's file: `vary` for an environment for each combination of the factors'
values, `during` for one for each guest and operation, `density` for the workload of its first tile.
"""

import itertools
import re
from collections.abc import Iterator, Mapping
from typing import Any

from vmtoll.model.inventory import HostTuning
from vmtoll.paths import VM_IMAGES
from vmtoll.spec.catalog import Registry, unknown
from vmtoll.spec.documents import Keys, read

# As YAML reads them.
_SWITCHES = {True: "on", False: "off"}
# What Linux allows as the name of a machine.
_LONGEST_NAME = 63
# What the names of kernels' packages begin with, which says nothing in the name of an environment.
_KERNEL = "linux-image-"


def expand(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """The document of an experiment with environments, profiles and changes in place of what `vary` stands for; without
    `vary`, or with what a run has recorded of it, the same one. Raises ValueError.
    """
    factors, environments = document.get("vary"), document.get("environments")
    if not isinstance(factors, Mapping) or not factors:
        return document
    if any(names == environments for names in _recorded(document)):
        return document
    made = document.get("changes") or document.get("profiles")
    if not isinstance(environments, list) or len(environments) != 1 or made:
        raise ValueError("vary: it needs one environment, which it varies, and neither `changes` nor `profiles`")
    for factor, values in factors.items():
        if not isinstance(values, list) or not values:
            raise ValueError(f"vary.{factor}: give a list of values")
        if numbers := [value for value in values if isinstance(value, float)]:
            raise ValueError(f"vary.{factor}: {numbers[0]} is a number, and YAML drops its zeros; quote it")
        _check_factor(str(factor), values)
    of, values_of = str(environments[0]), {str(factor): _values(values) for factor, values in factors.items()}
    of_profile = {factor: values for factor, values in values_of.items() if factor in profile_keys()}
    if of_profile and of in Registry().no_guests():
        raise ValueError(f"vary.{next(iter(of_profile))}: {of} has no guest profile; vary the environment of a guest")
    names, profiles, changes = varied(of, values_of)
    return {**document, "vary": values_of, "environments": names, "profiles": profiles, "changes": changes}


def _check_factor(factor: str, values: list[Any]) -> None:
    """Raise ValueError for a factor that is nothing to vary, and for values that are no texts or numbers."""
    allowed = [*profile_keys(), *HostTuning.model_fields]
    if factor not in allowed and "." not in factor:
        raise ValueError(f"vary: {unknown('factor', factor, allowed)}, or a kernel parameter, as `net.core.somaxconn`")
    lists = (list,) if isinstance(_defaults().get(factor), list) else ()
    for value in values:
        if not isinstance(value, (str, int, *lists, type(None))):
            what = "a list of texts" if lists else "a text or a number"
            raise ValueError(f"vary.{factor}: {value!r} is not {what}")


def profile_keys() -> list[str]:
    """The keys of a guest profile, each of which is a factor; see vm-images/defaults.yml."""
    return [key for key in _defaults() if key != "needs"]


def _defaults() -> Keys:
    return read(VM_IMAGES / "defaults.yml")


def _values(values: list[Any]) -> list[Any]:
    return [_SWITCHES[value] if isinstance(value, bool) else value for value in values]


def _recorded(document: Mapping[str, Any]) -> Iterator[list[str]]:
    """The lists of environments that `vary` makes of a machine that is changed, or of a profile that is built on."""
    made = [document.get("profiles"), document.get("changes")]
    variants = [variant for part in made if isinstance(part, Mapping) for variant in part.values()]
    for of in dict.fromkeys(variant.get("of") for variant in variants):
        yield varied(str(of), document["vary"])[0]


def varied(
    of: str, factors: Mapping[str, list[Any]]
) -> tuple[list[str], dict[str, dict[str, Any]], dict[str, dict[str, Any]]]:
    """The environments of all combinations of these factors' values, the guest profiles that they need, and the changes
    that they are: names, name → profile, name → change. `of`: the environment that they are made out of.

    A factor is a key of guest profiles, a setting, or, with a dot, a kernel parameter. A value that is null or empty
    leaves it as it is. Raises ValueError for two combinations of one name, or without a difference, and for a name
    that is too long.
    """
    keys = profile_keys()
    environments: dict[str, Any] = {}
    profiles: dict[str, dict[str, Any]] = {}
    changes: dict[str, dict[str, Any]] = {}
    for combination in itertools.product(*factors.values()):
        chosen = {f: value for f, value in zip(factors, combination, strict=True) if value not in (None, "", [])}
        of_profile = {factor: value for factor, value in chosen.items() if factor in keys}
        of_change = {factor: value for factor, value in chosen.items() if factor not in keys}
        machine = "-".join([of, *_words(of_profile)])
        name = "-".join([*_words(of_profile), *_words(of_change)]) if of_change else machine
        if environments.get(name) == chosen:
            raise ValueError(f"vary: two combinations are identical, both are {name}; remove a value")
        if environments.setdefault(name, chosen) != chosen:
            raise ValueError(f"vary: two combinations would be named {name}; give them profiles or `changes`")
        if len(name) > _LONGEST_NAME:
            raise ValueError(
                f"vary: the name {name} is longer than {_LONGEST_NAME} characters; write a separate profile for this "
                "guest"
            )
        if of_profile:
            profiles[machine] = {"of": of, "keys": of_profile}
        if of_change:
            sysctls = {factor: value for factor, value in of_change.items() if "." in factor}
            settings = {factor: value for factor, value in of_change.items() if factor not in sysctls}
            changes[name] = {"of": machine, "settings": settings or None, "sysctls": sysctls}
    return list(environments), profiles, changes


def _words(chosen: Mapping[str, Any]) -> list[str]:
    """`kernel-cloud-amd64`, `halt-poll-ns-0`: the factors by their last part, each with its value."""
    return [f"{_slug(factor.rpartition('.')[2])}-{_slug(value)}" for factor, value in chosen.items()]


def _slug(value: object) -> str:
    text = " ".join(map(str, value)) if isinstance(value, list) else str(value)
    return re.sub(r"[^a-z0-9]+", "-", text.removeprefix(_KERNEL).lower()).strip("-")


def expand_during(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """The document with each operation of `during` as a further environment, after those that it is compared with;
    without `during` the same one.

    A single operation has no name and no `of`: it happens to every guest, and `kvm-default-pause` is `kvm-default`
    with it. Raises ValueError.
    """
    during, environments = document.get("during"), document.get("environments")
    if not isinstance(during, Mapping) or not during or not isinstance(environments, list):
        return document
    if "do" in during:
        if "of" in during:
            raise ValueError("during: one operation without a name happens to every guest; leave `of` out, or name it")
        machines = [
            environment
            for environment in environments
            if environment not in (document.get("changes") or {})
            and (environment not in Registry().no_guests() or during.get("on") == "guest")
        ]
        named = {f"{machine}-{during['do']}": {"of": machine, **during} for machine in machines}
    else:
        named = dict(during)
    if not named:
        raise ValueError("during: no environment is a guest; name one in `environments`")
    return {**document, "during": named, "environments": list(dict.fromkeys([*environments, *named]))}


def expand_density(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """The document with the first tile's workload in `workloads`; without `density` the same one. Raises ValueError."""
    density = document.get("density")
    if not isinstance(density, Mapping):
        return document
    tiles = density.get("tiles")
    first = tiles[0] if isinstance(tiles, list) and tiles else None
    name = first.get("workload") if isinstance(first, Mapping) else None
    if document.get("workloads") not in (None, [name]):
        raise ValueError("density: its tiles name the workloads; leave `workloads` out")
    return {"noise_floor": None, **document, "workloads": [name or "idle"]}

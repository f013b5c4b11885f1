"""Expand `during` of an experiment's file: one operation becomes an environment for each guest."""

from collections.abc import Mapping
from typing import Any

from vmtoll.spec.catalog import Registry


def expand(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """The document with each operation of `during` as an environment of its own, after those that it is compared with;
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

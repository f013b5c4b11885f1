"""The inventory groups that vmtoll reads, and how it recognizes a misspelled one."""

from vmtoll.model.inventory import Role

GROUPS: tuple[tuple[str, Role], ...] = (
    ("clients", "client"),
    ("metal_hosts", "metal"),
    ("containers", "container"),
    ("kvm_guests", "kvm_guest"),
    ("kvm_hosts", "kvm_host"),
)
# All groups, with the parents of the machines under test and of the test beds.
KNOWN_GROUPS = frozenset((*(group for group, _ in GROUPS), "suts", "cells"))


def nearest(name: str) -> str | None:
    """The group that differs from a name by case alone, or by at most two letters; None without one."""
    return next((group for group in sorted(KNOWN_GROUPS) if is_within(name.lower(), group, 2)), None)


def is_within(name: str, other: str, edits: int) -> bool:
    """Return whether two names differ by at most this many inserted, deleted or replaced letters (Levenshtein)."""
    row = list(range(len(other) + 1))
    for number, letter in enumerate(name, start=1):
        previous, row[0] = row[0], number
        for column, other_letter in enumerate(other, start=1):
            cheapest = min(row[column] + 1, row[column - 1] + 1, previous + (letter != other_letter))
            previous, row[column] = row[column], cheapest
    return row[-1] <= edits

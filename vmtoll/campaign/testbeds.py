"""The test beds of an inventory: sets of machines that each measure on their own, and can do so in parallel."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vmtoll.model.errors import UserError
from vmtoll.spec.inventory import members, read_inventory
from vmtoll.spec.inventory_faults import read_valid_inventory
from vmtoll.spec.inventory_files import GROUPS

CELLS_GROUP = "cells"
ONLY_TEST_BED = "whole"  # the only test bed of an inventory that names none


@dataclass(frozen=True)
class Bed:
    """A test bed."""

    name: str
    hosts: Sequence[str]
    environments: frozenset[str]  # those under test
    limit: str | None  # Ansible's pattern of its machines, None for all


def read_testbeds(inventory: Path, limit: str | None = None) -> list[Bed]:
    """Read an inventory and return its test beds (`testbeds_in`). Raises UserError, InventoryError."""
    return testbeds_in(read_valid_inventory(inventory), inventory, limit)


def testbeds_in(data: Mapping[str, Any], inventory: Path, limit: str | None = None) -> list[Bed]:
    """The child groups of the group `cells`, by name; without child groups, all machines are one test bed.

    `data`: the inventory as `ansible-inventory --list` prints it. A `limit` keeps only the machines that it matches,
    for which Ansible reads the inventory again. Test beds without a client are left out. Raises UserError when two test
    beds share a machine, or none is left; InventoryError.
    """
    all_machines = _all_machines(data)
    matched = set(all_machines if limit is None else _all_machines(read_inventory(inventory, limit)))
    groups = {name: members(data, name) for name in sorted(data.get(CELLS_GROUP, {}).get("children", []))}
    _check_disjoint(inventory, groups)
    clients = matched.intersection(members(data, "clients"))
    beds = [_bed(name, hosts, matched, data) for name, hosts in (groups or {ONLY_TEST_BED: all_machines}).items()]
    beds_with_client = [bed for bed in beds if clients.intersection(bed.hosts)]
    if not beds_with_client:
        raise UserError(
            f"{inventory}: no test bed with a client"
            + (f" matches --limit {limit}" if limit else "; add one to the group `clients`")
        )
    return beds_with_client


def _all_machines(data: Mapping[str, Any]) -> list[str]:
    return list(dict.fromkeys(host for group, _ in GROUPS for host in members(data, group)))


def _bed(name: str, hosts: Sequence[str], matched: set[str], data: Mapping[str, Any]) -> Bed:
    """A test bed; its pattern is the group's name if all its machines match, else the matching machines' names."""
    variables = data.get("_meta", {}).get("hostvars", {})
    matched_hosts = [host for host in hosts if host in matched]
    environments = {str(variables.get(host, {}).get("vmtoll_environment")) for host in matched_hosts} - {"None"}
    whole_pattern = None if name == ONLY_TEST_BED else name
    return Bed(
        name,
        matched_hosts,
        frozenset(environments),
        whole_pattern if len(matched_hosts) == len(hosts) else ",".join(matched_hosts),
    )


def _check_disjoint(inventory: Path, groups: Mapping[str, Sequence[str]]) -> None:
    test_bed_of: dict[str, str] = {}
    for name, hosts in groups.items():
        for host in hosts:
            if host in test_bed_of:
                raise UserError(
                    f"{inventory}: {host} is in the test beds {test_bed_of[host]} and {name}, which measure at the"
                    " same time; leave it in one"
                )
            test_bed_of[host] = name

"""The commands `tune` and `untune`: apply performance settings to hosts, and restore what they were."""

import json
from pathlib import Path

from vmtoll.commands.answer import answer_changes
from vmtoll.commands.help import describe
from vmtoll.commands.options import CheckOption, InventoryOption, JsonOption, LimitOption
from vmtoll.lab import embedded
from vmtoll.machines.changed import check_reachable
from vmtoll.model.errors import UserError
from vmtoll.model.inventory import Host
from vmtoll.shell import Changes, play
from vmtoll.spec.inventory import members, names_in
from vmtoll.spec.inventory_faults import read_valid_inventory

describe("tune", "vmtoll tune -i lab.yml --check")


def tune(
    inventory: InventoryOption = None,
    limit: LimitOption = None,
    check: CheckOption = False,
    as_json: JsonOption = False,
) -> None:
    """Apply the performance settings in `vmtoll_tuning` of each host: governor, turbo, SMT, interrupts, …

    vmtoll checks all hosts first and changes nothing if one lacks a setting. It records each host's own settings before
    the first change; `vmtoll untune` restores them. docs/real-hosts.md has the settings.
    """
    path = inventory or embedded.require()
    hosts = _hosts(path, limit)
    if not any(host.vars.tuning for host in hosts):
        raise UserError(f"{path}: no host has vmtoll_tuning; set it as docs/real-hosts.md shows")
    check_reachable(hosts)
    _play(path, limit, "tuned", check=check, as_json=as_json)


describe("untune", "vmtoll untune -i lab.yml")


def untune(
    inventory: InventoryOption = None,
    limit: LimitOption = None,
    check: CheckOption = False,
    as_json: JsonOption = False,
) -> None:
    """Restore the settings from before `vmtoll tune`. Untuned hosts do not change."""
    path = inventory or embedded.require()
    hosts = _hosts(path, limit)
    if not hosts:  # Ansible would call that success
        raise UserError(f"{path}: no host to restore; give an --inventory with hosts")
    check_reachable(hosts)
    _play(path, limit, "restored", check=check, as_json=as_json)


def _hosts(path: Path, limit: str | None) -> list[Host]:
    """The hosts that tune.yml runs on, of any group."""
    data = read_valid_inventory(path, limit, purpose="hosts")
    named, variables = names_in(limit or "all"), data["_meta"]["hostvars"]
    added_kvm_hosts = set() if named & {"kvm_hosts", "all"} else {*members(data, "kvm_hosts")} - named
    hosts = [name for name in members(data, "all") if name not in added_kvm_hosts]
    return [Host(name, "kvm_host", variables.get(name, {}), str(path)) for name in hosts]


def _play(path: object, limit: str | None, state: str, *, check: bool, as_json: bool) -> None:
    options = ["-e", json.dumps({"host_tuning_state": state}), "--diff"]
    options += ["--check"] if check else []
    options += ["--limit", limit] if limit else []
    changes: Changes | None = {} if as_json else None
    play("tune.yml", *options, inventory=str(path), changes=changes)
    if changes is not None:
        answer_changes(changes, check=check)

"""Run `playbooks/site.yml` against an inventory, after making the guests and containers that it describes."""

import json
from pathlib import Path
from typing import Any

from vmtoll.builds import archives, servers, suite, tools
from vmtoll.machines.changed import check_reachable
from vmtoll.model.errors import UserError
from vmtoll.model.inventory import HostVars
from vmtoll.model.release import Release
from vmtoll.provisioning.containers import make_containers, prepare_runtime_hosts
from vmtoll.provisioning.guests import make_guests, watching
from vmtoll.shell import Changes, play
from vmtoll.spec.inventory import hosts_by_role, joined
from vmtoll.spec.inventory_faults import read_valid_inventory


def provision(
    inventory: Path,
    options: list[str],
    limit: str | None = None,
    release: Release | None = None,
    *,
    changes: Changes | None = None,
) -> list[dict[str, str]]:
    """Run site.yml, for containers container-site.yml, against an inventory, or against its machines that `limit`
    matches; return the load tools that they got.

    First makes the guests that the inventory describes by a profile, and its containers with vmtoll_cpus, of this
    release (default: release_of_guests). `changes`: as in shell.play.
    """
    data = read_valid_inventory(inventory, limit)
    by_role = hosts_by_role(data, str(inventory))
    # Guests and containers that vmtoll makes may not exist yet.
    check_reachable({host.name: host for hosts in by_role.values() for host in hosts if not host.is_made}.values())
    release = release or release_of_guests(data, inventory)
    removed = make_guests(data, inventory, options, release, changes=changes)
    removed += make_containers(data, inventory, options, release, changes=changes)
    prepare_runtime_hosts(by_role["container"], inventory, options, changes=changes)
    removed += [host.name for host in by_role["container"] if host.runtime]  # processes of their hosts
    tools.build()
    variables = archives.variables(_policy(data, inventory))
    pattern = joined(limit or "all", *(f"!{name}" for name in removed))
    for playbook in (
        "site.yml",
        *(["container-site.yml"] if any(host.runtime is None for host in by_role["container"]) else []),
    ):
        with watching(data, inventory) as watch:
            play(
                playbook, "-e", json.dumps(variables), "--limit", pattern, *options,
                inventory=inventory, changes=changes, watch=watch,
            )  # fmt: skip
    return variables["load_tools_binaries"]


def release_of_guests(inventory: dict[str, Any], path: Path) -> Release:
    """The release that an inventory sets for its guests, else that of suite.guest_release. Raises UserError."""
    return suite.guest_release(_uniform(inventory, path, "suite"))


def _policy(inventory: dict[str, Any], path: Path) -> servers.Policy:
    """Read the settings that all servers share from the inventory. Raises UserError where hosts disagree."""
    return servers.Policy(port=_uniform(inventory, path, "http_port"), workers=_uniform(inventory, path, "workers"))


def _uniform(inventory: dict[str, Any], path: Path, name: str) -> Any:
    """The value of vmtoll_<name>, its default where no host sets it. Raises UserError where hosts disagree."""
    hosts = [HostVars.read(host, facts, str(path)) for host, facts in inventory["_meta"]["hostvars"].items()]
    values = {getattr(host, name) for host in hosts if name in host.model_fields_set}
    if len(values) > 1:
        raise UserError(f"{path}: vmtoll_{name} must be the same on every host, but it is {sorted(values)}")
    return values.pop() if values else getattr(HostVars(), name)

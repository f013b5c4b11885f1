"""The machines of a run, read from an Ansible inventory."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from vmtoll.model.errors import InventoryError
from vmtoll.model.inventory import Host, Inventory, Role

GROUPS: tuple[tuple[str, Role], ...] = (
    ("clients", "client"),
    ("metal_hosts", "metal"),
    ("kvm_guests", "kvm_guest"),
    ("kvm_hosts", "kvm_host"),
)


def _ansible_inventory() -> str:
    installed = Path(sys.executable).parent / "ansible-inventory"
    program = str(installed) if installed.exists() else shutil.which("ansible-inventory")
    if not program:
        raise InventoryError("ansible-inventory is neither in this Python's folder nor on the PATH")
    return program


def joined(pattern: str, *more: str) -> str:
    """A pattern of hosts with more parts. Ansible takes commas between them or colons, never both in one pattern."""
    return ("," if "," in pattern else ":").join([pattern, *more])


def read_inventory(path: Path, limit: str | None = None) -> dict[str, Any]:
    """Return the output of `ansible-inventory --list` for the machines that `limit`, Ansible's pattern of hosts,
    matches.

    KVM hosts are always among them, because the guests on them need them. Raises InventoryError, also for a file that
    Ansible cannot parse: by itself Ansible goes on with no hosts.
    """
    if not path.exists():
        raise InventoryError(f"{path}: no such inventory; give a file or a folder with --inventory")
    if (path / "run.json").exists():  # Ansible would take its tables for lists of hosts
        raise InventoryError(f"{path}: the folder of a run, not an inventory; give an --inventory of hosts")
    environment = {
        **os.environ, "ANSIBLE_LOCALHOST_WARNING": "false", "ANSIBLE_NOCOLOR": "true",
        "ANSIBLE_INVENTORY_UNPARSED_FAILED": "true",
    }  # fmt: skip
    done = subprocess.run(
        [_ansible_inventory(), "-i", str(path), "--list", *(["--limit", joined(limit, "kvm_hosts")] if limit else [])],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=environment,
    )
    if done.returncode:
        raise InventoryError(f"{path}: {_cause(done.stderr, path)}")
    data = json.loads(done.stdout)
    if not isinstance(data, dict):
        raise InventoryError(f"{path}: ansible-inventory printed no mapping")
    return data


def _cause(stderr: str, path: Path) -> str:
    """Reason why Ansible could not read an inventory, as one sentence without tracebacks."""
    errors = re.findall(r"^\[?ERROR\]?: (.*)$", stderr, re.MULTILINE)
    if errors and "No inventory was parsed" not in errors[0]:
        error = re.sub(r"\[Errno \d+\] ", "", errors[0]).rstrip(".")
        error = f"{error[:1].lower()}{error[1:]}"
        return error + "; set ANSIBLE_HOME to a folder that can be written" * ("create local directories" in error)
    causes = dict(re.findall(r"Failed to parse inventory with '(\w+)' plugin: (.*)$", stderr, re.MULTILINE))
    plugins = ("script", "yaml", "ini") if path.suffix in {".yml", ".yaml", ".json"} else ("script", "ini", "yaml")
    cause = " ".join(next((causes[plugin] for plugin in plugins if plugin in causes), "").split())
    line = re.search(rf"^Origin: {re.escape(str(path.resolve()))}:(\d+)", stderr, re.MULTILINE)
    location = f"line {line[1]}: " if line else ""
    detail = f" ({location}{cause.removeprefix('Failed to parse inventory: ').rstrip('.')})" if cause else ""
    return f"Ansible finds no inventory in it{detail}; correct it, or give another --inventory"


def members(data: Mapping[str, Any], group: str) -> list[str]:
    """Names of the hosts of a group and of its child groups, each once."""
    entry = data.get(group, {})
    names = list(entry.get("hosts", []))
    for child in entry.get("children", []):
        names += [n for n in members(data, child) if n not in names]
    return names


def hosts_by_role(data: Mapping[str, Any], source: str = "inventory") -> dict[Role, list[Host]]:
    """Every machine that an inventory names, by its role."""
    variables = data.get("_meta", {}).get("hostvars", {})
    return {
        role: [Host(name, role, variables.get(name, {}), source) for name in members(data, group)]
        for group, role in GROUPS
    }


def from_data(
    data: Mapping[str, Any],
    environments: list[str],
    source: str = "inventory",
    guests: int = 1,
    optional: Collection[str] = (),
) -> Inventory:
    """Typed hosts for these environments, of a guest's as many as `guests`, all on one KVM host.

    An environment that is `optional` may have no machine: then it is not among the inventory's. Raises
    InventoryError when another has none, too few guests, or more machines than it can distinguish, and for a variable
    with a wrong value.
    """
    by_role = hosts_by_role(data, source)
    if not by_role["client"]:
        raise InventoryError(f"{source}: the group `clients` is empty: nothing would send load")
    candidates = by_role["metal"] + by_role["kvm_guest"]
    present = {host.vars.environment for host in candidates}
    environments = [name for name in environments if name in present or name not in optional]
    machines = {environment: _machines(candidates, environment, source, guests) for environment in environments}
    clients, under_test = by_role["client"], [host for hosts in machines.values() for host in hosts]
    needed = {host.vars.kvm_host for host in under_test if host.role == "kvm_guest"}
    needed |= {host.vars.container_host for host in (*clients, *under_test)}
    kvm_hosts = {host.name: host for host in by_role["kvm_host"] if host.name in needed}
    if missing := sorted(name for name in needed if name and name not in kvm_hosts):
        raise InventoryError(f"{source}: host {missing[0]!r} of a guest or container is not in the group `kvm_hosts`")
    inventory = Inventory(clients, machines, kvm_hosts)
    for host in inventory.hosts():
        host.check()
    return inventory


def _machines(candidates: Sequence[Host], environment: str, source: str, guests: int) -> list[Host]:
    """Machines of one environment: one machine, or the first `guests` of a KVM host's guests."""
    matching = [host for host in candidates if host.vars.environment == environment]
    on_one_host = len({host.vars.kvm_host for host in matching}) == 1 and all(h.role == "kvm_guest" for h in matching)
    if not matching or not (on_one_host or len(matching) == 1):
        present = sorted({str(host.vars.environment) for host in candidates})
        raise InventoryError(
            f"{source}: {len(matching)} hosts have vmtoll_environment {environment!r}, one is needed "
            f"(choose with --limit); in the groups `metal_hosts` and `kvm_guests` there are: "
            f"{', '.join(present) or 'none'}"
        )
    needed = guests if on_one_host else 1
    if len(matching) < needed:
        raise InventoryError(
            f"{source}: {len(matching)} guests on one host have vmtoll_environment {environment!r}, {needed} are needed"
        )
    return matching[:needed]


def load_inventory(
    path: Path, environments: list[str], guests: int = 1, limit: str | None = None, optional: Collection[str] = ()
) -> Inventory:
    """Read the inventory and find the machines of these environments; see from_data. Raises InventoryError."""
    source = f"{path} with --limit {limit}" if limit else str(path)
    return from_data(read_inventory(path, limit), environments, source, guests, optional)

"""An Ansible inventory, as Ansible reads it: groups, hosts, variables."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Hashable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from vmtoll import children
from vmtoll.model.errors import InventoryError
from vmtoll.model.inventory import Host, Role
from vmtoll.runs.folder import MANIFEST
from vmtoll.spec import inventory_files
from vmtoll.spec.catalog import Registry
from vmtoll.spec.inventory_files import GROUPS, KNOWN_GROUPS, is_within
from vmtoll.spec.runtimes import load as load_runtime
from vmtoll.spec.templates import evaluate

# Ansible's warning about a part of a group that it skips.
_LIMIT_S = 120
_SKIPPED = re.compile(
    r"Skipping (?:unexpected )?key \((?P<key>\S+?)\) in group \((?P<group>\S+?)\)"
    r"|Skipping '(?P<whole>\S+?)'(?= as this is not a valid group)"
)
_PARTS = ("hosts", "children", "vars")
# What decides the answer → Ansible's answer. Ansible takes half a second, and a command reads an inventory twice or
# three times.
_READ: dict[Hashable, "subprocess.CompletedProcess[str]"] = {}


def _ansible_inventory() -> str:
    installed = Path(sys.executable).parent / "ansible-inventory"
    program = str(installed) if installed.exists() else shutil.which("ansible-inventory")
    if not program:
        raise InventoryError("ansible-inventory is neither in this Python's folder nor on the PATH")
    return program


def joined(pattern: str, *more: str) -> str:
    """A pattern of hosts with more parts. Ansible separates them by commas or colons, never by both in one pattern."""
    return ("," if "," in pattern else ":").join([pattern, *more])


def names_in(limit: str) -> set[str]:
    """The machines and groups that a pattern names, without the KVM hosts that read_inventory adds."""
    return {*re.split("[,:]", limit)}


def read_inventory(path: Path, limit: str | None = None) -> dict[str, Any]:
    """Return the output of `ansible-inventory --list` for the machines that match `limit`, a pattern of Ansible's.

    KVM hosts are always among them, because the guests on them need them. Raises InventoryError, also for a file that
    Ansible cannot parse and a pattern without a match: Ansible itself would continue without those hosts.
    """
    if not path.exists():
        raise InventoryError(f"{path}: no such inventory; give a file or a folder with --inventory")
    if (path / MANIFEST).exists():  # Ansible would take its tables for lists of hosts
        raise InventoryError(f"{path}: the folder of a run, not an inventory; give an --inventory of hosts")
    inventory_files.refuse_duplicate_keys(path)
    environment = {
        **os.environ, "ANSIBLE_LOCALHOST_WARNING": "false", "ANSIBLE_NOCOLOR": "true",
        "ANSIBLE_INVENTORY_UNPARSED_FAILED": "true", "ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED": "true",
        "ANSIBLE_DUPLICATE_YAML_DICT_KEY": "ignore",  # its check would refuse what YAML's merge allows
    }  # fmt: skip
    command = [_ansible_inventory(), "-i", str(path), "--list"]
    command += ["--limit", joined(limit, "kvm_hosts")] if limit else []
    key = _all_that_decides(path, limit, environment)
    if key is None or (done := _READ.get(key)) is None:
        try:
            with children.command(environment) as marked:
                done = subprocess.run(
                    command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_LIMIT_S, check=False,
                    env=marked,
                )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise InventoryError(
                f"{path}: Ansible did not read it within {_LIMIT_S} s; try `ansible-inventory -i {path} --list`: a "
                "script or a plugin in it may wait"
            ) from None
        if key is not None and not done.returncode:
            _READ[key] = done
    if done.returncode:
        raise InventoryError(f"{path}: {_cause(done.stderr, path)}")
    unmatched = set(re.findall(r"Could not match supplied host pattern,\s+ignoring:\s+(\S+)", done.stderr))
    for skipped in _SKIPPED.finditer(" ".join(done.stderr.split())):
        group = skipped["whole"] or skipped["group"]
        is_misspelt = skipped["key"] and any(is_within(skipped["key"], part, 1) for part in _PARTS)
        if group == "all" or group in KNOWN_GROUPS or is_misspelt:  # not a key or group of another tool
            raise InventoryError(
                f"{path}: Ansible skips {skipped[0].removeprefix('Skipping ')}; a group has `hosts`, `children` and "
                "`vars`, each a mapping"
            )
    if unmatched_names := sorted(unmatched - {"kvm_hosts"}):
        raise InventoryError(f"{path}: --limit {limit}: no machine or group matches {unmatched_names[0]!r}; correct it")
    data = json.loads(done.stdout)
    if not isinstance(data, dict):
        raise InventoryError(f"{path}: ansible-inventory did not return a JSON object")
    if limit is None:
        inventory_files.refuse_unused_variables(path, data)
    evaluate(path, data)
    return data


def _all_that_decides(path: Path, limit: str | None, environment: Mapping[str, str]) -> Hashable:
    """Return what decides how Ansible reads a plain file of hosts; None where more than that does: for a folder, a
    script, a plugin's settings, and a file with variables in files beside it.
    """
    beside = (path.parent / name for name in ("group_vars", "host_vars"))
    if not path.is_file() or os.access(path, os.X_OK) or any(folder.exists() for folder in beside):
        return None
    text = path.read_bytes()
    settings = frozenset(item for item in environment.items() if item[0].startswith("ANSIBLE_") or item[0] == "HOME")
    return None if b"plugin" in text else (text, path.suffix, limit, Path.cwd(), settings)


def _cause(stderr: str, path: Path) -> str:
    """Reason why Ansible could not read an inventory, as one sentence without tracebacks."""
    errors = re.findall(r"^\[?ERROR\]?: (.*)$", stderr, re.MULTILINE)
    unparsed = re.search(r"ompletely failed to parse inventory source (.+?)\.?$", stderr, re.MULTILINE)
    if errors and not unparsed and "No inventory was parsed" not in errors[0]:
        error = re.sub(r"\[Errno \d+\] ", "", errors[0]).rstrip(".")
        error = f"{error[:1].lower()}{error[1:]}"
        return error + "; set ANSIBLE_HOME to a folder that can be written" * ("create local directories" in error)
    source = Path(unparsed[1]) if unparsed else path
    causes = dict(re.findall(r"Failed to parse inventory with '(\w+)' plugin: (.*)$", stderr, re.MULTILINE))
    plugins = ("script", "yaml", "ini") if source.suffix in {".yml", ".yaml", ".json"} else ("script", "ini", "yaml")
    cause = " ".join(next((causes[plugin] for plugin in plugins if plugin in causes), "").split())
    line = re.search(rf"^Origin: {re.escape(str(source.resolve()))}:(\d+)", stderr, re.MULTILINE)
    location = f"line {line[1]}: " if line else ""
    detail = f" ({location}{cause.removeprefix('Failed to parse inventory: ').rstrip('.')})" if cause else ""
    file_prefix = f"{source.name}: " if path.is_dir() else ""
    return f"{file_prefix}Ansible finds no inventory in it{detail}; correct it, or give another --inventory"


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
    by_role = {
        role: [Host(name, role, variables.get(name, {}), source) for name in members(data, group)]
        for group, role in GROUPS
    }
    carriers = {host.name: host for host in by_role["kvm_host"]}
    by_role["container"] = [_carried(host, carriers) for host in by_role["container"]]
    return by_role


def _carried(host: Host, carriers: Mapping[str, Host]) -> Host:
    """A container with its runtime and the host that starts it, where the inventory gives both."""
    name, carrier = host.variables.get("vmtoll_runtime"), carriers.get(str(host.variables.get("vmtoll_container_host")))
    if carrier is None or name not in Registry().paths["runtime"].names():
        return host
    return replace(host, runtime=load_runtime(str(name)), carrier=carrier)


def environments_of(inventory: Path) -> set[str]:
    """The values of vmtoll_environment in an inventory. Raises InventoryError."""
    hosts = read_inventory(inventory).get("_meta", {}).get("hostvars", {})
    names = [variables.get("vmtoll_environment", variables.get("vmtoll_runtime")) for variables in hosts.values()]
    return {str(name) for name in names if name is not None}

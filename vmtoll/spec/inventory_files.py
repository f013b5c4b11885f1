"""The inventory groups that vmtoll reads, and mistakes in an inventory's files that Ansible does not report: duplicate
keys, variables that no machine gets.
"""

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from vmtoll.model.errors import InventoryError
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
_YAML = {".yml", ".yaml", ".json"}
_IGNORED_SUFFIXES = ("~", ".orig", ".bak", ".cfg", ".retry", ".pyc", ".pyo")  # Ansible ignores these in a folder
_NAMESPACE = "vmtoll_"


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


def refuse_duplicate_keys(path: Path) -> None:
    """Raise InventoryError for a duplicate key in a mapping of YAML or JSON, or in a line or section of INI.

    A key may override a merged one (`<<`), as YAML allows. Ansible reports what is wrong with other files.
    """
    for file in [*_sources(path), *(file for _, file in _variable_files(path))]:
        text = file.read_text("utf-8", errors="replace")
        duplicates = _duplicates_in_yaml(text) if _is_yaml(file) else _duplicates_in_ini(text)
        for number, key in duplicates:
            raise InventoryError(f"{file}: line {number}: duplicate key {key}; leave one of them")


def refuse_unused_variables(path: Path, data: Mapping[str, Any]) -> None:
    """Raise InventoryError for a file of group_vars or host_vars that sets variables of ours for no machine.

    `data`: the output of ansible-inventory. If the inventory is a single file, other inventories may use the same
    folders: then only a file for a misspelled group of ours is an error.
    """
    names = {"group_vars": {*data, "all", "ungrouped"}, "host_vars": {*data.get("_meta", {}).get("hostvars", {})}}
    for kind, file in _variable_files(path):
        name = file.relative_to(_folder(path) / kind).parts[0]
        name = name.removesuffix(Path(name).suffix) if Path(name).suffix in _YAML else name
        is_misspelt = kind == "group_vars" and name not in KNOWN_GROUPS and nearest(name)
        is_mistake = name not in names[kind] and (path.is_dir() or is_misspelt)
        if is_mistake and _NAMESPACE in file.read_text("utf-8", errors="replace"):
            noun = "group" if kind == "group_vars" else "host"
            raise InventoryError(
                f"{file}: no {noun} {name!r} is in the inventory; correct the file's name, or remove it"
            )


def _folder(path: Path) -> Path:
    return path if path.is_dir() else path.parent


def _sources(path: Path) -> list[Path]:
    """The readable files of hosts and groups, without programs."""
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    visible = [file for file in files if not file.name.startswith(".") and not file.name.endswith(_IGNORED_SUFFIXES)]
    return [file for file in visible if file.is_file() and os.access(file, os.R_OK) and not os.access(file, os.X_OK)]


def _variable_files(path: Path) -> Iterator[tuple[str, Path]]:
    """Yield (folder, file) for the files of group_vars and host_vars next to an inventory."""
    for kind in ("group_vars", "host_vars"):
        for file in sorted((_folder(path) / kind).rglob("*")):
            if file.is_file() and os.access(file, os.R_OK) and not file.name.startswith("."):
                yield kind, file


def _is_yaml(file: Path) -> bool:
    """Return whether a file is YAML or JSON; in group_vars and host_vars every file is."""
    return file.suffix in _YAML or bool({"group_vars", "host_vars"}.intersection(file.parts))


def _duplicates_in_yaml(text: str) -> Iterator[tuple[int, str]]:
    """Line and key of each duplicate; none if the text is not YAML, which Ansible reports."""
    try:
        nodes: Sequence[yaml.Node] = [*yaml.compose_all(text, Loader=yaml.SafeLoader)]
    except yaml.YAMLError:
        return
    todo = [node for node in nodes if node is not None]
    while todo:
        node = todo.pop()
        if isinstance(node, yaml.MappingNode):
            seen: set[str] = set()
            for key, value in node.value:
                if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                    if key.value in seen:
                        yield key.start_mark.line + 1, key.value
                    seen.add(key.value)
                todo.append(value)
        elif isinstance(node, yaml.SequenceNode):
            todo.extend(node.value)


def _duplicates_in_ini(text: str) -> Iterator[tuple[int, str]]:
    """Line and key of each duplicate in a host's line or a section of variables."""
    section, seen = "", set[str]()
    for number, line in enumerate(text.splitlines(), start=1):
        if line.lstrip().startswith("["):
            section, seen = line.strip().strip("[]"), set()
            continue
        try:
            words = shlex.split(line, comments=True)
        except ValueError:
            continue
        if section.endswith(":vars"):
            words = [line.strip()] if "=" in line and not line.lstrip().startswith(("#", ";")) else []
        else:
            words, seen = words[1:], set()
        for word in words:
            key, is_given, _ = word.partition("=")
            if is_given and key.strip() in seen:
                yield number, key.strip()
            seen.add(key.strip())

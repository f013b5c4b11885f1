"""Values that a shell may complete: names of documents, runs and machines of the user's folder, and what vmtoll ships.

Nothing here loads more than it must, for a user waits for it at each press of a key.
"""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from vmtoll import search_path
from vmtoll.files import parse_yaml
from vmtoll.model.trial import NO_GUESTS
from vmtoll.paths import FOLDER_FILE, PLAYBOOKS, PROJECT, RESULTS, user_folder

_WORKLOADS = PROJECT / "workloads"


def experiments(incomplete: str) -> list[str]:
    """Experiments, and all of those that repeat a published one."""
    return _beginning(incomplete, [*search_path.experiments(_WORKLOADS).names(), "all"])


def workloads(incomplete: str) -> list[str]:
    """Files of workloads; variants of the one whose name is typed already."""
    files = search_path.workload_files(_WORKLOADS)
    names = files.names()
    variants = [name for stem in names if incomplete.startswith(f"{stem}-") for name in _variants(files.find(stem))]
    return _beginning(incomplete, dict.fromkeys([*names, *variants]))


def _variants(file: Path) -> Iterator[str]:
    axes = _yaml(file).get("variants", [])
    names = [file.stem]
    for axis in axes if isinstance(axes, list) else ():
        names = [f"{name}-{suffix}" for name in names for suffix in axis]
    yield from names if axes else ()


def servers(incomplete: str) -> list[str]:
    """Servers."""
    return _beginning(incomplete, search_path.servers().names())


def environments(incomplete: str) -> list[str]:
    """Environments: metal, containers, container runtimes and guest profiles."""
    return _beginning(incomplete, [*NO_GUESTS, *search_path.runtimes().names(), *search_path.environments().names()])


def profiles(incomplete: str) -> list[str]:
    """Guest profiles in a list that commas separate."""
    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in _beginning(last, search_path.environments().names())]


def topologies(incomplete: str) -> list[str]:
    """Shapes of the embedded lab."""
    return _beginning(incomplete, sorted(file.stem for file in (PLAYBOOKS / "topologies").glob("*.yml")))


def notebooks(incomplete: str) -> list[str]:
    """Notebooks."""
    folder = PROJECT / "analysis" / "notebooks"
    return _beginning(incomplete, sorted(file.stem for file in folder.glob("*.py")))


def runs(incomplete: str) -> list[str]:
    """Folders of runs as seen from here: the newest of all, then by experiment, the newest first."""
    results = Path(os.path.relpath(RESULTS))
    folders = sorted((file.parent for file in results.glob("*/*/run.json")), key=lambda run: (run.parent, run.name))
    newest_first = sorted(folders, key=lambda run: run.name, reverse=True)
    latest = [results / "latest"] if (results / "latest").exists() else []
    return _beginning(incomplete, map(str, [*latest, *newest_first]))


def hosts(incomplete: str) -> list[str]:
    """Machines of the folder's lab.yml."""
    return _beginning(incomplete, _in_lab("hosts"))


def hosts_and_groups(incomplete: str) -> list[str]:
    """Machines and groups of the folder's lab.yml."""
    return _beginning(incomplete, dict.fromkeys([*_in_lab("hosts"), *_in_lab("children")]))


def _in_lab(key: str) -> Iterator[str]:
    folder = user_folder()
    if folder:
        yield from dict.fromkeys(_under(_yaml(folder / FOLDER_FILE), key))


def _under(node: Any, key: str) -> Iterator[str]:
    """The names under this key anywhere in an inventory."""
    if isinstance(node, dict):
        for name, value in node.items():
            if name == key and isinstance(value, dict):
                yield from map(str, value)
            yield from _under(value, key)


def _yaml(file: Path) -> dict[str, Any]:
    """A document; an empty one where there is a mistake, of which the command itself tells."""
    import yaml  # noqa: PLC0415 (few values need it)

    try:
        content = parse_yaml(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        return {}
    return content if isinstance(content, dict) else {}


def _beginning(incomplete: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]

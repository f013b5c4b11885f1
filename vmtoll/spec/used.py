"""The files that an experiment was read from, for the record of a run."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from vmtoll.model.run import UsedFile
from vmtoll.search_path import SearchPath
from vmtoll.spec.catalog import Registry
from vmtoll.spec.documents import read
from vmtoll.spec.server import read_server, template_file


def documents(registry: Registry, names: Mapping[str, Iterable[str]]) -> list[UsedFile]:
    """The files of these documents (by kind), of what they build on, and the servers' templates; each once, sorted."""
    used: dict[str, UsedFile] = {}
    for kind, of_kind in names.items():
        path = registry.paths[kind]
        for file in (file for name in of_kind for file in _files(registry, kind, path, name)):
            used.setdefault(str(file), _described(file, kind, path))
    return sorted(used.values(), key=lambda each: (each.file, each.own))


def _files(registry: Registry, kind: str, path: SearchPath, name: str) -> Iterator[Path]:
    file = path.find(name)
    if not file.exists():  # of a bundle that is measured again
        return
    yield file
    of = read(file).get("of", []) if kind in ("server", "environment") else []
    for base in [of] if isinstance(of, str) else of:
        yield from _files(registry, kind, path, base)
    if kind == "server":
        folder = registry.servers_folder()
        for template in read_server(name, folder).templates:
            if (part := template_file(name, template, folder)).exists():
                yield part


def _described(file: Path, kind: str, path: SearchPath) -> UsedFile:
    folder = next(folder for folder in path.folders if file.is_relative_to(folder))
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    return UsedFile(file=f"{kind}s/{file.relative_to(folder)}", sha256=digest, own=folder == path.own)

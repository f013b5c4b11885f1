"""What an experiment is made of: its files, for the record of a run, and the source archives of its servers.

Servers that no distribution ships are measured when the user has their source archive, else skipped.

`server.yml` names project, version and licence under `source`; the user's `sources.yml`, in their folder or next to the
README, has the archive's path and digest: `thttpd: {path: /home/me/thttpd-2.29.tar.gz, sha256: …}`.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field, ValidationError

from vmtoll.model.document import Document
from vmtoll.model.run import UsedFile
from vmtoll.search_path import SearchPath
from vmtoll.spec.catalog import Registry
from vmtoll.spec.documents import read, validation_error
from vmtoll.spec.server import ServerDefinition, read_server, template_file

FILE = "sources.yml"


class Archive(Document):
    """Archive that the user has, and its digest as the user knows it."""

    path: str
    sha256: str = Field(pattern="^[0-9a-f]{64}$")


def read_archives(root: Path) -> dict[str, Archive]:
    """The user's archives by server; none without sources.yml. Raises ExperimentError naming file and key."""
    file = root / FILE
    if not file.exists():
        return {}
    archives = {}
    for server, data in read(file).items():
        try:
            archives[server] = Archive.model_validate(data)
        except ValidationError as error:
            raise validation_error(file, Archive, error) from None
    return archives


@dataclass(frozen=True)
class Sources:
    """Sources of an experiment's servers: `versions` of those that are built from an archive, and `skipped` with the
    reason.
    """

    versions: dict[str, str]
    skipped: dict[str, str]


def find_sources(registry: Registry, servers: Mapping[str, ServerDefinition]) -> Sources:
    """Look up the sources of these servers. Raises ExperimentError."""
    archives, sources = read_archives(registry.sources_folder()), Sources({}, {})
    for server, definition in servers.items():
        source = definition.source
        if not source:
            continue
        version_text = f"{source.project} {source.version}"
        if server in archives:
            sources.versions[server] = f"{version_text}, archive {archives[server].sha256}"
        else:
            why = f"source not available: {version_text} is in no distribution; say in {FILE} where its archive is"
            sources.skipped[server] = why
    return sources


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

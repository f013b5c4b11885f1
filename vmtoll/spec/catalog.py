"""Names that an experiment may use, found by listing folders; nothing is registered by hand."""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vmtoll import loadgen, search_path
from vmtoll.model.trial import METAL, NO_GUESTS
from vmtoll.paths import LOAD_TOOLS, PROJECT, user_folder
from vmtoll.search_path import SearchPath
from vmtoll.shell import say


@dataclass(frozen=True)
class Registry:
    """The names that an experiment may use: those of the user's folder over those under one project folder."""

    root: Path = PROJECT

    @property
    def paths(self) -> Mapping[str, SearchPath]:
        """Kind of document → where it is searched."""
        paths = [
            search_path.experiments(self.root / "workloads"), search_path.workload_files(self.root / "workloads"),
            search_path.sites(self.root / "workloads" / "sites"), search_path.servers(self.servers_folder()),
            search_path.environments(self.images_folder()), search_path.runtimes(self.images_folder()),
        ]  # fmt: skip
        return {path.kind: path for path in paths}

    def experiments(self) -> list[str]:
        return self.paths["experiment"].names()

    def workloads(self) -> list[str]:
        return self.paths["workload"].names()

    def sites(self) -> list[str]:
        return self.paths["site"].names()

    def servers(self) -> list[str]:
        return self.paths["server"].names()

    def environments(self) -> list[str]:
        return [*self.no_guests(), *self.paths["environment"].names()]

    def no_guests(self) -> list[str]:
        """`metal`, containers that are machines, and container runtimes."""
        return [*NO_GUESTS, *self.paths["runtime"].names()]

    def guest_file(self, profile: str) -> Path:
        return self.paths["environment"].find(profile)

    def tools(self) -> list[str]:
        return loadgen.names(self.tools_folder())

    def tools_folder(self) -> Path:
        return LOAD_TOOLS if self.root == PROJECT else self.root / "vmtoll" / "loadgen"

    def experiment_file(self, name: str) -> Path:
        return self.paths["experiment"].find(name)

    def servers_folder(self) -> Path:
        return self.root / "server-builds"

    def images_folder(self) -> Path:
        return self.root / "vm-images"

    def server_file(self, name: str) -> Path:
        return self.paths["server"].find(name)

    def workload_file(self, name: str) -> Path:
        return self.paths["workload"].find(name)

    def site_file(self, name: str) -> Path:
        return self.paths["site"].find(name)

    def sources_folder(self) -> Path:
        """Return the folder whose sources.yml names the user's archives."""
        own = user_folder()
        return own if own and (own / "sources.yml").exists() else self.root

    def own(self) -> dict[str, list[str]]:
        """Return the names of the user's documents by kind."""
        return {kind: [name for name in path.names() if path.is_own(name)] for kind, path in self.paths.items()}

    def say_hidden(self, names: Mapping[str, Iterable[str]]) -> None:
        """Say, once each, which of these documents (by kind) are the user's and stand over shipped ones."""
        for kind, of_kind in names.items():
            path = self.paths[kind]
            for name in of_kind:
                if path.hidden(name) and (kind, name) not in _said:
                    _said.add((kind, name))
                    say(f"{kind} {name}: {path.find(name)}, in place of the one that vmtoll ships")


_said: set[tuple[str, str]] = set()


def unknown(kind: str, value: object, allowed: Sequence[str]) -> str:
    """One sentence: the value, the name that was probably meant, the names that are allowed."""
    close = difflib.get_close_matches(str(value), allowed, n=1)
    hint = f" (did you mean {close[0]!r}?)" if close else ""
    return f"unknown {kind} {value!r}{hint}; allowed: {', '.join(allowed) or 'none exist'}"


__all__ = ["METAL", "Registry", "unknown"]

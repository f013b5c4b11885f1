"""Where a document of a name is: in the user's own folder first, then in what vmtoll ships."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from vmtoll.paths import SERVER_BUILDS, SITES, VM_IMAGES, user_folder


@dataclass(frozen=True)
class SearchPath:
    """Folders that hold documents of one kind, the one whose documents count first."""

    kind: str  # the word for one of these documents
    folders: Sequence[Path]
    own: Path | None = None  # the user's folder, the first where there is one
    file: str = "{}.yml"  # a document in any of them

    @classmethod
    def over(cls, shipped: Path, own: str, kind: str, file: str = "{}.yml") -> "SearchPath":
        """A shipped folder, with the one of this name in the user's folder over it."""
        folder = user_folder()
        if folder is None:
            return cls(kind, [shipped], None, file)
        return cls(kind, [folder / own, shipped], folder / own, file)

    def names(self) -> list[str]:
        """Return the names of all documents, each once, sorted."""
        return sorted({name for folder in self.folders for name in self.names_in(folder)})

    def names_in(self, folder: Path) -> Iterator[str]:
        """Yield the names of the documents in one of the folders."""
        for file in folder.glob(self.file.format("*")):
            yield file.relative_to(folder).parts[0].removesuffix(".yml")

    def find(self, name: str) -> Path:
        """Return the file of a document; of an unknown one the file that would make it known."""
        files = [folder / self.file.format(name) for folder in self.folders]
        return next((file for file in files if file.exists()), files[0])

    def part(self, name: str, part: str) -> Path:
        """Return a file that belongs to a document, such as a server's template: the first that there is."""
        files = [(folder / self.file.format(name)).parent / part for folder in self.folders]
        return next((file for file in files if file.exists()), files[-1])

    def is_own(self, name: str) -> bool:
        """Return whether a document is the user's."""
        return self.own is not None and (self.own / self.file.format(name)).exists()

    def hidden(self, name: str) -> Path | None:
        """Return the shipped document that the user's one of the same name stands over; None without one."""
        files = [folder / self.file.format(name) for folder in self.folders if folder != self.own]
        return next((file for file in files if file.exists()), None) if self.is_own(name) else None


def experiments(workloads: Path) -> SearchPath:
    """Experiments, over those of a shipped folder of workloads."""
    return SearchPath.over(workloads / "experiments", "experiments", "experiment")


def workload_files(workloads: Path) -> SearchPath:
    """Files of workloads; one may have several variants."""
    return SearchPath.over(workloads, "workloads", "workload")


def sites(shipped: Path = SITES) -> SearchPath:
    """Sites: content and mixes of URLs."""
    return SearchPath.over(shipped, "sites", "site")


def servers(shipped: Path = SERVER_BUILDS) -> SearchPath:
    """Servers: a folder each, which has a server.yml."""
    return SearchPath.over(shipped, "servers", "server", "{}/server.yml")


def runtimes(images: Path = VM_IMAGES) -> SearchPath:
    """Container runtimes that are environments."""
    return SearchPath.over(images / "runtimes", "runtimes", "runtime")


def environments(images: Path = VM_IMAGES) -> SearchPath:
    """Guest profiles, and other environments of guests."""
    return SearchPath.over(images / "guests", "environments", "environment")

"""Names that an experiment may use, found by listing folders; nothing is registered by hand."""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vmtoll import loadgen
from vmtoll.model.trial import METAL
from vmtoll.paths import PROJECT


@dataclass(frozen=True)
class Registry:
    """The names that an experiment may use, under one project folder."""

    root: Path = PROJECT

    def experiments(self) -> list[str]:
        return _stems(self.root / "workloads" / "experiments")

    def workloads(self) -> list[str]:
        return _stems(self.root / "workloads")

    def sites(self) -> list[str]:
        return _stems(self.root / "workloads" / "sites")

    def servers(self) -> list[str]:
        return sorted(p.parent.name for p in (self.root / "server-builds").glob("*/server.yml"))

    def environments(self) -> list[str]:
        return [METAL, *_stems(self.root / "vm-images" / "guests")]

    def guest_file(self, profile: str) -> Path:
        return self.root / "vm-images" / "guests" / f"{profile}.yml"

    def tools(self) -> list[str]:
        return loadgen.names(self.tools_folder())

    def tools_folder(self) -> Path:
        return self.root / "vmtoll" / "loadgen"

    def experiment_file(self, name: str) -> Path:
        return self.root / "workloads" / "experiments" / f"{name}.yml"

    def servers_folder(self) -> Path:
        return self.root / "server-builds"

    def server_file(self, name: str) -> Path:
        return self.root / "server-builds" / name / "server.yml"

    def workload_file(self, name: str) -> Path:
        return self.root / "workloads" / f"{name}.yml"

    def site_file(self, name: str) -> Path:
        return self.root / "workloads" / "sites" / f"{name}.yml"


def _stems(folder: Path) -> list[str]:
    return sorted(p.stem for p in folder.glob("*.yml"))


def unknown(kind: str, value: object, allowed: Sequence[str]) -> str:
    """One sentence: the value, the name that was probably meant, the names that are allowed."""
    close = difflib.get_close_matches(str(value), allowed, n=1)
    hint = f" (did you mean {close[0]!r}?)" if close else ""
    return f"unknown {kind} {value!r}{hint}; allowed: {', '.join(allowed) or 'none exist'}"


__all__ = ["METAL", "Registry", "unknown"]

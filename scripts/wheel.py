"""Hatch's hook for a wheel: it records the commit, which an installation cannot ask git for."""

import subprocess
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Commit(BuildHookInterface[Any]):
    """Adds vmtoll/_data/commit; a source distribution without git has none."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the commit to a file outside of the tree, for the wheel."""
        if version == "editable" or not (head := self._git("rev-parse", "HEAD")):
            return
        self.folder = tempfile.TemporaryDirectory(prefix="vmtoll-wheel-")
        file = Path(self.folder.name, "commit")
        file.write_text(head + ("-dirty" if self._git("status", "--porcelain") else "") + "\n", encoding="utf-8")
        build_data["force_include"][str(file)] = "vmtoll/_data/commit"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove that file."""
        if hasattr(self, "folder"):
            self.folder.cleanup()

    def _git(self, *words: str) -> str:
        try:
            command = ["git", "-C", self.root, *words]
            return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
        except OSError:
            return ""

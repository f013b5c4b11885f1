"""Version and commit of this vmtoll: git's in a checkout, recorded in an installation."""

import subprocess
import tomllib
from importlib.metadata import version as installed_version

from vmtoll.paths import INSTALLED, PROJECT


def version() -> str:
    """Return the version."""
    if INSTALLED:
        return installed_version("vmtoll")
    with (PROJECT / "pyproject.toml").open("rb") as handle:
        return str(tomllib.load(handle)["project"]["version"])


def commit() -> str | None:
    """Return the commit, with -dirty where files differ from it; None where it is not known."""
    if INSTALLED:
        file = PROJECT / "commit"
        return file.read_text(encoding="utf-8").strip() if file.exists() else None
    head = _git("rev-parse", "HEAD")
    return (head + ("-dirty" if _git("status", "--porcelain") else "")) if head else None


def _git(*words: str) -> str:
    try:
        done = subprocess.run(["git", "-C", str(PROJECT), *words], capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip()

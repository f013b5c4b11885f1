"""The load tools, and the container runtime, that Debian does not package: built once on the controller, cached under
a key of their recipe.

`python -m vmtoll.builds.tools` builds all of them.
"""

import hashlib
import os
from collections.abc import Collection
from pathlib import Path

from vmtoll.files import lock
from vmtoll.paths import CACHE, LOAD_TOOLS
from vmtoll.shell import run, say

RUNTIMES = Path(__file__).parent / "runtimes"


def binaries(folder: Path = LOAD_TOOLS) -> list[dict[str, str]]:
    """Return [{name, key, binary}] of each tool that has a Makefile, sorted by name; `build` makes the binaries."""
    return [_binary(recipe.parent) for recipe in sorted(folder.glob("*/Makefile"))]


def build(names: Collection[str] | None = None, folder: Path = LOAD_TOOLS, kind: str = "load tool") -> None:
    """Build these tools (default: all) if they have a Makefile and are not in the cache. `kind`: what they are.

    `make OUT=<file>` in the tool's folder makes one static program. Raises UserError with the last line of a failed
    build.
    """
    with lock("tools"):
        for recipe in sorted(folder.glob("*/Makefile")):
            if names is None or recipe.parent.name in names:
                _build(recipe.parent, kind)


def program(name: str, folder: Path, kind: str) -> Path:
    """The program of this recipe in `folder`, from the cache; builds it first if needed. `kind`: what it is."""
    build([name], folder, kind)
    return Path(_binary(folder / name)["binary"])


def runtime(name: str) -> Path:
    """The program of a container runtime that vmtoll builds, from the cache; builds it first if needed."""
    return program(name, RUNTIMES, "container runtime")


def put_on_path(names: Collection[str]) -> None:
    """Build these tools if they are not in the cache, and put them first on this process's PATH."""
    build(names)
    folder = CACHE / "tools" / "bin"
    folder.mkdir(parents=True, exist_ok=True)
    for tool in binaries():
        if tool["name"] in names:
            partial = folder / f".{tool['name']}.{os.getpid()}"
            partial.symlink_to(tool["binary"])
            partial.replace(folder / tool["name"])
    os.environ["PATH"] = f"{folder}:{os.environ['PATH']}"


def _binary(folder: Path) -> dict[str, str]:
    key = _key(folder)
    return {"name": folder.name, "key": key, "binary": str(CACHE / "tools" / f"{folder.name}-{key}")}


def _build(folder: Path, kind: str) -> None:
    name, binary = folder.name, Path(_binary(folder)["binary"])
    if not binary.exists():
        binary.parent.mkdir(parents=True, exist_ok=True)
        partial, log = binary.with_suffix(f".{os.getpid()}"), CACHE / "logs" / f"build-{name}.log"
        log.unlink(missing_ok=True)
        say(f"building the {kind} {name}, once")
        run(["nice", "make", "-s", "-C", folder, f"OUT={partial}"], log=log)  # a lab may be booting meanwhile
        partial.rename(binary)


def _key(folder: Path) -> str:
    """Digest of the recipe: every file in the folder except Python files (the adapter)."""
    digest = hashlib.sha256()
    for file in sorted(path for path in folder.iterdir() if path.is_file() and path.suffix != ".py"):
        digest.update(f"{file.name}\n".encode() + hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()[:16]


if __name__ == "__main__":
    build()

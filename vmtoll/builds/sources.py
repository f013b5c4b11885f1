"""Servers that vmtoll builds from the user's source archives: checked, unpacked and built once on the controller."""

import hashlib
import tempfile
from pathlib import Path

from vmtoll.model.errors import UserError
from vmtoll.paths import CACHE
from vmtoll.shell import run
from vmtoll.spec.server import Source
from vmtoll.spec.sources import FILE, Archive


def binary(name: str, source: Source, archive: Archive) -> bytes:
    """Return the program `source.makes` that `source.make` builds from the archive.

    Caches it under a key of archive and recipe. Raises UserError naming the server when the archive is missing, differs
    from the one in `sources.yml`, or does not build.
    """
    cached = CACHE / "sources" / f"{name}-{_key(archive, source)}"
    content = _checked_path(name, archive)
    if not cached.exists():
        cached.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f"vmtoll-{name}-") as folder:
            program = _build(Path(folder), name, source, content)
            partial = cached.with_suffix(".partial")
            partial.write_bytes(program.read_bytes())
            partial.rename(cached)
    return cached.read_bytes()


def _key(archive: Archive, source: Source) -> str:
    return hashlib.sha256(f"{archive.sha256} {sorted(source.model_dump().items())}".encode()).hexdigest()[:16]


def _checked_path(name: str, archive: Archive) -> Path:
    path = Path(archive.path).expanduser()
    if not path.is_file():
        raise UserError(f"{FILE}: {name}.path: no file {path}")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if digest != archive.sha256:
        raise UserError(f"{FILE}: {name}.sha256: {path} has {digest}; it is another archive than the one you named")
    return path


def _build(folder: Path, name: str, source: Source, archive: Path) -> Path:
    """Unpack into `folder` and build there, or in the archive's single top folder; return the built program."""
    try:
        run(["tar", "-xf", archive, "-C", folder])
    except UserError as error:
        raise UserError(f"{FILE}: {name}.path: {error}") from error
    [tree, *others] = sorted(folder.iterdir()) or [folder]
    tree = folder if others or not tree.is_dir() else tree
    log = CACHE / "logs" / f"build-{name}.log"
    log.unlink(missing_ok=True)
    run(["sh", "-ec", source.make], log=log, cwd=tree)
    program: Path = tree / source.makes
    if not program.is_file():
        raise UserError(f"server-builds/{name}/server.yml: source.makes: the build made no {source.makes}; see {log}")
    return program

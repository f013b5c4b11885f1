"""The bundle's checksums: SHA256SUMS lists every file; `sha256sum -c SHA256SUMS` and `verify` check them."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from vmtoll.files import cause_of
from vmtoll.model.errors import LoadError
from vmtoll.runs.folder import SUMS

_LINE = re.compile(r"([0-9a-f]{64})  ([A-Za-z0-9][A-Za-z0-9._-]*)")


def seal(folder: Path) -> None:
    """Write SHA256SUMS over every other file of the folder."""
    lines = [f"{digest(file)}  {file.name}\n" for file in sorted(folder.iterdir()) if file.name != SUMS]
    (folder / SUMS).write_text("".join(lines), encoding="utf-8")


def verify(folder: Path) -> None:
    """Prove that the folder holds the files of SHA256SUMS, unchanged, and no other.

    Raises LoadError with the name of the first file that is missing, changed or extra.
    """
    sealed = _read(folder / SUMS)
    present = {entry.name for entry in folder.iterdir()} - {SUMS}
    for name in sorted(sealed.keys() | present):
        file = folder / name
        if name not in present:
            raise LoadError(f"{file}: missing, though {SUMS} names it; the bundle is not whole")
        if name not in sealed or file.is_symlink() or not file.is_file():
            raise LoadError(f"{file}: not a file of this bundle; {SUMS} does not name it")
        if digest(file) != sealed[name]:
            raise LoadError(f"{file}: changed since it was published; its checksum is not that of {SUMS}")


def is_bundle(folder: Path) -> bool:
    return (folder / SUMS).exists()


def check_writable(folder: Path, way_out: str) -> None:
    """Raise LoadError for a bundle or a folder in one: with another file in it, commands would reject the bundle."""
    if bundle := next((each for each in (folder, *folder.absolute().parents) if is_bundle(each)), None):
        raise LoadError(f"{bundle}: a bundle is read-only; {way_out}")


def digest(file: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with file.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def _read(sums: Path) -> dict[str, str]:
    try:
        lines = sums.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise LoadError(f"{sums}: {cause_of(error)}; give a folder that `vmtoll publish` wrote") from None
    digests: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        match = _LINE.fullmatch(line)
        if not match or match[2] in digests:
            raise LoadError(f"{sums}: line {number} is not a checksum and the name of a file of this folder")
        digests[match[2]] = match[1]
    if not digests:
        raise LoadError(f"{sums}: empty; the bundle is not whole")
    return digests

"""Write files that survive a crash, by drafts that leave nothing behind, with errors that name the file. Lock files.
Parse YAML.
"""

import fcntl
import os
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from vmtoll.model.errors import VmtollError
from vmtoll.paths import STATE


def parse_yaml(text: str) -> Any:
    """The value of a YAML text, by libyaml where PyYAML has it, which is ten times as fast. Raises yaml.YAMLError."""
    import yaml  # noqa: PLC0415 (few commands need it)

    return yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def write_durably(path: Path, data: bytes) -> None:
    """Replace a file atomically and durably: a reader, or a machine that lost power, sees the old or the new file."""
    with replacing(path) as draft, draft.open("wb") as handle:
        handle.write(data)
        handle.flush()
        os.fsync(handle.fileno())
    sync_folder(path.parent)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield the path of a draft next to a file or folder; at the end the draft replaces it.

    An error or ^C removes the draft and keeps the old file or folder. An OSError names `path`, never the draft.
    """
    draft = path.with_name(f".{path.name}.partial")
    try:
        with writing(path, draft):
            _remove(draft)
            yield draft
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            draft.replace(path)
    except BaseException:
        with suppress(OSError):
            _remove(draft)
        raise


def _remove(draft: Path) -> None:
    if draft.is_dir() and not draft.is_symlink():
        shutil.rmtree(draft)
    else:
        draft.unlink(missing_ok=True)


@contextmanager
def writing(path: Path, draft: Path | None = None) -> Iterator[None]:
    """Set the path of an OSError that names no file, such as a write to a full disk, or that names the draft."""
    try:
        yield
    except OSError as error:
        named = Path(os.fsdecode(error.filename)) if isinstance(error.filename, str | bytes) else None
        if named is None or (draft and draft in (named, *named.parents)):
            error.filename, error.filename2 = str(path), None
        raise


@contextmanager
def locked(file: Path, busy: VmtollError | str) -> Iterator[None]:
    """Hold a lock, which the kernel releases when its holder dies. While another process has it: raises `busy`, or
    prints that text and waits.
    """
    with file.open("a") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            if isinstance(busy, VmtollError):
                raise busy from None
            print(busy, file=sys.stderr, flush=True)
            fcntl.flock(stream, fcntl.LOCK_EX)
        yield


@contextmanager
def lock(name: str) -> Iterator[None]:
    """Hold a lock, so that two commands do not change the same thing at once: wait for the other, and say so."""
    STATE.mkdir(parents=True, exist_ok=True, mode=0o711)
    with locked(STATE / f"{name}.lock", f"vmtoll: another vmtoll is working on the {name}; waiting for it"):
        yield


def cause_of(error: OSError | ValueError) -> str:
    """The reason why a file cannot be read or written, without its name and without `[Errno 13]`."""
    return (isinstance(error, OSError) and error.strerror) or " ".join(str(error).split())


def first_line(error: Exception) -> str:
    """Return the first line of a DuckDB error, without the error's class; the lines after it quote data and SQL."""
    line = (str(error).splitlines() or [""])[0]
    return re.sub(r"^[A-Z][A-Za-z ]* Error: ", "", line).rstrip(".")


def sync_folder(folder: Path) -> None:
    """Make the entries of a folder durable (fsync)."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

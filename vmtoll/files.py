"""Files that survive a crash, and errors of writing that say where."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def write_durably(path: Path, data: bytes) -> None:
    """Replace a file in one step: a reader, or a machine that lost power, sees the old or the new one."""
    fresh = path.with_name(f".{path.name}.new")
    with writing(path), fresh.open("wb") as handle:
        handle.write(data)
        handle.flush()
        os.fsync(handle.fileno())
    fresh.replace(path)
    sync_folder(path.parent)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Give this path to an OSError that has none, such as that of a write to a full disk."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

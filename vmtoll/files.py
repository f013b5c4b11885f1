"""Files that survive a crash."""

import os
from pathlib import Path


def write_durably(path: Path, data: bytes) -> None:
    """Replace a file in one step: a reader, or a machine that lost power, sees the old or the new one."""
    fresh = path.with_name(f".{path.name}.new")
    with fresh.open("wb") as handle:
        handle.write(data)
        handle.flush()
        os.fsync(handle.fileno())
    fresh.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

"""A disk of a few MiB, to be filled."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def mounted(folder: Path, size_mib: int) -> Iterator[Path]:
    """Mount a small disk at a new folder; skip the test unless the user is root."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small disk needs root")
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size_mib}m", "tmpfs", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def fill(disk: Path) -> None:
    """Write until no room is left."""
    with (disk / "filler").open("ab", buffering=0) as handle:
        try:
            while handle.write(bytes(4096)):
                pass
        except OSError:
            return

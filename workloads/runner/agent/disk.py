"""What this kernel reads from its disks, and what it keeps of them."""

from __future__ import annotations

import os
import re
from pathlib import Path

from workloads.runner.agent.machine import read

DROP = Path("/proc/sys/vm/drop_caches")


def read_kib() -> int:
    """KiB that this kernel has read from its disks since boot; what a page cache answered is not in it."""
    found = re.search(r"^pgpgin (\d+)$", read("/proc/vmstat"), re.MULTILINE)
    return int(found[1]) if found else 0


def drop_caches() -> None:
    """Write back what is dirty, then forget every clean page, name and inode. Raises RuntimeError where that is not
    allowed: a container's kernel is its host's.
    """
    os.sync()
    try:
        DROP.write_text("3\n", encoding="ascii")
    except OSError as error:
        raise RuntimeError(f"this machine may not drop its caches: {error}") from error

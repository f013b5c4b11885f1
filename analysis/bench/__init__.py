"""Time and memory of what has to be fast enough."""

import re
from pathlib import Path


def peak_mb() -> float:
    """This process's peak memory in MB (10⁶ bytes), by Linux's own account of it.

    Not `ru_maxrss`: that keeps, through fork and exec, the peak of whoever started the process.
    """
    kib = re.search(r"^VmHWM:\s+(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert kib is not None
    return int(kib[1]) * 1024 / 1e6

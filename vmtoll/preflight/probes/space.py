"""Usage: space.py FOLDER… — prints the MiB that root can still write in each folder, and the MiB of free memory."""

import json
import os
import sys
from pathlib import Path


def free_mib(folder: str) -> int:
    """MiB left on the disk that has the folder, or would have it."""
    path = Path(folder)
    while not path.exists():
        path = path.parent
    disk = os.statvfs(path)
    return disk.f_bfree * disk.f_frsize >> 20


memory = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
print(
    json.dumps(
        {
            "free_mib": {folder: free_mib(folder) for folder in sys.argv[1:]},
            "memory_mib": int(memory["MemAvailable"].split()[0]) >> 10,
        }
    )
)

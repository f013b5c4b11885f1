"""Find the server of a machine of the tests."""

import contextlib
from pathlib import Path


def server_pids(root: Path) -> list[int]:
    """The processes of the server that runs on the configuration in `root`."""
    pids = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if f"{root}/lighttz.conf" in path.read_text():
                pids.append(int(path.parent.name))
    return pids

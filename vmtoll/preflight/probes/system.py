"""Print the distribution, systemd's version and whether it started this machine."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path


def systemd() -> int | None:
    """The version of systemd; None without systemd."""
    if not shutil.which("systemctl"):
        return None
    done = subprocess.run(["systemctl", "--version"], stdout=subprocess.PIPE, text=True, check=True)
    return int(done.stdout.split()[1])


lines = [line.partition("=") for line in Path("/etc/os-release").read_text().splitlines()]
release = {key: value.strip("\"'") for key, _, value in lines}
print(
    json.dumps(
        {
            "id": release.get("ID", "unknown"),
            "version": release.get("VERSION_ID", ""),
            "apt": shutil.which("apt-get") is not None,
            "systemd": systemd(),
            "booted": Path("/run/systemd/system").is_dir(),
        }
    )
)

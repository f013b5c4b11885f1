"""A real sshd on a port of this machine, with keys of its own."""

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.ports import free_port

SSHD = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin") or "/usr/sbin/sshd"
_PRIVILEGES = Path("/run/sshd")  # the folder that sshd of root is confined to


@contextmanager
def sshd(folder: Path) -> Iterator[Mapping[str, Any]]:
    """The variables of an inventory by which this user reaches this machine over SSH."""
    port = free_port()
    for name in ("host", "client"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    settings = {
        "Port": port, "ListenAddress": "127.0.0.1", "HostKey": folder / "host", "PidFile": "none", "UsePAM": "no",
        "AuthorizedKeysFile": folder / "client.pub", "StrictModes": "no", "PermitRootLogin": "prohibit-password",
    }  # fmt: skip
    config = folder / "sshd_config"
    config.write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
    made = os.geteuid() == 0 and not _PRIVILEGES.exists()
    if made:
        _PRIVILEGES.mkdir(mode=0o755)
    log = folder / "log"
    argv = [SSHD, "-D", "-f", str(config), "-E", str(log)]
    with subprocess.Popen(argv) as daemon:
        try:
            while "listening on" not in (log.read_text() if log.exists() else ""):
                assert daemon.poll() is None, f"{SSHD}: see {log}"
            yield {
                "ansible_host": "127.0.0.1",
                "ansible_port": port,
                "ansible_ssh_private_key_file": str(folder / "client"),
                "ansible_ssh_common_args": f"-o StrictHostKeyChecking=no -o UserKnownHostsFile={folder}/known",
            }
        finally:
            daemon.terminate()
            if made:
                _PRIVILEGES.rmdir()

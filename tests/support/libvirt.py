"""A real libvirtd with QEMU's driver, as root, with folders of its own."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from vmtoll.paths import PLAYBOOKS

FILES = PLAYBOOKS / "roles" / "embedded_lab" / "files"
# Why libvirtd cannot run here, for `pytest.mark.skipif`; empty if it can.
MISSING = "it needs root" if os.geteuid() else "" if shutil.which("libvirtd", path="/usr/sbin") else "no libvirtd here"


@contextmanager
def libvirtd(folder: Path, qemu_conf: str = "", enter: Sequence[str] = ()) -> Iterator[str]:
    """Start a libvirtd like the lab's, with its files in this folder; yield its URI. `qemu_conf`: more lines of it;
    `enter`: words that start it in another namespace.
    """
    for name in ("etc", "lib", "cache", "log", "run"):
        (folder / name).mkdir()
    for name in ("libvirtd.conf", "qemu.conf"):
        shutil.copy(FILES / name, folder / "etc")
    with (folder / "etc" / "qemu.conf").open("a") as config:
        config.write(qemu_conf)
    uri = f"qemu+unix:///system?socket={folder}/run/libvirt-sock"
    argv: list[str | Path] = [*enter, "unshare", "--mount", "sh", FILES / "libvirtd.sh", folder]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as daemon:
        wait_for_libvirt(uri, daemon)
        try:
            yield uri
        finally:
            daemon.terminate()


def wait_for_libvirt(uri: str, daemon: "subprocess.Popen[bytes]") -> None:
    """Wait until a libvirtd that was started answers."""
    deadline = time.monotonic() + 60
    while subprocess.run(["virsh", "-c", uri, "version"], capture_output=True, check=False).returncode:
        assert daemon.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.2)

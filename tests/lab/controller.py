"""A machine for vmtoll itself: Debian with systemd as its first process, this project and what is in its caches.

It has this machine's release, because this project's Python environment is copied to it.
"""

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.ports import free_port
from vmtoll.builds import emulator, image, machine_disk
from vmtoll.builds.suite import guest_release
from vmtoll.paths import CACHE, PROJECT
from vmtoll.shell import run, say

PATIENCE_S = 3600
RECIPE = {
    "include": [line for line in (PROJECT / "packages.txt").read_text().splitlines() if line and line[0] != "#"]
    + ["cargo-web", "golang-go", "libvirt-daemon-system"],
    "unmask": ["dev-hugepages.mount", "sys-kernel-debug.mount", "systemd-logind.service"],
    "disk_gib": 40,
}


def disk(folder: Path) -> Path:
    """A disk with a clone of the project where it is here, its environment, its tools and the lab's image."""
    folder.mkdir(parents=True, exist_ok=True)
    lab_image, clone = image.ensure(say, guest_release()), folder / "clone"
    run(["git", "clone", "--quiet", PROJECT, clone])
    run(["cp", "--archive", PROJECT / ".venv", clone / ".venv"])
    caches = [*(CACHE / name for name in ("tools", "sites", "tls")), *CACHE.glob("servers-*.tar"), lab_image]
    carried = {clone: PROJECT.relative_to("/")} | {path: path.relative_to("/") for path in caches}
    made = folder / "controller.qcow2"
    machine_disk.build(lab_image, made, RECIPE, carried)
    return made


@contextmanager
def booted(folder: Path, memory_mib: int = 8192) -> Iterator[list[str]]:
    """The machine, emulated, with SSH on a port of the loopback; the words before a command that it shall run."""
    made, lab_image, key = disk(folder), image.ensure(say, guest_release()), folder / "key"
    run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key])
    port = free_port()
    credentials = {"ssh.authorized_keys.root": key.with_suffix(".pub"), "vmtoll.ssh_host_key": key}
    argv = [str(emulator.ensure(say)), "-M", "q35", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2"]
    argv += ["-m", str(memory_mib), "-nodefaults", "-display", "none", "-serial", f"file:{folder}/console.log"]
    argv += ["-kernel", f"{lab_image}/vmlinuz", "-initrd", f"{lab_image}/initrd.img", "-append"]
    argv += ["root=LABEL=vmtoll rw console=ttyS0 quiet net.ifnames=0 ip=eth0:dhcp tsc=reliable "
             "systemd.hostname=controller"]  # fmt: skip
    argv += ["-drive", f"file={made},if=virtio,cache=unsafe,format=qcow2", "-device", "virtio-rng-pci"]
    argv += ["-netdev", f"user,id=net,hostfwd=tcp:127.0.0.1:{port}-:22", "-device", "virtio-net-pci,netdev=net"]
    for name, file in credentials.items():
        argv += ["-fw_cfg", f"name=opt/io.systemd.credentials/{name},file={file}"]
    reach = ["ssh", "-i", str(key), "-p", str(port), "-o", "StrictHostKeyChecking=no", "-o", "LogLevel=ERROR",
             "-o", f"UserKnownHostsFile={folder}/known", "-o", "ConnectTimeout=90", "root@127.0.0.1"]  # fmt: skip
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL) as machine:
        try:
            deadline = time.monotonic() + PATIENCE_S
            while subprocess.run([*reach, "true"], capture_output=True, check=False).returncode:
                assert machine.poll() is None, "the machine ended"
                assert time.monotonic() < deadline, (folder / "console.log").read_text()[-2000:]
                time.sleep(2)
            yield reach
        finally:
            machine.terminate()

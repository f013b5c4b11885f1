"""The disk of the lab's virtual machines, next to the image: its root filesystem and what a KVM host needs."""

import hashlib
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vmtoll.builds import tools
from vmtoll.builds.image import DBUS_ID, IMAGES, Say, make_disk
from vmtoll.files import lock, parse_yaml
from vmtoll.paths import CACHE, VM_IMAGES
from vmtoll.shell import run

RECIPE = VM_IMAGES / "machine.yml"


def ensure(image: Path, say: Say) -> Path:
    """Make the disk for the image in this folder unless it exists; return its file.

    The disk has the guests' image where provisioning looks for it, so provisioning need not copy it to a KVM host, and
    the compiled load tools where clients have them; `tools.build` must have made them.
    """
    disk = image / _name()
    with lock("image"):
        if not disk.exists():
            say(f"image {image.name}: disk of virtual machines")
            for old in image.glob("machine-*.qcow2"):
                old.unlink()
            images = Path("var/lib/libvirt/images/vmtoll") / image.name
            files = {image / name: images / name for name in ("guest.qcow2", "vmlinuz", "initrd.img")}
            files |= {Path(tool["binary"]): Path("usr/local/bin", tool["name"]) for tool in tools.binaries()}
            build(image, disk, parse_yaml(RECIPE.read_text()), files)
    return disk


def _name() -> str:
    """File name of the disk, with a digest of everything that decides its content except the image next to it."""
    digest = hashlib.sha256(RECIPE.read_bytes() + Path(__file__).read_bytes())
    digest.update(" ".join(tool["binary"] for tool in tools.binaries()).encode())
    return f"machine-{digest.hexdigest()[:8]}.qcow2"


def build(image: Path, disk: Path, recipe: Mapping[str, Any], files: Mapping[Path, Path]) -> None:
    """Make a disk of the image's root filesystem, a recipe's packages, and files or folders of this machine.

    `files`: file or folder → its path in the new root. Raises UserError with the command that failed.
    """
    log, work = CACHE / "logs" / f"image-{image.name}.log", IMAGES / f".partial-machine-{image.name}"
    root = work / "root"
    _remove(work)
    for part in ("upper", "work", "root"):
        (work / part).mkdir(parents=True)
    layers = f"lowerdir={image}/root,upperdir={work}/upper,workdir={work}/work"
    run(["mount", "-t", "overlay", "overlay", "-o", layers, root])
    try:
        enter = ["systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--link-journal=no"]
        enter += ["--resolv-conf=copy-host"]
        enter += ["--timezone=off", "--setenv=DEBIAN_FRONTEND=noninteractive", f"--directory={root}"]
        run([*enter, "apt-get", "-q", "update"], log=log)
        run([*enter, "apt-get", "-qy", "--no-install-recommends", "install", *recipe["include"]], log=log)
        run([*enter, "apt-get", "clean"], log=log)
        for verb in ("unmask", "disable"):
            for unit in recipe.get(verb, []):
                run(["systemctl", f"--root={root}", verb, unit], log=log)
        for path in (
            *root.glob("var/lib/apt/lists/*_*"),
            *root.glob("etc/ssh/ssh_host_*"),
            root / "etc/resolv.conf",
            root / DBUS_ID,
        ):
            path.unlink(missing_ok=True)
        (root / "etc/machine-id").write_text("")
        for source, target in files.items():
            (root / target).parent.mkdir(parents=True, exist_ok=True)
            run(["cp", "--archive", source, root / target])
        partial = work / disk.name
        make_disk(root, partial, recipe["disk_gib"], log)
        partial.rename(disk)
    finally:
        _remove(work)


def _remove(work: Path) -> None:
    """Remove the work folder, and unmount what a killed build left mounted in it."""
    if f" {work}/root " in Path("/proc/self/mounts").read_text():
        run(["umount", work / "root"])
    shutil.rmtree(work, ignore_errors=True)

"""The disk of the lab's virtual machines: the image's root filesystem, and what a KVM host needs, next to the image."""

import hashlib
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from vmtoll.builds import tools
from vmtoll.builds.image import DBUS_ID, IMAGES, Say, make_disk
from vmtoll.paths import CACHE, VM_IMAGES
from vmtoll.shell import lock, run

RECIPE = VM_IMAGES / "machine.yml"


def ensure(image: Path, say: Say) -> Path:
    """Make the disk for the image in this folder where it is not there yet; its file.

    The guests' image lies in it where provisioning looks for it, so that a KVM host of the lab has it already. The load
    tools that are compiled lie where clients have them; `tools.build` must have made them.
    """
    disk = image / _name()
    with lock("image"):
        if not disk.exists():
            say(f"image {image.name}: disk of virtual machines")
            for old in image.glob("machine-*.qcow2"):
                old.unlink()
            images = Path("var/lib/libvirt/images/vmtoll") / image.name
            carried = {image / name: images / name for name in ("guest.qcow2", "vmlinuz", "initrd.img")}
            carried |= {Path(tool["binary"]): Path("usr/local/bin", tool["name"]) for tool in tools.binaries()}
            build(image, disk, yaml.safe_load(RECIPE.read_text()), carried)
    return disk


def _name() -> str:
    """File name of the disk, by the digest of all that decides its content but the image, in whose folder it lies."""
    digest = hashlib.sha256(RECIPE.read_bytes() + Path(__file__).read_bytes())
    digest.update(" ".join(tool["binary"] for tool in tools.binaries()).encode())
    return f"machine-{digest.hexdigest()[:8]}.qcow2"


def build(image: Path, disk: Path, recipe: Mapping[str, Any], carried: Mapping[Path, Path]) -> None:
    """Make a disk of the image's root filesystem, a recipe's packages and files or folders of this machine.

    `carried`: each, and where in the new root it goes. Raises UserError with the command that failed.
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
        for source, target in carried.items():
            (root / target).parent.mkdir(parents=True, exist_ok=True)
            run(["cp", "--archive", source, root / target])
        made = work / disk.name
        make_disk(root, made, recipe["disk_gib"], log)
        made.rename(disk)
    finally:
        _remove(work)


def _remove(work: Path) -> None:
    """Also what a build that was killed has left mounted."""
    if f" {work}/root " in Path("/proc/self/mounts").read_text():
        run(["umount", work / "root"])
    shutil.rmtree(work, ignore_errors=True)

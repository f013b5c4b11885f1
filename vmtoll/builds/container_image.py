"""The image of a release for containers: the files of its root filesystem."""

from pathlib import Path

from vmtoll.files import lock, replacing
from vmtoll.shell import run

# Containers share the kernel of their host.
_LEFT_OUT = ("boot/*", "usr/lib/modules/*", "initrd.img*", "vmlinuz*")


def root_archive(folder: Path) -> Path:
    """The files of an image (see image.ensure) as root.tar.gz in its folder, without kernels; made where it is missing.

    Raises UserError when tar fails.
    """
    archive = folder / "root.tar.gz"
    with lock("image"):
        if not archive.exists():
            with replacing(archive) as draft:
                left_out = [f"--exclude=./{part}" for part in _LEFT_OUT]
                how = ["--numeric-owner", "--xattrs", "-I", "gzip -1", *left_out]
                run(["tar", "-C", folder / "root", *how, "-cf", draft, "."])
    return archive

"""A kernel for the counting machine, from the lab's image or a Debian package, and its modules."""

import gzip
import lzma
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from vmtoll.model.errors import UserError
from vmtoll.shell import run

# What host.sh uses, what host-init mounts, and what ext4 asks for by alias; what the guest's card needs.
HOST_MODULES = ("virtio_pci", "virtio_blk", "crc32c_generic", "ext4", "kvm_amd", "vhost_net", "tun", "bridge", "veth")
GUEST_MODULES = ("virtio_pci", "virtio_net")
_OPTIONAL = ("crc32c_generic",)  # since Linux 6.14 in the kernel itself
_READERS: Mapping[str, Callable[[Path], bytes]] = {
    ".ko": Path.read_bytes,
    ".xz": lambda file: lzma.decompress(file.read_bytes()),
    ".gz": lambda file: gzip.decompress(file.read_bytes()),
}


@dataclass(frozen=True)
class Kernel:
    """`source`: what it was taken from; `vmlinuz`: its file; `tree`: lib/modules/RELEASE."""

    source: str
    vmlinuz: Path
    tree: Path

    @property
    def release(self) -> str:
        """As `uname -r` has it."""
        return self.tree.name

    def modules(self, names: Iterable[str]) -> dict[str, bytes]:
        """These modules and their dependencies, name → content, in the order in which to load them. Without those that
        are built into the kernel.

        Raises UserError for a module that the kernel lacks.
        """
        result: dict[str, bytes] = {}
        for name in names:
            for needed in self._needed(name):
                if needed not in result:
                    result[needed] = self._content(needed)
        return result

    def _needed(self, name: str) -> Iterator[str]:
        """The module's dependencies, then the module itself."""
        if name in self._built_in or (name in _OPTIONAL and name not in self._files):
            return
        match = re.search(rb"\0depends=([^\0]*)\0", self._content(name))
        for needed in match[1].decode().split(",") if match and match[1] else []:
            yield from self._needed(_name(needed))
        yield name

    def _content(self, name: str) -> bytes:
        if name not in self._files:
            raise UserError(f"{self.source}: its kernel, {self.release}, has no module {name}")
        file = self._files[name]
        reader = _READERS.get(file.suffix)
        if reader is None:
            raise UserError(
                f"{self.source}: vmtoll cannot decompress {file.name}; compress modules as .xz or .gz, or not at all"
            )
        return reader(file)

    @cached_property
    def _files(self) -> dict[str, Path]:
        return {_name(file.name): file for file in self.tree.rglob("*.ko*")}

    @cached_property
    def _built_in(self) -> set[str]:
        file = self.tree / "modules.builtin"
        return {_name(line.rpartition("/")[2]) for line in file.read_text().splitlines()} if file.exists() else set()


def _name(file: str) -> str:
    return file.partition(".")[0].replace("-", "_")


def of_image(image: Path) -> Kernel:
    """The kernel of the lab's image."""
    return Kernel(str(image), image / "vmlinuz", next((image / "root/lib/modules").iterdir()))


def of_package(package: Path, folder: Path) -> Kernel:
    """The kernel of a Debian package (linux-image-…, or what `make bindeb-pkg` writes), unpacked into this folder.

    Raises UserError for a package without a kernel or without modules.
    """
    run(["dpkg-deb", "--extract", package, folder])
    for vmlinuz in folder.glob("boot/vmlinuz-*"):
        release = vmlinuz.name.removeprefix("vmlinuz-")
        for tree in (folder / "lib/modules" / release, folder / "usr/lib/modules" / release):
            if tree.exists():
                return Kernel(str(package), vmlinuz, tree)
        raise UserError(f"{package}: has a kernel but no /lib/modules/{release}; give a package with both")
    raise UserError(f"{package}: has no /boot/vmlinuz-…; give a package linux-image-RELEASE")

"""Packages of kernels, and a made-up kernel's modules for tests that start none."""

import lzma
import subprocess
from pathlib import Path

# path below kernel/ → the modules that it needs
MODULES = {
    "net/core/failover.ko.xz": "", "drivers/net/net_failover.ko": "failover",
    "drivers/net/virtio_net.ko.xz": "net_failover", "fs/ext4/ext4.ko": "", "arch/x86/kvm/kvm.ko": "",
    "arch/x86/kvm/kvm-amd.ko.xz": "kvm", "drivers/vhost/vhost_net.ko": "", "drivers/net/tun.ko": "",
    "net/bridge/bridge.ko": "", "drivers/net/veth.ko": "",
}  # fmt: skip


def write_modules(tree: Path) -> None:
    """Write lib/modules/RELEASE: some modules compressed as in Debian 13, some as in Debian 12, two built in."""
    for name, needs in MODULES.items():
        file = tree / "kernel" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        content = f"\0depends={needs}\0name={file.name.partition('.')[0]}\0".encode()
        file.write_bytes(lzma.compress(content) if file.suffix == ".xz" else content)
    (tree / "modules.builtin").write_text("kernel/drivers/virtio/virtio_pci.ko\nkernel/drivers/block/virtio_blk.ko\n")


def build_package(root: Path) -> Path:
    """A Debian package of these files."""
    (root / "DEBIAN").mkdir(parents=True)
    (root / "DEBIAN/control").write_text("Package: k\nVersion: 1\nArchitecture: all\nMaintainer: k\nDescription: k\n")
    deb = root.with_suffix(".deb")
    subprocess.run(["dpkg-deb", "-Znone", "--build", root, deb], check=True, capture_output=True)
    return deb

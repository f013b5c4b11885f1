"""Kernels out of Debian packages, and the order of their modules."""

from pathlib import Path

import pytest

from tests.support.kernels import build_package, write_modules
from vmtoll.counting.kernel import GUEST_MODULES, HOST_MODULES, Kernel, of_package
from vmtoll.model.errors import UserError


@pytest.mark.parametrize("modules", ["lib/modules", "usr/lib/modules"])
def test_a_package_has_a_kernel_and_its_modules(tmp_path: Path, modules: str) -> None:
    (tmp_path / "k/boot").mkdir(parents=True)
    (tmp_path / "k/boot/vmlinuz-6.19.0-rc1").write_bytes(b"kernel")
    write_modules(tmp_path / "k" / modules / "6.19.0-rc1")
    kernel = of_package(build_package(tmp_path / "k"), tmp_path / "unpacked")
    assert (kernel.release, kernel.vmlinuz.read_bytes()) == ("6.19.0-rc1", b"kernel")
    assert list(kernel.modules(GUEST_MODULES)) == ["failover", "net_failover", "virtio_net"]
    assert kernel.modules(["kvm_amd"])["kvm_amd"].endswith(b"name=kvm-amd\0"), "the file's name has a dash"
    assert "virtio_blk" not in kernel.modules(HOST_MODULES), "it is built in"


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ([], r"k\.deb: has no /boot/vmlinuz-…; give a package linux-image-RELEASE"),
        (["boot/vmlinuz-6.19"], r"k\.deb: has a kernel but no /lib/modules/6\.19; give a package with both"),
    ],
)
def test_another_package_is_named(tmp_path: Path, files: list[str], says: str) -> None:
    for name in files:
        (tmp_path / "k" / name).parent.mkdir(parents=True)
        (tmp_path / "k" / name).write_bytes(b"")
    with pytest.raises(UserError, match=says):
        of_package(build_package(tmp_path / "k"), tmp_path / "unpacked")


def test_a_kernel_without_a_module_is_named(tmp_path: Path) -> None:
    write_modules(tmp_path / "6.19")
    (tmp_path / "6.19/kernel/zram.ko.zst").write_bytes(b"")
    kernel = Kernel("new.deb", tmp_path / "vmlinuz", tmp_path / "6.19")
    with pytest.raises(UserError, match=r"new\.deb: its kernel, 6\.19, has no module kvm_intel"):
        kernel.modules(["kvm_intel"])
    with pytest.raises(UserError, match=r"vmtoll cannot decompress zram\.ko\.zst; compress modules as \.xz"):
        kernel.modules(["zram"])

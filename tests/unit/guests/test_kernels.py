"""The kernel of a guest profile: the image's own, a package, or a build of the user's."""

import shutil
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from vmtoll.guests import profiles
from vmtoll.guests.domain import files_of_role, render
from vmtoll.guests.inventory import Guest
from vmtoll.guests.profiles import Kernel, Profile
from vmtoll.model.errors import UserError
from vmtoll.paths import VM_IMAGES

GUEST = Guest(name="one", profile="mine", cpus="0-1")


@pytest.fixture
def images(tmp_path: Path) -> Path:
    shutil.copytree(VM_IMAGES, tmp_path / "images")
    return tmp_path / "images"


def profile(images: Path, **keys: str) -> Profile:
    lines = ["of: [kvm-default]", *(f"{key}: {value}" for key, value in keys.items())]
    (images / "guests/mine.yml").write_text("\n".join(lines) + "\n")
    return profiles.load("mine", images)


def boots(made: Profile) -> tuple[str | None, str | None]:
    tree = ET.fromstring(render(made, GUEST, files_of_role("one", made.kernel)))
    return tree.findtext("os/kernel"), tree.findtext("os/initrd")


def root_of(made: Profile) -> str:
    tree = ET.fromstring(render(made, GUEST, files_of_role("one", made.kernel)))
    return str(tree.findtext("os/cmdline")).split()[0]


def test_the_images_own_kernel_and_that_of_a_package(images: Path) -> None:
    assert boots(profile(images)) == ("@image@/vmlinuz", "@image@/initrd.img")
    cloud = profile(images, kernel="linux-image-cloud-amd64")
    assert cloud.kernel == Kernel(package="linux-image-cloud-amd64")
    name = "linux-image-cloud-amd64"
    assert boots(cloud) == (f"@image@/vmlinuz-{name}", f"@image@/initrd.img-{name}")


def test_a_build_of_the_users_needs_no_initial_ram_disk(images: Path, tmp_path: Path) -> None:
    """A rebuilt kernel has another name on the host, so that the guest is made again."""
    built = tmp_path / "linux/arch/x86/boot/bzImage"
    built.parent.mkdir(parents=True)
    built.write_bytes(b"first")
    made = profile(images, kernel=str(tmp_path / "linux"))
    ((ending, source),) = made.kernel.files.items()
    assert Path(source) == built
    assert boots(made) == (f"@folder@/one.{ending}", None)
    built.write_bytes(b"second")
    assert boots(made)[0] not in (None, f"@folder@/one.{ending}")
    (tmp_path / "initrd").write_bytes(b"disk")
    assert root_of(made) == "root=/dev/vda", "only an initial RAM disk finds a file system by its label"
    with_disk = profile(images, kernel=str(built), initrd=str(tmp_path / "initrd"))
    assert root_of(with_disk) == "root=LABEL=vmtoll"
    assert str(boots(with_disk)[1]).startswith("@folder@/one.initrd-")


def test_a_wrapper_of_qemu_is_the_emulator(images: Path) -> None:
    made = profile(images, emulator="/usr/local/bin/slow-qemu")
    tree = ET.fromstring(render(made, GUEST, files_of_role("one", made.kernel)))
    assert tree.findtext("devices/emulator") == "/usr/local/bin/slow-qemu"


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"kernel": "/nowhere/bzImage"}, "mine: kernel: there is no file /nowhere/bzImage"),
        ({"kernel": "/etc"}, "mine: kernel: /etc has none of arch/x86/boot/bzImage"),
        ({"kernel": "/etc/hostname", "initrd": "/nowhere"}, "mine: initrd: there is no file /nowhere"),
        ({"initrd": "/etc/hostname"}, "mine: initrd: it belongs to a kernel that is a file"),
    ],
)
def test_a_kernel_that_is_not_there_is_named(images: Path, keys: dict[str, str], said: str) -> None:
    """Before anything is made: the guests that no profile describes are others'."""
    made = profile(images, **keys)
    with pytest.raises(UserError, match=said):
        _ = made.kernel
    with pytest.raises(UserError, match=f"^{images}/guests/mine.yml: {said}"):
        profiles.check(["metal", "of-others", "mine"], images)

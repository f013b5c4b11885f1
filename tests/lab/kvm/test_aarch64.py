"""A guest of 64-bit Arm: under emulation, its domain boots the installer of Debian."""

import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tests.support.libvirt import MISSING, libvirtd
from vmtoll.agent.servers import wait_until
from vmtoll.guests import profiles
from vmtoll.guests.domain import Files, render
from vmtoll.guests.inventory import Guest
from vmtoll.model.architecture import AARCH64

pytestmark = [pytest.mark.kvm, pytest.mark.skipif(bool(MISSING), reason=MISSING)]

PACKAGE = "debian-installer-12-netboot-arm64"
IMAGES = "usr/lib/debian-installer/images/12/arm64/text/debian-installer/arm64"
# The installer's first question.
PROMPT = "Select a language"
BOOT_LIMIT_S = 1800


@pytest.fixture
def installer(tmp_path: Path) -> Path:
    """The folder with the installer's `linux` and `initrd.gz`, from Debian's package."""
    folder = tmp_path / "installer"
    folder.mkdir()
    subprocess.run(["apt-get", "download", "-q", PACKAGE], cwd=folder, check=True)
    subprocess.run(["dpkg-deb", "-x", next(folder.glob("*.deb")), folder], check=True)
    return folder / IMAGES


def test_the_domain_boots_to_the_installers_first_question(installer: Path, tmp_path: Path) -> None:
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o755)  # QEMU runs as a user of its own
    disk, console, key = (tmp_path / name for name in ("one.qcow2", "one.log", "one.host_key"))
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", disk, "1G"], check=True)
    key.write_text("key\n")
    files = Files(
        str(installer / "linux"), str(installer / "initrd.gz"), str(disk), str(console),
        {"ssh.authorized_keys.root": "a2V5Cg=="}, {"vmtoll.ssh_host_key": str(key)},
    )  # fmt: skip
    described = Guest(name="one", profile="kvm-default", accelerator="tcg", cpus="0", vcpus=1)
    tree = ET.fromstring(render(profiles.load("kvm-default"), described, files, architecture=AARCH64))
    devices = tree.find("devices")
    card = tree.find("devices/interface")
    assert devices is not None and card is not None
    devices.remove(card)  # there is no bridge here
    (tmp_path / "one.xml").write_text(ET.tostring(tree, encoding="unicode"))
    (tmp_path / "libvirt").mkdir()
    with libvirtd(tmp_path / "libvirt") as uri:
        subprocess.run(["virsh", "-c", uri, "create", tmp_path / "one.xml"], check=True, capture_output=True)
        try:
            wait_until(lambda: PROMPT in console.read_text(errors="replace"), BOOT_LIMIT_S, "it does not boot")
        finally:
            subprocess.run(["virsh", "-c", uri, "destroy", "one"], check=False, capture_output=True)

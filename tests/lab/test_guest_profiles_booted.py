"""Guests of other profiles than the standard one, side by side: each sees the hardware that its profile names."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.the_lab import LAB, VMTOLL

pytestmark = [pytest.mark.lab, pytest.mark.long]

# Profile -> driver of the network card, driver on the way to the disk, a word of the CPU's name under emulation.
SEES = {
    "kvm-2009": ("e1000", "ata_piix", "QEMU Virtual CPU"),
    "kvm-virtio-scsi": ("virtio_net", "virtio_scsi", "QEMU TCG CPU"),
    "kvm-macvtap": ("virtio_net", "virtio_blk", "QEMU TCG CPU"),
    "kvm-tuned": ("virtio_net", "virtio_blk", "QEMU TCG CPU"),
}
LOOK = """
import json, os, pathlib
disk = next(line.split()[0] for line in open("/proc/mounts") if line.split()[1] == "/")
way = pathlib.Path("/sys/class/block", os.path.basename(os.path.realpath(disk))).resolve()
drivers = [(folder / "driver").resolve().name for folder in way.parents if (folder / "driver").exists()]
print(json.dumps({
    "nic": pathlib.Path("/sys/class/net/eth0/device/driver").resolve().name,
    "disk": drivers,
    "cpu": next(line.split(": ")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")),
}))
"""
PAGES = Path("/proc/sys/vm/nr_hugepages")
MOUNTED = Path("/dev/hugepages")


@pytest.fixture(scope="module")
def huge_pages() -> Iterator[None]:
    """Reserve huge pages for one guest and mount their filesystem; restore both afterwards."""
    before, mounts = PAGES.read_text(), Path("/proc/self/mounts").read_text()
    mine = " hugetlbfs " not in mounts
    PAGES.write_text(str(int(before) + 512))
    if mine:
        MOUNTED.mkdir(exist_ok=True)
        subprocess.run(["mount", "-t", "hugetlbfs", "hugetlbfs", MOUNTED], check=True)
    yield
    subprocess.run([VMTOLL, "lab", "down"], check=True)
    if mine:
        subprocess.run(["umount", MOUNTED], check=True)
        MOUNTED.rmdir()
    PAGES.write_text(before)


@pytest.fixture(scope="module")
def guests(huge_pages: None) -> Path:
    """A lab with a guest of each of these profiles; its folder."""
    subprocess.run([VMTOLL, "lab", "up", "--guests", ",".join(SEES)], check=True, stdin=subprocess.DEVNULL)
    return LAB


@pytest.mark.parametrize("profile", SEES)
def test_it_sees_the_hardware_of_its_profile(guests: Path, profile: str) -> None:
    nic, disk, cpu = SEES[profile]
    reach = ["ssh", "-F", str(guests / "ssh_config"), profile, "python3", "-"]
    found = json.loads(subprocess.run(reach, input=LOOK, capture_output=True, text=True, check=True).stdout)
    assert found["nic"] == nic
    assert disk in found["disk"]
    if '<domain type="qemu">' in (guests / "guests" / f"{profile}.xml").read_text():
        assert found["cpu"].startswith(cpu)


def test_the_tuned_guest_holds_huge_pages(guests: Path) -> None:
    fields = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    held = int(fields["HugePages_Total"]) - int(fields["HugePages_Free"]) + int(fields["HugePages_Rsvd"])
    assert held >= 512


def test_missing_host_prerequisites_are_reported_before_a_guest_is_made(guests: Path) -> None:
    """Two guests in huge pages, with enough of them for one."""
    asked: list[str | Path] = [VMTOLL, "lab", "up", "--guests", "kvm-hugepages,kvm-hugepages"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    assert done.returncode == 2
    assert "lack 1024 MiB of free huge pages; right after the host's boot, raise vm.nr_hugepages by 512" in done.stderr
    assert not list((guests / "guests").glob("*.xml"))

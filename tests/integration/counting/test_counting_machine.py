"""The counting machine, booted: planted costs are found, the plugin and the host's kernel agree on exits.

Each boot takes minutes. They need QEMU 7.2 as the lab corrects it and a disk of virtual machines, in the cache.
"""

import shutil
from pathlib import Path

import pytest

from tests.support import planted
from tests.support.kernels import build_package
from vmtoll.builds import counting, emulator, servers
from vmtoll.builds.suite import lab_release
from vmtoll.counting import boots
from vmtoll.counting.boots import Counts
from vmtoll.counting.kernel import Kernel, of_image, of_package
from vmtoll.counting.machine import Load, Parts
from vmtoll.counting.requirements import PLUGIN_RELEASE, disk_of
from vmtoll.counting.sides import side

QEMU, DISK = emulator.ensure(print, build=False), disk_of(lab_release())
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        not DISK or f"version {PLUGIN_RELEASE}." not in emulator.version_of(QEMU) or QEMU.parent.name != "tools",
        reason="the cache lacks the corrected QEMU 7.2 or a disk of virtual machines",
    ),
]
LOAD = Load(warm_up=200, requests=200, windows=3)
INSTRUCTIONS = 10_000
OUTB = 2  # what one outb takes in the server: a number in a register, and itself


def count(server: bytes, kernel: Kernel | None = None) -> Counts:
    """One boot of metal and guest with this server, profiled; with this kernel on host and guest."""
    assert DISK
    parts = Parts(QEMU, DISK, counting.ensure(), server, kernel, kernel)
    return boots.count(parts, [side("metal"), side("guest")], LOAD, 1, print, profile=True)


@pytest.fixture(scope="module")
def plain() -> Counts:
    return count(servers.program("lighttz"))


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> Counts:
    """The same with 10,000 instructions and one `outb` more in each response."""
    folder: Path = tmp_path_factory.mktemp("planted")
    return count(planted.server(folder, INSTRUCTIONS, outb=True))


def user(counts: Counts, name: str) -> float:
    """Instructions of user code per request, on the level that the server runs on."""
    figure = "host user" if name == "metal" else "guest user"
    return boots.mean(counts[name], boots.METRICS[figure], LOAD)


@pytest.mark.parametrize("name", ["metal", "guest"])
def test_planted_instructions_are_counted_on_their_level(plain: Counts, changed: Counts, name: str) -> None:
    assert user(changed, name) - user(plain, name) == pytest.approx(INSTRUCTIONS + OUTB, abs=20)


@pytest.mark.parametrize(("name", "level"), [("metal", "host"), ("guest", "guest")])
def test_the_profile_names_the_planted_function(plain: Counts, changed: Counts, name: str, level: str) -> None:
    def of(counts: Counts) -> float:
        rows = boots.profile_rows(counts, LOAD)
        return sum(
            number for its, at, symbol, number in rows if (its, at, symbol) == (name, level, "send_text (server)")
        )

    assert of(changed) - of(plain) == pytest.approx(INSTRUCTIONS, rel=0.01)


def test_an_outb_is_one_exit(plain: Counts, changed: Counts) -> None:
    more = boots.exits(changed["guest"], LOAD).get("io", 0) - boots.exits(plain["guest"], LOAD).get("io", 0)
    assert more == pytest.approx(1.0, abs=0.05)


def test_the_plugin_counts_the_exits_that_the_hosts_kernel_counts(plain: Counts) -> None:
    (counted,) = plain["guest"]
    assert sum(counted.exits.values()) == pytest.approx(counted.entries, abs=3)


def test_the_images_kernel_as_a_package_counts_the_same(plain: Counts, tmp_path: Path) -> None:
    assert DISK
    image = of_image(DISK.parent)
    root = tmp_path / "package"
    (root / "boot").mkdir(parents=True)
    (root / f"boot/vmlinuz-{image.release}").write_bytes(image.vmlinuz.read_bytes())
    shutil.copytree(image.tree, root / "lib/modules" / image.release, symlinks=True)
    deb = build_package(root)
    packaged = count(servers.program("lighttz"), of_package(deb, tmp_path / "unpacked"))
    figure = boots.METRICS[boots.METRIC]
    for name in ("metal", "guest"):
        assert boots.mean(packaged[name], figure, LOAD) == pytest.approx(
            boots.mean(plain[name], figure, LOAD), rel=0.02
        )


def test_a_guest_takes_more_than_metal_on_every_boot(plain: Counts) -> None:
    figure = boots.METRICS[boots.METRIC]
    assert boots.mean(plain["guest"], figure, LOAD) > 1.5 * boots.mean(plain["metal"], figure, LOAD)

"""The counting machine: its disks, its command line, and when it counts as hung."""

import io
import itertools
import lzma
import tarfile
from array import array
from pathlib import Path

import pytest

from vmtoll.counting import machine
from vmtoll.counting.machine import Load, Parts, boot, command, write_disks
from vmtoll.counting.sides import side
from vmtoll.counting.windows import MAGIC
from vmtoll.model.errors import UserError

SIDES = [side("metal"), side("guest+close")]


@pytest.fixture
def parts(tmp_path: Path) -> Parts:
    """A machine's parts, with modules as Debian 13 has them, and one as Debian 12 has it."""
    modules = tmp_path / "image/root/lib/modules/6.12/kernel"
    for name in ("net/core/failover.ko.xz", "drivers/net/net_failover.ko", "drivers/net/virtio_net.ko.xz"):
        file = modules / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(lzma.compress(b"module") if file.suffix == ".xz" else b"module")
    for name in ("initrd.img", "vmlinuz"):
        (tmp_path / "image" / name).write_bytes(name.encode())
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("client", "guest"):
        (programs / name).write_bytes(name.encode())
    return Parts(tmp_path / "qemu", tmp_path / "image/machine-1.qcow2", programs, b"lighttz")


def qemu(parts: Parts, script: str) -> None:
    """Replace QEMU by a script, in the folder of the boot."""
    parts.qemu.write_text(f"#!/bin/sh\ncd {parts.qemu.parent}/boot\n{script}\n")
    parts.qemu.chmod(0o755)


def booted(parts: Parts) -> machine.Boot:
    folder = parts.qemu.parent / "boot"
    folder.mkdir()
    (folder / "finished").write_bytes(counts(10**9))
    return boot(parts, SIDES, Load(), 7, folder)


def counts(executed: int) -> bytes:
    """The plugin's file with one window of 5 instructions in the host's kernel."""
    records = [[8, *[0] * 9], [9, 5, *[0] * 8]]
    return MAGIC + array("Q", [2, executed, 0, 0, *itertools.chain(*records)]).tobytes()


def test_the_disks_have_what_host_and_guest_run(parts: Parts, tmp_path: Path) -> None:
    write_disks(parts, SIDES, Load(requests=50), tmp_path)
    with tarfile.open(tmp_path / "job.tar") as tar:
        files = {name: (tar.extractfile(name) or io.BytesIO()).read() for name in tar.getnames()}
    assert files["plan.sh"].decode() == "WARM_UP=400 REQUESTS=50 WINDOWS=5\n" + "".join(
        f"{each.line}\n" for each in SIDES
    )
    assert len(files["www/4k.html"]) == 4096
    for name in ("init", "lighttz", "failover.ko", "net_failover.ko", "virtio_net.ko", "www/4k.html"):
        assert f"{name}\0".encode() in files["guest.initrd"]
    assert files["guest.initrd"].count(b"module") == 3, "as the kernel loads them"
    assert (tmp_path / "host.initrd").read_bytes().startswith(b"initrd.img")


def test_the_disk_of_the_image_is_never_written(parts: Parts, tmp_path: Path) -> None:
    words = command(parts, [side("guest+host-mitigations-off")], 3, tmp_path, profile=False)
    assert f"file={parts.disk},if=virtio,snapshot=on" in words
    assert words[words.index("-append") + 1].endswith(" mitigations=off")
    assert words[words.index("-seed") + 1] == "3"


def test_a_boot_that_passes_is_read(parts: Parts) -> None:
    qemu(parts, "cp finished counts; printf 'HOST 6.12, QEMU 10\\r\\nRESULT passed\\r\\n' >console.log")
    result = booted(parts)
    assert (result.result, result.host, result.seed) == ("passed", "6.12, QEMU 10", 7)
    assert [window.host_kernel for window in result.windows] == [5]


def test_instructions_without_a_sign_are_a_hang_and_finished_windows_stay(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "_LOOK_S", 0.3)
    monkeypatch.setattr(machine, "MOST_WITHOUT_SIGN", 10**8)
    # It runs on after its last mark, which the file's head says.
    spin = "printf '\\0\\0\\0\\0\\1\\0\\0\\0' | dd of=counts bs=8 seek=2 conv=notrunc status=none"
    qemu(parts, f"cp finished counts; echo HOST >console.log; sleep 2; {spin}; exec sleep 60")
    result = booted(parts)
    assert result.result == "hung: 1e+08 instructions without a sign"
    assert len(result.windows) == 1


def test_a_machine_that_executes_nothing_is_a_hang(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_LOOK_S", 0.05)
    monkeypatch.setattr(machine, "_LOOKS", 20)
    qemu(parts, "cp finished counts; echo HOST >console.log; exec sleep 60")
    assert booted(parts).result == "hung: it executes nothing"


def test_a_qemu_that_does_not_start_is_an_error(parts: Parts) -> None:
    qemu(parts, "echo 'qemu: -plugin: invalid option' >&2; exit 1")
    with pytest.raises(UserError, match=r"did not boot: .*: qemu: -plugin: invalid option"):
        booted(parts)

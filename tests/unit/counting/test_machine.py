"""The counting machine: its disks, its command line, and when it counts as hung."""

import io
import itertools
import re
import tarfile
from array import array
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.kernels import write_modules
from vmtoll.counting import machine
from vmtoll.counting.kernel import Kernel
from vmtoll.counting.machine import Load, Parts, boot, command, write_disks
from vmtoll.counting.sides import side
from vmtoll.counting.windows import MAGIC
from vmtoll.model.errors import UserError

SIDES = [side("metal"), side("guest+close")]


@pytest.fixture
def parts(tmp_path: Path) -> Parts:
    """A machine's parts, with a kernel."""
    write_modules(tmp_path / "image/root/lib/modules/6.12")
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
    for name in ("init", "lighttz", "0.ko", "2.ko", "www/4k.html"):
        assert f"{name}\0".encode() in files["guest.initrd"]
    order = [
        files["guest.initrd"].index(f"name={name}".encode()) for name in ("failover", "net_failover", "virtio_net")
    ]
    assert order == sorted(order), "as the kernel loads them"
    assert "qemu" not in files
    assert (tmp_path / "host.initrd").read_bytes().startswith(b"initrd.img")


def test_other_kernels_and_another_qemu_take_the_place_of_the_images(parts: Parts, tmp_path: Path) -> None:
    write_modules(tmp_path / "other/6.19")
    (tmp_path / "vmlinuz").write_bytes(b"new")
    (tmp_path / "qemu-11").write_bytes(b"program")
    new = Kernel("new.deb", tmp_path / "vmlinuz", tmp_path / "other/6.19")
    changed = replace(parts, kernel=new, guest_kernel=new, host_qemu=tmp_path / "qemu-11")
    write_disks(changed, SIDES, Load(), tmp_path)
    with tarfile.open(tmp_path / "job.tar") as tar:
        files = {name: (tar.extractfile(name) or io.BytesIO()).read() for name in tar.getnames()}
    assert (files["kernel"], files["qemu"]) == (b"new", b"program")
    initrd = (tmp_path / "host.initrd").read_bytes()
    assert re.findall(rb"vmtoll/(\d\d-\w+)\.ko\0", initrd) == [
        b"00-ext4", b"01-kvm", b"02-kvm_amd", b"03-vhost_net", b"04-tun", b"05-bridge", b"06-veth"
    ]  # fmt: skip
    words = command(changed, SIDES, 3, tmp_path, profile=False)
    assert words[words.index("-kernel") + 1] == str(tmp_path / "vmlinuz")


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

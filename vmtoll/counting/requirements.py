"""What this machine must have to count: the checks of `vmtoll count`, before anything boots."""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from vmtoll.agent.machine import memory
from vmtoll.builds import emulator, image
from vmtoll.builds.suite import lab_release
from vmtoll.counting.machine import MEMORY_MIB
from vmtoll.model.architecture import X86_64, here
from vmtoll.model.complaint import Complaint, fail, ok, warn
from vmtoll.model.errors import UserError
from vmtoll.model.release import Release

PLUGIN_RELEASE = "7.2"  # QEMU's, whose plugin API counter.c is written for; Debian 12 has it
_QEMU_MIB = 1024  # QEMU itself, with the code that it translates


def disk_of(release: Release) -> Path | None:
    """The newest disk of virtual machines of this release in the cache."""
    disks = sorted(image.IMAGES.glob("*/machine-*.qcow2"), key=lambda file: file.stat().st_mtime, reverse=True)
    descriptions = ((disk, json.loads((disk.parent / "image.json").read_text())) for disk in disks)
    return next((disk for disk, description in descriptions if description["suite"] == release.suite), None)


@dataclass(frozen=True)
class Machine:
    """This machine, as far as counting needs it."""

    qemu: Path
    disk: Path | None
    release: Release

    def checks(self) -> Iterator[Complaint]:
        """Yield a result for each precondition."""
        if here().name != X86_64.name:
            yield fail("", f"this machine is {here().name}", "Count on an x86-64 machine.")
        version = emulator.version_of(self.qemu)
        if f"version {PLUGIN_RELEASE}." in version:
            if emulator.is_corrected(version):
                yield ok("", version)
            else:
                yield warn(
                    "", f"{version}: guests may hang", "vmtoll count first builds the corrected one, in minutes."
                )
        else:
            yield fail(
                "", f"{version}: the plugin that counts needs QEMU {PLUGIN_RELEASE}, which Debian 12 has and Debian 13 "
                "has not", f"Count on Debian 12, or set {emulator.VARIABLE} to a QEMU {PLUGIN_RELEASE}."
            )  # fmt: skip
        if not shutil.which("gcc"):
            yield fail("", "gcc is not installed", "Install it: apt-get install gcc libc6-dev.")
        suite = self.release.suite
        if self.disk:
            yield ok("", f"disk of virtual machines: {self.disk}")
        else:
            advice = f"Make it, as root: vmtoll lab image --machines --suite {suite}."
            yield fail("", f"the cache has no disk of virtual machines with {suite}", advice)
        free_mib, need_mib = memory()["available_kib"] // 1024, MEMORY_MIB + _QEMU_MIB
        shown = f"{free_mib} MiB of memory are available, and {need_mib} MiB are needed"
        yield ok("", shown) if free_mib >= need_mib else fail("", shown, "Stop other programs.")
        folder = Path(tempfile.gettempdir())
        writable = os.access(folder, os.W_OK)
        yield ok("", f"{folder} can be written") if writable else fail("", f"{folder} cannot be written", "Set TMPDIR.")


def this_machine(suite: str | None) -> Machine:
    """This machine, for an image with this Debian release. Builds nothing."""
    release = lab_release(suite)
    return Machine(emulator.ensure(print, build=False), disk_of(release), release)


def require(machine: Machine) -> Path:
    """The disk, if all checks pass. Raises UserError with those that fail."""
    failed = [f"{each.found}: {each.advice}" for each in machine.checks() if each.level == "fail"]
    if failed or not machine.disk:
        raise UserError(" ".join(failed))
    return machine.disk

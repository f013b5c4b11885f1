"""What differs between guests of x86-64 and of 64-bit Arm: a guest has its host's architecture."""

import platform
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from vmtoll.model.errors import UserError


@dataclass(frozen=True)
class Architecture:
    """An architecture, as `uname -m` prints it.

    `machine`: QEMU's machine type; `emulator`: QEMU's program; `console`: the serial port as Linux names it; `kernel`:
    Debian's package; `qemu`: Debian's packages of the emulator and its firmware. `firmware`, `firmware_features`,
    `clock`: attributes of <os>, an element in it, content of <clock> in libvirt's XML. Kernel parameters: `idle_poll`,
    with which an idle CPU polls; `emulated`, those that an emulated machine needs. `program`: path of QEMU's program
    where it is not Debian's.
    """

    name: str
    machine: str
    console: str
    kernel: str
    qemu: tuple[str, ...]
    idle_poll: str
    firmware: str = ""
    firmware_features: str = ""
    clock: str = ""
    emulated: str = ""
    program: str = ""

    @property
    def emulator(self) -> str:
        """Path of QEMU's program, by default on Debian."""
        return self.program or f"/usr/bin/qemu-system-{self.name}"


X86_64 = Architecture(
    "x86_64",
    machine="q35",
    console="ttyS0",
    kernel="linux-image-amd64",
    qemu=("qemu-system-x86",),
    idle_poll="idle=poll",
    # As virt-install does: Linux uses the HPET while it boots, and QEMU wakes up 260 times a second for it ever after.
    clock="<timer name='hpet' present='no'/>",
    # A kernel that boots slowly takes its TSC, which is this machine's, for unstable, and then counts by a timer that
    # wraps every 4.7 s: where it sleeps that long, its clock stands still, and with it the machine.
    emulated="tsc=reliable",
)
# ACPI and SMBIOS, by which the guest gets its devices and keys, need UEFI there (libvirt, formatdomain, `acpi`).
AARCH64 = Architecture(
    "aarch64",
    machine="virt",
    console="ttyAMA0",
    kernel="linux-image-arm64",
    qemu=("qemu-system-arm", "qemu-efi-aarch64"),
    idle_poll="nohlt",  # Linux, Documentation/admin-guide/kernel-parameters.txt
    firmware="firmware='efi'",
    # It would take the firmware with Microsoft's keys, which boots no kernel of one's own.
    firmware_features="<firmware><feature enabled='no' name='secure-boot'/></firmware>",
)
ARCHITECTURES: Mapping[str, Architecture] = MappingProxyType({each.name: each for each in (X86_64, AARCH64)})


def here() -> Architecture:
    """This machine's architecture. Raises UserError for one on which vmtoll makes no guests."""
    name = platform.machine()
    if name not in ARCHITECTURES:
        raise UserError(f"vmtoll makes guests on {' and '.join(ARCHITECTURES)}, and this machine is {name}")
    return ARCHITECTURES[name]

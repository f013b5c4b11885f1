"""Usage: kvm.py [KERNEL] — prints why KVM does not work here; an empty text if it works.

Makes a virtual machine of one page and one processor, whose program writes a byte to a port and halts; then boots
KERNEL, or the last one in /boot, under QEMU, if there is a kernel and QEMU. Needs vmtoll's accelerator.py and
kvm_host.py next to this file.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import mmap
import os
import platform
import shutil
import struct
import sys
from pathlib import Path

from accelerator import probe  # type: ignore[import-not-found]
from kvm_host import kvm_flags, kvm_modules  # type: ignore[import-not-found]

DEVICE = "/dev/kvm"
# <linux/kvm.h>
API_VERSION, CREATE_VM, VCPU_MMAP_SIZE, CREATE_VCPU = 0xAE00, 0xAE01, 0xAE04, 0xAE41
SET_MEMORY, SET_TASK_STATE = 0x4020AE46, 0xAE47
RUN, SET_REGS, GET_SREGS, SET_SREGS = 0xAE80, 0x4090AE82, 0x8138AE83, 0x4138AE84
SREGS_BYTES = 0x138
EXIT_IO, EXIT_HLT = 2, 5
PAGE = 4096
# Three pages that older processors need for real mode.
TASK_STATE = 0xD0000
# mov al, 'V'; out 0x10, al; hlt
PROGRAM = b"\xb0V\xe6\x10\xf4"


def why_no_code_runs() -> str:
    """Reason why no virtual processor runs code under KVM; empty if one does. Not tried except on x86-64.

    Raises OSError when KVM refuses a step.
    """
    device = os.open(DEVICE, os.O_RDWR | os.O_CLOEXEC)
    version = fcntl.ioctl(device, API_VERSION)
    if version != 12:
        return f"its interface is version {version}, not 12"
    machine = fcntl.ioctl(device, CREATE_VM, 0)
    if platform.machine() != "x86_64":
        fcntl.ioctl(machine, CREATE_VCPU, 0)
        return ""
    memory = mmap.mmap(-1, PAGE)
    memory.write(PROGRAM)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    fcntl.ioctl(machine, SET_TASK_STATE, TASK_STATE)
    fcntl.ioctl(machine, SET_MEMORY, struct.pack("=IIQQQ", 0, 0, 0, PAGE, address))
    processor = fcntl.ioctl(machine, CREATE_VCPU, 0)
    state = mmap.mmap(processor, fcntl.ioctl(device, VCPU_MMAP_SIZE))
    special = bytearray(SREGS_BYTES)
    fcntl.ioctl(processor, GET_SREGS, special)
    special[0:8], special[12:14] = bytes(8), bytes(2)  # the code segment begins at 0
    fcntl.ioctl(processor, SET_SREGS, special)
    fcntl.ioctl(processor, SET_REGS, struct.pack("=16Q", *[0] * 16) + struct.pack("=QQ", 0, 2))
    for expected in (EXIT_IO, EXIT_HLT):
        fcntl.ioctl(processor, RUN, 0)
        reason = struct.unpack_from("=I", state, 8)[0]
        if reason != expected:
            return f"a processor stopped with exit reason {reason} where {expected} was due"
    return ""


def obstacle() -> tuple[str, str]:
    """Return (why KVM does not work, what to do), both empty when code runs."""
    if not Path(DEVICE).exists():
        if platform.machine() == "aarch64":
            return f"{DEVICE} does not exist", "Boot the kernel at EL2; in a guest, turn on nested virtualization."
        name = "kvm_amd" if "svm" in Path("/proc/cpuinfo").read_text() else "kvm_intel"
        return f"{DEVICE} does not exist", f"Turn on virtualization in the firmware, then `modprobe {name}`."
    try:
        why = why_no_code_runs()
    except OSError as error:
        why = f"{DEVICE} exists, but {error.strerror}"
    return why, "Turn on virtualization in the firmware, or nested virtualization where this is a guest." if why else ""


def kernel() -> Path | None:
    """Return the kernel to boot: the one on the command line, else the last in /boot; None without QEMU or kernel."""
    kernels = sorted(Path("/boot").glob("vmlinuz-*"))
    kernel_file = Path(sys.argv[1]) if len(sys.argv) > 1 else kernels[-1] if kernels else None
    return kernel_file if shutil.which(f"qemu-system-{platform.machine()}") else None


why, advice = obstacle()
to_boot = None if why else kernel()
if to_boot:
    kind, words = probe(to_boot)
    if kind != "kvm":
        why, advice = words, "Look for nested virtualization that is half there; `dmesg` may say why."
answer = {"why": why, "advice": advice, "booted": to_boot.name if to_boot else ""}
print(json.dumps(answer | {"kvm_modules": kvm_modules(), "kvm_flags": kvm_flags()}))

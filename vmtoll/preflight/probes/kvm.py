"""Usage: kvm.py [KERNEL] — prints why KVM does not work here; an empty text if it works.

Makes a virtual machine of one page and one processor, whose program writes a byte to a port and halts; then boots
KERNEL, or the last one in /boot, under QEMU, if there is a kernel and QEMU. Needs vmtoll's accelerator.py,
kvm_host.py and virtual_machine.py next to this file.
"""

from __future__ import annotations

import json
import platform
import shutil
import sys
from pathlib import Path

from accelerator import probe  # type: ignore[import-not-found]
from kvm_host import kvm_flags, kvm_modules  # type: ignore[import-not-found]
from virtual_machine import DEVICE, why_no_code_runs  # type: ignore[import-not-found]


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

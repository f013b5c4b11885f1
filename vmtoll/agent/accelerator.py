"""Find the accelerator that works, by booting a guest's kernel: /dev/kvm may exist and still run nothing."""

from __future__ import annotations

import os
import selectors
import subprocess
import time
from pathlib import Path
from typing import Literal

from vmtoll.agent.commands import Commands
from vmtoll.agent.kvm_host import kvm_flags

BANNER = b"Linux version"
# KVM's own modules → the CPU flag that each needs. A module that is built into the kernel is listed on any CPU.
MODULES = {"kvm_intel": "vmx", "kvm_amd": "svm"}
KVM_PATIENCE_S = 150.0  # with one of them; the host may be slow: itself emulated, and busy
PATIENCE_S = 8.0  # with another module, which may never boot a kernel
# By architecture, as `uname -m` prints it: QEMU's options, and the kernel's for its first lines.
_BOOT = {
    "x86_64": ([], "console=ttyS0 earlyprintk=ttyS0"),
    "aarch64": (["-machine", "virt,gic-version=host"], "console=ttyAMA0 earlycon=pl011,0x9000000"),
}

Accelerator = Literal["kvm", "tcg"]


def probe(kernel: Path, device: Path = Path("/dev/kvm"), commands: Commands | None = None) -> tuple[Accelerator, str]:
    """Return the accelerator that boots `kernel`, and one sentence that says why. `commands`: run QEMU among these."""
    if not device.exists():
        return "tcg", f"{device} does not exist"
    patience_s = KVM_PATIENCE_S if _has_kvm_module() else PATIENCE_S
    architecture = os.uname().machine
    options, words = _BOOT[architecture]
    argv = [f"qemu-system-{architecture}", *options, "-accel", "kvm", "-cpu", "host", "-m", "256", "-nodefaults"]
    argv += ["-display", "none", "-no-reboot", "-serial", "stdio", "-kernel", str(kernel)]
    argv += ["-append", f"{words} panic=-1"]
    with (commands or Commands()).running(argv) as qemu:
        printed = _read_until_banner(qemu, patience_s)
    if BANNER in printed:
        return "kvm", f"{kernel.name} prints its banner under KVM"
    return "tcg", f"{device} exists, but {kernel.name} printed no banner under KVM within {patience_s:g} s"


def _has_kvm_module() -> bool:
    """Return whether one of KVM's own modules provides /dev/kvm; on Arm it is part of the kernel."""
    if os.uname().machine == "aarch64":
        return True
    flags = kvm_flags()
    return any(flag in flags and Path("/sys/module", module).exists() for module, flag in MODULES.items())


def _read_until_banner(qemu: subprocess.Popen[bytes], patience_s: float) -> bytes:
    assert qemu.stdout is not None
    printed, deadline = b"", time.monotonic() + patience_s
    with selectors.DefaultSelector() as selector:
        selector.register(qemu.stdout, selectors.EVENT_READ)
        while BANNER not in printed and selector.select(max(0.0, deadline - time.monotonic())):
            chunk = qemu.stdout.read1(4096)  # type: ignore[attr-defined]
            if not chunk:
                break
            printed += chunk
    return printed

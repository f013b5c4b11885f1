"""A KVM host's facts. Imports nothing of vmtoll: a play runs it on the host as `python3 -`, and it prints JSON."""

from __future__ import annotations

import fcntl
import json
import mmap
import os
import re
import shutil
import socket
import subprocess
import time
from pathlib import Path

_ANY_ACCESS = mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC
# rdtsc; shl rdx, 32; or rax, rdx; ret
_RDTSC = bytes.fromhex("0f31 48c1e220 4809d0 c3")
_GET_API_VERSION, _CREATE_VM, _CREATE_VCPU = 0xAE00, 0xAE01, 0xAE41


def kvm(device: str = "/dev/kvm") -> str:
    """Reason why KVM does not work; empty if it can make a virtual machine with a virtual CPU."""
    try:
        opened = os.open(device, os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        return f"{device}: {error.strerror}"
    try:
        version = fcntl.ioctl(opened, _GET_API_VERSION, 0)
        machine = fcntl.ioctl(opened, _CREATE_VM, 0)
        os.close(fcntl.ioctl(machine, _CREATE_VCPU, 0))
        os.close(machine)
    except OSError as error:
        return f"{device}: no virtual machine can be made: {error.strerror}"
    finally:
        os.close(opened)
    return "" if version == 12 else f"{device}: speaks version {version} and not 12"


def kvm_modules(root: str = "") -> list[str]:
    """The modules, loaded or built in, that may have made /dev/kvm, such as `kvm_amd`; without `kvm` itself."""
    return sorted(path.name for path in Path(f"{root}/sys/module").glob("kvm_*"))


def cpu_flags(root: str = "") -> list[str]:
    """The CPU's flags; empty if /proc/cpuinfo has no line `flags`, as on CPUs other than x86."""
    info = Path(f"{root}/proc/cpuinfo")
    line = re.search(r"^flags\s*:(.*)$", info.read_text() if info.exists() else "", re.MULTILINE)
    return line[1].split() if line else []


def kvm_flags(root: str = "") -> list[str]:
    """Virtualization flags of the CPU, vmx and svm: kvm_intel needs the first, kvm_amd the second."""
    return sorted({"svm", "vmx"} & {*cpu_flags(root)})


def memory() -> dict[str, int]:
    """/proc/meminfo: name → KiB, or pages."""
    lines = (line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    return {name: int(value.split()[0]) for name, value in lines}


def is_mounted(kind: str) -> bool:
    """Return whether a filesystem of this kind is mounted."""
    return any(line.split()[2] == kind for line in Path("/proc/self/mounts").read_text().splitlines())


def has_macvtap() -> bool:
    """Return whether the kernel has macvtap, or a module of that name that can be loaded."""
    if Path("/sys/class/macvtap").exists():
        return True
    probe = shutil.which("modprobe", path="/usr/sbin:/sbin:/usr/bin:/bin")
    return bool(probe) and not subprocess.run([str(probe), "-n", "-q", "macvtap"], check=False).returncode


def virtual_functions() -> dict[str, str]:
    """The virtual functions of the host's PCI devices: address → driver."""
    folders = [link.parent for link in Path("/sys/bus/pci/devices").glob("*/physfn")]
    return {folder.name: (folder / "driver").resolve().name for folder in folders}


def tsc_khz(seconds: float = 0.05) -> int | None:
    """The rate at which this machine's time stamp counter counts, in kHz, to the MHz; None except on x86-64.

    An emulated x86 machine has this counter as its own, and its kernel cannot measure its rate beside other work.
    """
    if os.uname().machine != "x86_64":
        return None
    import ctypes  # noqa: PLC0415 (a Python that was cut down may lack it, and most agents need it never)

    code = mmap.mmap(-1, mmap.PAGESIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, _ANY_ACCESS)
    code.write(_RDTSC)
    read = ctypes.CFUNCTYPE(ctypes.c_uint64)(ctypes.addressof(ctypes.c_char.from_buffer(code)))

    def look() -> tuple[int, int]:
        """(time in ns, counter), read together: of several looks, the one that took the least time."""
        looks = [(time.monotonic_ns(), read(), time.monotonic_ns()) for _ in range(20)]
        before, ticks, after = min(looks, key=lambda each: each[2] - each[0])
        return (before + after) // 2, ticks

    begin_ns, begin = look()
    time.sleep(seconds)
    end_ns, end = look()
    return round((end - begin) / (end_ns - begin_ns) * 1e3) * 1000


def online_cpus() -> list[int]:
    """The numbers of the CPUs that are online."""
    return cpu_list(Path("/sys/devices/system/cpu/online").read_text())


def cpu_list(text: str) -> list[int]:
    """The CPUs of a kernel's list such as `0-3,8`, one by one."""
    ranges = [part.split("-") for part in text.strip().split(",") if part]
    return [cpu for part in ranges for cpu in range(int(part[0]), int(part[-1]) + 1)]


def facts() -> dict[str, object]:
    """Facts that vmtoll/guests/needs.py uses."""
    now = memory()
    pages_free = now.get("HugePages_Free", 0) - now.get("HugePages_Rsvd", 0)
    return {
        "architecture": os.uname().machine,
        "tsc_khz": tsc_khz(),
        "kvm": kvm(),
        "kvm_modules": kvm_modules(),
        "kvm_flags": kvm_flags(),
        "vhost_net": Path("/dev/vhost-net").exists(),
        "macvtap": has_macvtap(),
        "hugetlbfs": is_mounted("hugetlbfs"),
        "hugepages": {"size_kib": now.get("Hugepagesize", 2048), "free": pages_free},
        "memory_available_mib": now["MemAvailable"] // 1024,
        "cpus": online_cpus(),
        "interfaces": [name for _, name in socket.if_nameindex()],
        "vfs": virtual_functions(),
        "iommu": any(Path("/sys/kernel/iommu_groups").glob("*")),
    }


if __name__ == "__main__":
    print(json.dumps(facts()))

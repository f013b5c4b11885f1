"""What preflight asks a machine about itself: its system, settings, room and ports, its route, whether KVM works."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import socket
import struct
import time
from collections.abc import Sequence
from pathlib import Path

from vmtoll.agent.accelerator import probe as boot
from vmtoll.agent.commands import Commands
from vmtoll.agent.facts import os_release
from vmtoll.agent.kvm_host import kvm_flags, kvm_modules
from vmtoll.agent.machine import output_of, read
from vmtoll.agent.protocol import KvmAnswer, Route, Space, SpeedSettings, System
from vmtoll.agent.virtual_machine import DEVICE, why_no_code_runs

_CPU = Path("/sys/devices/system/cpu")
_ADDRESS_OF_INTERFACE = 0x8915  # SIOCGIFADDR
_DISCARD = 9
_COMPLETE = 0x2
_PATIENCE_S = 2.0


def system() -> System:
    """The distribution, systemd's version and whether it started this machine."""
    release, systemd = os_release(read("/etc/os-release")), output_of("systemctl", "--version").split()
    return {
        "id": release.get("ID", "unknown"),
        "version": release.get("VERSION_ID", ""),
        "apt": shutil.which("apt-get") is not None,
        "systemd": int(systemd[1]) if systemd else None,
        "booted": Path("/run/systemd/system").is_dir(),
    }


def speed_settings() -> SpeedSettings:
    """The settings that let this machine's speed vary."""
    return {
        "governors": sorted({read(str(file)) for file in _CPU.glob("cpu[0-9]*/cpufreq/scaling_governor")}),
        "turbo": read(f"{_CPU}/intel_pstate/no_turbo") == "0" or read(f"{_CPU}/cpufreq/boost") == "1",
        "smt": read(f"{_CPU}/smt/control"),
        "irqbalance": any(read(str(file)) == "irqbalance" for file in Path("/proc").glob("[0-9]*/comm")),
    }


def space(folders: Sequence[str]) -> Space:
    """Free room on the disk that has each folder, or would have it, and free memory."""
    memory = dict(line.split(":", 1) for line in read("/proc/meminfo").splitlines())
    return {
        "free_mib": {folder: _free_mib(Path(folder)) for folder in folders},
        "memory_mib": int(memory["MemAvailable"].split()[0]) >> 10,
    }


def _free_mib(path: Path) -> int:
    while not path.exists():
        path = path.parent
    disk = os.statvfs(path)
    return disk.f_bfree * disk.f_frsize >> 20


def port_problem(port: int) -> str:
    """Why a server could not listen on this port; empty if it could."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError as error:
            return str(error.strerror)
    return ""


def kvm_works(commands: Commands, kernel: str = "", device: str = DEVICE) -> KvmAnswer:
    """Run code on a virtual CPU; then boot `kernel`, or the last one in /boot, if there is a kernel and QEMU."""
    why, advice = _obstacle(device)
    kernels = [Path(kernel)] if kernel else sorted(Path("/boot").glob("vmlinuz-*"))[-1:]
    booted = ""
    if not why and kernels and shutil.which(f"qemu-system-{os.uname().machine}"):
        booted = kernels[0].name
        kind, words = boot(kernels[0], Path(device), commands)
        if kind != "kvm":
            why, advice = words, "Look for nested virtualization that is half there; `dmesg` may say why."
    return {"why": why, "advice": advice, "booted": booted, "kvm_modules": kvm_modules(), "kvm_flags": kvm_flags()}


def _obstacle(device: str) -> tuple[str, str]:
    """Why KVM does not work, and what to do, both empty when code runs."""
    if not Path(device).exists():
        if os.uname().machine == "aarch64":
            return f"{device} does not exist", "Boot the kernel at EL2; in a guest, turn on nested virtualization."
        name = "kvm_amd" if "svm" in kvm_flags() else "kvm_intel"
        return f"{device} does not exist", f"Turn on virtualization in the firmware, then `modprobe {name}`."
    try:
        why = why_no_code_runs(device)
    except OSError as error:
        why = f"{device} exists, but {error.strerror}"
    return why, "Turn on virtualization in the firmware, or nested virtualization where this is a guest." if why else ""


def route(name: str) -> Route:
    """The route to a machine, by its name or address: interface, MTU, router, neighbour."""
    try:
        remote = socket.gethostbyname(name)
        address = _own_address(remote)
        interface = _interface_of(address)
        folder = Path("/sys/class/net") / interface
        router = _gateway(remote, interface)
        own_mac = (folder / "address").read_text().strip()
        mac = own_mac if address == remote else None if router else _neighbour(remote)
        error = f"no machine answers at {remote}" if not router and not mac else ""
    except OSError as problem:
        return {"error": str(problem)}
    try:
        speed_mbit = int((folder / "speed").read_text()) if (folder / "device").exists() else -1
    except (OSError, ValueError):
        speed_mbit = -1
    return {
        "error": error,
        "remote": remote,
        "address": address,
        "interface": interface,
        "mtu": int((folder / "mtu").read_text()),
        "mac": own_mac,
        "speed_mbit": speed_mbit if speed_mbit > 0 else None,
        "on_link": router is None,
        "gateway": router,
        "neighbour": mac,
    }


def _own_address(remote: str) -> str:
    """The address that this machine sends from; the packet makes the kernel look up the neighbour's address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((remote, _DISCARD))
        with contextlib.suppress(OSError):
            probe.send(b"")
        return str(probe.getsockname()[0])


def _interface_of(address: str) -> str:
    """The interface that has this address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):
                answer = fcntl.ioctl(probe, _ADDRESS_OF_INTERFACE, struct.pack("256s", name.encode()))
                if socket.inet_ntoa(answer[20:24]) == address:
                    return name
    raise OSError(f"no interface has {address}")


def _gateway(remote: str, interface: str) -> str | None:
    """The router on the way; None when the address is on the interface's own network."""
    destination, best = struct.unpack("=I", socket.inet_aton(remote))[0], (-1, 0)
    for line in read("/proc/net/route").splitlines()[1:]:
        name, network, router, _, _, _, _, mask = line.split()[:8]
        if name == interface and destination & int(mask, 16) == int(network, 16):
            best = max(best, (bin(int(mask, 16)).count("1"), int(router, 16)))
    return socket.inet_ntoa(struct.pack("=I", best[1])) if best[1] else None


def _neighbour(remote: str) -> str | None:
    """The hardware address that answers for this IP address; None when none does in time."""
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        for line in read("/proc/net/arp").splitlines()[1:]:
            address, _, flags, mac = line.split()[:4]
            if address == remote and int(flags, 16) & _COMPLETE:
                return mac
        _own_address(remote)
        time.sleep(0.05)
    return None

"""Facts that decide whether two machines may be compared."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from vmtoll.agent.hardware import cpuid, crypto_flags, hypervisor
from vmtoll.agent.kvm_host import kvm_flags, kvm_modules
from vmtoll.agent.machine import cpu_latency_us, output_of, read
from vmtoll.agent.protocol import Facts, Fingerprint, ServerFacts, ServerSpec
from vmtoll.agent.virsh import called, virsh_or_nothing

SYSCTLS = (
    "net.core.somaxconn",
    "net.ipv4.tcp_max_syn_backlog",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_tw_reuse",
    "net.ipv4.tcp_congestion_control",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
    "net.ipv4.tcp_slow_start_after_idle",
    "net.ipv4.tcp_timestamps",
    "net.ipv4.tcp_sack",
)
_PIECE = 1 << 20


def sha256_file(path: Path, sha256: Any = None) -> str:
    """SHA-256 of a file; with `sha256`, a hash object, of what was fed to it before and the file."""
    sha256 = sha256 or hashlib.sha256()
    with path.open("rb") as handle:
        while piece := handle.read(_PIECE):
            sha256.update(piece)
    return str(sha256.hexdigest())


def fingerprint(spec: ServerSpec, root: Path = Path("/")) -> Fingerprint:
    """Facts that must be equal on two machines: binary, configuration, workers. `root`: what their paths begin at."""
    sha256 = hashlib.sha256()
    for path in spec["configs"]:
        sha256_file(root / path.lstrip("/"), sha256)
    return {
        "binary_sha256": sha256_file(root / spec["binary"].lstrip("/")),
        "config_sha256": sha256.hexdigest(),
        "workers": spec["workers"],
    }


def tree_digest(folder: Path) -> str:
    """SHA-256 of the lines `sha256  path` of all files below a folder, sorted by path."""
    root = folder.resolve()
    lines = [(str(p.relative_to(root)), sha256_file(p)) for p in root.rglob("*") if p.is_file()]
    sha256 = hashlib.sha256()
    for name, digest in sorted(lines):
        sha256.update(f"{digest}  {name}\n".encode())
    return sha256.hexdigest()


def _cpuinfo(*keys: str) -> str:
    for line in read("/proc/cpuinfo").splitlines():
        name, _, value = line.partition(":")
        if name.strip() in keys:
            return value.strip()
    return ""


def _stepping() -> str:
    """Family, model and stepping of the CPU, as `25-17-1`; empty where the kernel does not number them."""
    numbers = [_cpuinfo(key) for key in ("cpu family", "model", "stepping")]
    return "-".join(numbers) if all(numbers) else ""


def _sockets() -> int:
    packages = Path("/sys/devices/system/cpu").glob("cpu[0-9]*/topology/physical_package_id")
    return len({read(str(path)) for path in packages}) or 1


def _nic() -> str:
    """Driver and MTU of every interface but the loopback."""
    interfaces = []
    for interface in sorted(Path("/sys/class/net").iterdir()):
        if interface.name != "lo":
            driver = interface / "device" / "driver"
            name = driver.resolve().name if driver.exists() else "virtual"
            interfaces.append(f"{name} mtu={read(str(interface / 'mtu'))}")
    return ", ".join(interfaces)


def installed_packages(root: Path = Path("/")) -> dict[str, str]:
    """Debian package → version, of a root file system."""
    database = f"--admindir={root}/var/lib/dpkg"
    listing = output_of("dpkg-query", database, "-W", "-f", "${db:Status-Abbrev} ${Package} ${Version}\\n")
    rows = [line.split() for line in listing.splitlines()]
    return {row[1]: row[2] for row in rows if len(row) == 3 and row[0].startswith("ii")}


def sysctls() -> dict[str, str]:
    """The kernel parameters that a comparison rests on."""
    values = {name: read("/proc/sys/" + name.replace(".", "/"), "absent") for name in SYSCTLS}
    return {name: " ".join(value.split()) for name, value in values.items()}


def os_release(text: str) -> dict[str, str]:
    """The fields of /etc/os-release."""
    lines = (line.partition("=") for line in text.splitlines())
    return {key: value.strip("\"'") for key, _, value in lines}


def release(text: str) -> str:
    """The system by name and version, `Debian 13`, from the text of /etc/os-release."""
    fields = os_release(text)
    name = fields.get("NAME", "unknown").replace(" GNU/Linux", "")
    return f"{name} {fields.get('VERSION_ID', '')}".strip()


def machine_facts() -> Facts:
    """Facts of any machine, whatever its role."""
    memory = [line.split()[1] for line in read("/proc/meminfo").splitlines() if line.startswith("MemTotal")]
    vulnerabilities = sorted(Path("/sys/devices/system/cpu/vulnerabilities").glob("*"))
    return {
        "release": release(read("/etc/os-release")),
        "kernel": os.uname().release,
        "cmdline": read("/proc/cmdline"),
        "cpu_model": _cpuinfo("model name", "Model"),
        "cpus_allowed": len(os.sched_getaffinity(0)),
        "stepping": _stepping(),
        "microcode": _cpuinfo("microcode"),
        "sockets": _sockets(),
        "mitigations": {path.name: read(str(path)) for path in vulnerabilities},
        "governor": read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "smt": read("/sys/devices/system/cpu/smt/control"),
        "numa_nodes": len(list(Path("/sys/devices/system/node").glob("node[0-9]*"))),
        "clock_source": read("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        "cpu_latency_us": cpu_latency_us(),
        "memory_kib": int(memory[0]) if memory else 0,
        "virtualization": output_of("systemd-detect-virt", "--vm") or "none",
        "container": output_of("systemd-detect-virt", "--container") or "none",
        "hypervisor": hypervisor(cpuid()),
        "kvm_modules": kvm_modules(),
        "kvm_flags": kvm_flags(),
        "crypto_flags": crypto_flags(),
        "nic": _nic(),
        "sysctls": sysctls(),
        "packages": installed_packages(),
    }


def server_facts(spec: ServerSpec, packages: dict[str, str], root: Path = Path("/")) -> ServerFacts:
    """The fingerprint of a server, and the versions of its packages (None if it comes from no package)."""
    versions = [f"{name} {packages.get(name, 'absent')}" for name in spec.get("packages", [])]
    return {**fingerprint(spec, root), "version": ", ".join(versions) or None}


def libvirt_facts(uri: str, domains: Iterable[str]) -> Facts:
    """Facts of a KVM host: versions of QEMU and libvirt, and the definitions of the domains."""
    facts: Facts = {}
    for line in virsh_or_nothing(uri, "version").splitlines():
        key, _, value = line.partition(":")
        if key.startswith("Running hypervisor"):
            facts["qemu_version"] = value.strip()
        elif key.startswith("Using library"):
            facts["libvirt_version"] = value.strip()
    definitions = {name: virsh_or_nothing(uri, "dumpxml", *called(name)) for name in domains}
    facts["domains"] = {name: without_secrets(xml) for name, xml in definitions.items()}
    return facts


def without_secrets(domain_xml: str) -> str:
    """A domain's definition without the values of systemd credentials, which may be keys."""
    return re.sub(r"(io\.systemd\.credential(?:\.binary)?:[^=<]*=)[^<]*", r"\1removed", domain_xml)

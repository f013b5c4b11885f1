"""This machine's facts for a run's disclosure: firmware, memory, cards, disks, changed settings.

Serial numbers, asset tags and hardware addresses are never included. Sources: /sys/class/dmi, `dmidecode` (root),
/sys, `ethtool`, `lsblk`, dpkg's folders.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import re
from collections.abc import Callable
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from pathlib import Path

from vmtoll.agent.machine import cpu_latency_us, output_of, read

# Packages that affect the measurements; the servers' specs name those of the servers.
_PACKAGES = re.compile(
    r"linux-image-\d.*|qemu-system-(x86|arm)|libvirt-daemon|libvirt-daemon-driver-qemu|seabios|ovmf|libc6"
    r"|libssl[\d.]+.*|openssl|systemd|intel-microcode|amd64-microcode|ethtool"
)
_OFFLOADS = (
    "tx-checksumming", "rx-checksumming", "scatter-gather", "tcp-segmentation-offload", "generic-segmentation-offload",
    "generic-receive-offload", "large-receive-offload",
)  # fmt: skip
_NO_MEMORY = ("", "No Module Installed", "Unknown")
# Kernel parameters that say where the system is and who it is, not how it performs.
_ORDINARY = re.compile(
    r"(BOOT_IMAGE|root|ro|rw|quiet|splash|initrd|console|systemd\..*|ip|resume|fsck\..*|net\.ifnames)(=.*)?"
)


def disclosure(packages: dict[str, str], server_packages: tuple[str, ...] = (), root: str = "") -> dict[str, str]:
    """Return item → text for the items of vmtoll/model/disclosure.py but the switch; empty if unknown."""
    return {
        "cpu": _cpu(root),
        "firmware": firmware(root),
        "power_profile": power_profile(root),
        "memory": memory(output_of("dmidecode", "-t", "17")),
        "nic": "; ".join(_cards(root)),
        "nic_firmware": "; ".join(_each_card(root, lambda name: firmware_of(output_of("ethtool", "-i", name)))),
        "nic_offloads": "; ".join(_each_card(root, _offloads)),
        "storage": "; ".join(_disks(root)),
        "kernel": _kernel(),
        "packages": ", ".join(
            package_with_date(name, packages[name], root)
            for name in sorted(packages)
            if _is_named(name, server_packages)
        ),
        "mitigations": _mitigations(root),
        "hypervisor": _hypervisor(packages),
        "not_default": "; ".join(changed_settings(root)),
    }


def _is_named(package: str, server_packages: tuple[str, ...]) -> bool:
    return package in server_packages or bool(_PACKAGES.fullmatch(package))


def _cpu(root: str) -> str:
    info = read(f"{root}/proc/cpuinfo")
    values: dict[str, str] = {}
    for line in info.splitlines():
        name, _, value = line.partition(":")
        values.setdefault(name.strip(), value.strip())
    sockets = len(set(re.findall(r"^physical id\s*:\s*(\d+)", info, re.MULTILINE))) or 1
    threads = len(re.findall(r"^processor\s*:", info, re.MULTILINE))
    model = values.get("model name") or values.get("Model") or ""
    khz = read(f"{root}/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq")
    parts = [model, f"{sockets} socket(s)", f"{threads} CPU(s) online"]
    parts += [f"{values['cpu cores']} core(s) a socket"] if "cpu cores" in values else []
    parts += [f"SMT {smt}"] if (smt := read(f"{root}/sys/devices/system/cpu/smt/control")) else []
    parts += [f"up to {int(khz) // 1000} MHz"] if khz.isdigit() else []
    parts += [f"microcode {values['microcode']}"] if "microcode" in values else []
    return ", ".join(parts) if model else ""


def firmware(root: str = "") -> str:
    """The machine's vendor and product, and its firmware's vendor, version and date, from DMI."""
    dmi = {name: read(f"{root}/sys/class/dmi/id/{name}") for name in
           ("sys_vendor", "product_name", "bios_vendor", "bios_version", "bios_date")}  # fmt: skip
    if not dmi["bios_version"]:
        return ""
    machine = " ".join(filter(None, (dmi["sys_vendor"], dmi["product_name"])))
    text = f"{dmi['bios_vendor']} {dmi['bios_version']} ({dmi['bios_date'] or 'no date'})".strip()
    return f"{machine}, {text}" if machine else text


def power_profile(root: str = "") -> str:
    """Platform profile, cpufreq driver, governor, energy preference, turbo and idle driver, if the kernel has them."""
    cpu = f"{root}/sys/devices/system/cpu"
    turbo = {"0": "on", "1": "off"}.get(read(f"{cpu}/intel_pstate/no_turbo"), "")
    turbo = turbo or {"1": "on", "0": "off"}.get(read(f"{cpu}/cpufreq/boost"), "")
    values = {
        "platform profile": read(f"{root}/sys/firmware/acpi/platform_profile"),
        "driver": read(f"{cpu}/cpu0/cpufreq/scaling_driver"),
        "governor": read(f"{cpu}/cpu0/cpufreq/scaling_governor"),
        "energy preference": read(f"{cpu}/cpu0/cpufreq/energy_performance_preference"),
        "turbo": turbo,
    }
    parts = [f"{name} {value}" for name, value in values.items() if value]
    idle = read(f"{cpu}/cpuidle/current_driver")
    return ", ".join([*parts, *([f"idle driver {idle}"] if parts and idle not in ("", "none") else [])])


def memory(dmidecode: str) -> str:
    """The memory modules by kind, as `12 × 32 GB DDR5 4800 MT/s Samsung`, and the number of empty slots."""
    modules: dict[str, int] = {}
    empty = 0
    for block in re.split(r"\n\s*\n", dmidecode):
        if "Memory Device" not in block:
            continue
        fields = dict(re.findall(r"^\s*([\w ]+): (.*)$", block, re.MULTILINE))
        if fields.get("Size", "") in _NO_MEMORY:
            empty += 1
            continue
        speed = fields.get("Configured Memory Speed") or fields.get("Configured Clock Speed") or fields.get("Speed", "")
        words = (fields["Size"], fields.get("Type", ""), speed, fields.get("Manufacturer", ""))
        kind = " ".join(word for word in words if word not in ("", "Unknown", "Not Specified"))
        modules[kind] = modules.get(kind, 0) + 1
    parts = [f"{count} × {kind}" for kind, count in modules.items()]
    return ", ".join([*parts, *([f"{empty} slot(s) empty"] if parts and empty else [])])


def _interfaces(root: str) -> list[str]:
    """Names of the network interfaces that have a device: neither bridges nor taps."""
    names = sorted(path.name for path in Path(f"{root}/sys/class/net").glob("*") if (path / "device").exists())
    return [name for name in names if name != "lo"]


def _cards(root: str) -> list[str]:
    cards = []
    for name in _interfaces(root):
        folder = Path(f"{root}/sys/class/net/{name}")
        vendor, device = read(f"{folder}/device/vendor"), read(f"{folder}/device/device")
        speed = read(f"{folder}/speed")
        parts = [(folder / "device" / "driver").resolve().name, f"PCI ID {vendor[2:]}/{device[2:]}" if device else ""]
        parts += [f"{speed} Mbit/s" if speed.isdigit() else "", f"MTU {read(f'{folder}/mtu')}"]
        cards.append(", ".join(filter(None, parts)))
    return cards


def _each_card(root: str, describe: Callable[[str], str]) -> list[str]:
    return [text for name in _interfaces(root) if (text := describe(name))]


def firmware_of(ethtool: str) -> str:
    """The firmware version in the output of `ethtool -i`; empty if there is none."""
    line = re.search(r"^firmware-version:[ \t]*(\S.*)$", ethtool, re.MULTILINE)
    return "" if line is None or line[1].strip() == "N/A" else line[1].strip()


def _offloads(name: str) -> str:
    features = dict(re.findall(r"^\s*([\w-]+): (on|off)", output_of("ethtool", "-k", name), re.MULTILINE))
    parts = [f"{feature} {features[feature]}" for feature in _OFFLOADS if feature in features]
    queues = output_of("ethtool", "-l", name).partition("Current hardware settings")[2]
    counts = [f"{kind} {count}" for kind, count in re.findall(r"(RX|TX|Combined):\s+([1-9]\d*)", queues)]
    return ", ".join([*parts, *([f"queues: {' '.join(counts)}"] if counts else [])])


def _disks(root: str) -> list[str]:
    disks = []
    for folder in sorted(Path(f"{root}/sys/block").glob("*")):
        sectors = read(f"{folder}/size")
        if re.match(r"loop|ram|zram|dm-|md|sr|fd|nbd", folder.name) or not sectors.isdigit() or sectors == "0":
            continue
        model = " ".join(read(f"{folder}/device/model").split()) or folder.name[:2]
        kind = {"0": "not rotating", "1": "rotating"}.get(read(f"{folder}/queue/rotational"), "")
        scheduler = read(f"{folder}/queue/scheduler").partition("[")[2].partition("]")[0]
        size = f"{int(sectors) * 512 / 1e9:.0f} GB"
        disks.append(", ".join(filter(None, (model, size, kind, f"scheduler {scheduler}" if scheduler else ""))))
    mounts = [line.split() for line in read(f"{root}/proc/self/mounts").splitlines()]
    filesystems = [words[2] for words in mounts if len(words) > 3 and words[1] == "/"]
    return [*disks, *([f"root filesystem {filesystems[-1]}"] if disks and filesystems else [])]


def _kernel() -> str:
    """Release and build of the kernel; the build's text has its date."""
    system = os.uname()
    return f"{system.release} ({system.version})"


def package_with_date(package: str, version: str, root: str = "") -> str:
    """Return `qemu-system-x86 1:7.2 (2025-10-02)`: dated by Debian's changelog, else by the installation."""
    for name in ("changelog.Debian.gz", "changelog.gz"):
        with contextlib.suppress(OSError, EOFError, ValueError, TypeError):
            line = _signature(f"{root}/usr/share/doc/{package}/{name}")
            date = parsedate_to_datetime(line.rpartition("  ")[2].strip())
            return f"{package} {version} ({date.date().isoformat()})"
    for name in (f"{package}.list", f"{package}:amd64.list", f"{package}:arm64.list"):
        with contextlib.suppress(OSError):
            changed_at = Path(f"{root}/var/lib/dpkg/info/{name}").stat().st_mtime
            installed = datetime.fromtimestamp(changed_at, timezone.utc).date()
            return f"{package} {version} (installed {installed.isoformat()})"
    return f"{package} {version} (no date)"


def _signature(changelog: str) -> str:
    """The first entry's last line, which has its date; empty where there is none. Raises OSError, EOFError."""
    with gzip.open(changelog, "rt", encoding="utf-8", errors="replace") as text:
        return next((line for line in text if line.startswith(" -- ")), "")


def _mitigations(root: str) -> str:
    folder = Path(f"{root}/sys/devices/system/cpu/vulnerabilities")
    states = {path.name: read(str(path)) for path in sorted(folder.glob("*"))}
    affected = [f"{name}: {state}" for name, state in states.items() if state and state != "Not affected"]
    unaffected = sum(state == "Not affected" for state in states.values())
    return "; ".join([*affected, *([f"not affected by {unaffected} others"] if unaffected else [])])


def _hypervisor(packages: dict[str, str]) -> str:
    hypervisor = output_of("systemd-detect-virt") or ""
    packages_text = [f"{name} {packages[name]}" for name in ("qemu-system-x86", "libvirt-daemon") if name in packages]
    text = "runs on the hardware itself" if hypervisor == "none" else f"runs under {hypervisor}" if hypervisor else ""
    return ", ".join([*filter(None, [text]), *packages_text])


def changed_settings(root: str = "") -> list[str]:
    """Changed settings: kernel command line, sysctl files and module options in /etc, a limit on CPUs' wake-up time."""
    words = [word for word in read(f"{root}/proc/cmdline").split() if not _ORDINARY.fullmatch(word)]
    names = [word.partition("=")[0] for word in words]
    settings = [f"kernel command line: {' '.join(_parameter(w) for w in words)}"] if names else []
    for title, pattern, expression in (
        ("sysctl", "etc/sysctl*", r"^\s*([\w./-]+\s*=\s*[^#;\n]+)"),
        ("module options", "etc/modprobe.d*", r"^\s*options\s+([^#\n]+)"),
    ):
        matches = (
            line for file in _setting_files(root, pattern) for line in re.findall(expression, read(file), re.MULTILINE)
        )
        lines = [" ".join(line.split()) for line in matches]
        settings += [f"{title}: {', '.join(lines)}"] if lines else []
    limit_us = cpu_latency_us(root)
    return settings if limit_us is None else [*settings, f"idle CPUs wake up within {limit_us} µs (PM QoS)"]


def _setting_files(root: str, pattern: str) -> list[str]:
    """The files that match the pattern, and the `*.conf` of the folders that match it."""
    paths = sorted(Path(root or "/").glob(pattern))
    return [str(f) for path in paths for f in ([path] if path.is_file() else sorted(path.glob("*.conf")))]


def _parameter(word: str) -> str:
    """Return a kernel parameter; only its name if its value might identify a machine."""
    name, _, value = word.partition("=")
    return word if re.fullmatch(r"[\w,:.-]{0,40}", value) and not re.search(r"\d+\.\d+\.\d+", value) else name

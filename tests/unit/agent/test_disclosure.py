"""What a machine tells of itself, by the outputs and files of known ones."""

import gzip
import os
from pathlib import Path

from vmtoll.agent.disclosure import changed_settings, firmware, firmware_of, memory, package_with_date, power_profile

DMIDECODE = """# dmidecode 3.4
Handle 0x1100, DMI type 17, 92 bytes
Memory Device
\tSize: 32 GB
\tLocator: A1
\tType: DDR5
\tSpeed: 4800 MT/s
\tManufacturer: Samsung
\tSerial Number: 12345678
\tConfigured Memory Speed: 4400 MT/s

Handle 0x1101, DMI type 17, 92 bytes
Memory Device
\tSize: 32 GB
\tType: DDR5
\tSpeed: 4800 MT/s
\tManufacturer: Samsung
\tSerial Number: 12345679
\tConfigured Memory Speed: 4400 MT/s

Handle 0x1102, DMI type 17, 92 bytes
Memory Device
\tSize: No Module Installed
"""


def write(root: Path, **files: str) -> str:
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(root)


def test_memory_modules_are_counted_by_kind_without_their_serials() -> None:
    assert memory(DMIDECODE) == "2 × 32 GB DDR5 4400 MT/s Samsung, 1 slot(s) empty"
    assert memory("") == ""


def test_firmware_has_version_and_date(tmp_path: Path) -> None:
    dmi = "sys__class__dmi__id__"
    names = {
        "sys_vendor": "Dell",
        "product_name": "R760",
        "bios_vendor": "Dell",
        "bios_version": "1.6",
        "bios_date": "11/03/2025",
    }
    assert (
        firmware(write(tmp_path, **{dmi + name: text for name, text in names.items()}))
        == "Dell R760, Dell 1.6 (11/03/2025)"
    )
    assert firmware(str(tmp_path / "none")) == ""


def test_the_power_profile_is_what_the_kernel_governs(tmp_path: Path) -> None:
    cpu = tmp_path / "sys/devices/system/cpu"
    for name, text in {
        "cpu0/cpufreq/scaling_driver": "intel_pstate", "cpu0/cpufreq/scaling_governor": "performance",
        "intel_pstate/no_turbo": "1", "cpuidle/current_driver": "intel_idle",
    }.items():  # fmt: skip
        (cpu / name).parent.mkdir(parents=True, exist_ok=True)
        (cpu / name).write_text(text)
    assert (
        power_profile(str(tmp_path)) == "driver intel_pstate, governor performance, turbo off, idle driver intel_idle"
    )
    assert power_profile(str(tmp_path / "none")) == ""


def test_the_firmware_of_a_card_is_its_version_or_nothing() -> None:
    assert firmware_of("driver: ice\nfirmware-version: 4.40 0x8001c967\nbus-info: 0000:3b:00.0") == "4.40 0x8001c967"
    assert firmware_of("driver: virtio_net\nfirmware-version: \nbus-info: x") == ""
    assert firmware_of("") == ""


def test_a_package_has_the_date_of_its_changelog(tmp_path: Path) -> None:
    folder = tmp_path / "usr/share/doc/nginx"
    folder.mkdir(parents=True)
    text = "nginx (1.22) bookworm\n\n  * Fix.\n\n -- A B <a@example.org>  Wed, 19 Oct 2022 10:00:00 +0200\n"
    (folder / "changelog.Debian.gz").write_bytes(gzip.compress(text.encode()))
    assert package_with_date("nginx", "1.22", str(tmp_path)) == "nginx 1.22 (2022-10-19)"
    listed = tmp_path / "var/lib/dpkg/info/lighttpd:amd64.list"
    listed.parent.mkdir(parents=True)
    listed.touch()
    os.utime(listed, (0, 86400 * 365))
    assert package_with_date("lighttpd", "1.4", str(tmp_path)) == "lighttpd 1.4 (installed 1971-01-01)"
    assert package_with_date("oha", "1.0", str(tmp_path)) == "oha 1.0 (no date)"


def test_changes_by_the_administrator_are_disclosed_but_not_the_root_device(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        proc__cmdline="BOOT_IMAGE=/vmlinuz root=UUID=1 ro quiet mitigations=off netconsole=@10.0.0.1/ ip=10.0.0.2:::",
    )
    (tmp_path / "etc/sysctl.d").mkdir(parents=True)
    (tmp_path / "etc/sysctl.d/local.conf").write_text("# why\nvm.nr_hugepages = 512  # pages\n")
    (tmp_path / "etc/modprobe.d").mkdir()
    (tmp_path / "etc/modprobe.d/kvm.conf").write_text("options kvm_intel nested=0\n")
    write(tmp_path, dev__cpu_dma_latency="\x01\0\0\0")
    assert changed_settings(root) == [
        "kernel command line: mitigations=off netconsole",
        "sysctl: vm.nr_hugepages = 512",
        "module options: kvm_intel nested=0",
        "idle CPUs wake up within 1 µs (PM QoS)",
    ]
    assert changed_settings(str(tmp_path / "none")) == []

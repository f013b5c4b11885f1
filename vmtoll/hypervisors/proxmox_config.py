"""Read a Proxmox VE guest's configuration, `/etc/pve/qemu-server/VMID.conf`, and write it as libvirt would."""

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from vmtoll.hypervisors.definition import Definition, Live, set_clock, set_cpu, set_virtual_cpus
from vmtoll.hypervisors.elements import add

_KEY = re.compile(r"([a-z][a-z0-9_-]*):\s*(.*?)\s*")
_DISK = re.compile(r"(virtio|scsi|sata|ide)\d+")
_CARD = re.compile(r"net\d+")
_MAC = re.compile(r"(?:[0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}")
_VERSION = re.compile(r"-(\d+)\.(\d+)")
# Proxmox' controllers → libvirt's models; lsi if the configuration names none.
_CONTROLLERS = {"virtio-scsi-pci": "virtio-scsi", "virtio-scsi-single": "virtio-scsi", "lsi": "lsilogic",
                "lsi53c810": "lsilogic", "megasas": "lsisas1078", "pvscsi": "vmpvscsi"}  # fmt: skip
# Proxmox' rates of a disk, in MB/s and in operations a second → libvirt's, and what one of them is there.
_WAYS = {"": "total", "_rd": "read", "_wr": "write"}
RATES = {f"mbps{way}": (f"{name}_bytes_sec", 10**6) for way, name in _WAYS.items()}
RATES |= {f"iops{way}": (f"{name}_iops_sec", 1) for way, name in _WAYS.items()}
# Useful features of the CPU models that Proxmox defines.
_LEVEL_2 = ("ssse3", "sse4_1", "sse4_2", "popcnt")
_LEVEL_3 = (*_LEVEL_2, "aes", "avx", "avx2", "bmi2")
_LEVELS = {"x86-64-v2": _LEVEL_2, "x86-64-v2-AES": (*_LEVEL_2, "aes"), "x86-64-v3": _LEVEL_3,
           "x86-64-v4": (*_LEVEL_3, "avx512f"), "kvm64": ()}  # fmt: skip
# The default CPU model.
CPU = "kvm64"
# From this version of its machine on, a guest with Linux has no HPET.
_NO_HPET = (10, 1)


@dataclass(frozen=True)
class Config:
    """A guest's configuration. `values`: its current options, by name."""

    vmid: str
    values: Mapping[str, str] = field(default_factory=dict)

    def get(self, name: str, default: str = "") -> str:
        """An option's value."""
        return self.values.get(name, default)

    def parts(self, name: str, first: str = "") -> dict[str, str]:
        """The parts of an option's value by key; one without a key has the key `first`."""
        pairs = (part.partition("=") for part in self.get(name).split(",") if part)
        return {key if equals else first: value if equals else key for key, equals, value in pairs}

    @property
    def name(self) -> str:
        """The guest's name, which need not be unique."""
        return self.get("name")

    @property
    def is_template(self) -> bool:
        """Return whether it is a template, which never runs."""
        return self.get("template") == "1"

    @property
    def vcpus(self) -> int:
        """Number of virtual CPUs at its start."""
        return int(self.get("vcpus") or int(self.get("sockets", "1")) * int(self.get("cores", "1")))

    @property
    def disks(self) -> list[str]:
        """The options that are disks, neither CDs nor cloud-init's."""
        names = (name for name in self.values if _DISK.fullmatch(name))
        return [n for n in names if self.parts(n).get("media") != "cdrom" and not self.get(n).startswith("none")]

    @property
    def cards(self) -> dict[str, str]:
        """MAC address → the option that is the card."""
        return {card_of(self.parts(name))[1]: name for name in self.values if _CARD.fullmatch(name)}


def parse_config(vmid: str, text: str) -> Config:
    """Parse a configuration up to its first section: sections are pending changes and snapshots."""
    values = {}
    for line in text.splitlines():
        if line.startswith("["):
            break
        if match := _KEY.fullmatch(line):
            values[match[1]] = match[2]
    return Config(vmid, values)


def card_of(parts: Mapping[str, str]) -> tuple[str, str]:
    """Model and MAC address of a card."""
    model_and_mac = next(((key, value) for key, value in parts.items() if _MAC.fullmatch(value)), ("", ""))
    return (model_and_mac[0] if model_and_mac[0] != "macaddr" else parts.get("model", ""), model_and_mac[1].lower())


def definition(config: Config, live: Live, *, hpet: bool) -> Definition:
    """The definition of a guest. `hpet`: whether it has an HPET, which the configuration does not show."""
    domain = ET.Element("domain", type="qemu" if config.get("kvm") == "0" else "kvm")
    add(domain, "name", config.vmid)
    memory = config.parts("memory", "current").get("current", "512")
    add(domain, "memory", memory, unit="MiB")
    if config.get("hugepages"):
        add(add(domain, "memoryBacking"), "hugepages")
    set_virtual_cpus(domain, config.vcpus, _pinned(config, live))
    _limits(domain, config)
    add(add(domain, "os"), "type", "hvm", arch=config.get("arch", "x86_64"))
    set_cpu(domain, dict(_cpu(config)))
    set_clock(domain, hpet=hpet, kvmclock=True)
    devices = add(domain, "devices")
    devices.extend([*_disks(config), *_cards(config)])
    scsi = _CONTROLLERS.get(config.get("scsihw"), "lsilogic")
    if any(name.startswith("scsi") for name in config.disks):
        add(devices, "controller", type="scsi", model=scsi)
    return Definition(domain)


def _pinned(config: Config, live: Live) -> Live:
    """`live` with the pins of the option `affinity`, a set of CPUs for the whole guest. If the set has a CPU for each
    virtual CPU, the guest counts as pinned. Without the option, a hook script may have pinned the threads.
    """
    affinity = affinity_of(config)
    if not affinity:
        return live
    if len(affinity) < config.vcpus:
        return Live(live.kvm)
    return Live(live.kvm, {number: [cpu] for number, cpu in enumerate(affinity[: config.vcpus])})


def affinity_of(config: Config) -> list[int]:
    """The CPUs of the option `affinity`."""
    ranges = [part.strip().split("-") for part in config.get("affinity").split(",") if part.strip()]
    return sorted({cpu for part in ranges for cpu in range(int(part[0]), int(part[-1]) + 1)})


def _limits(domain: ET.Element, config: Config) -> None:
    """Add the limit of CPU time, if it is below the number of virtual CPUs, and the weight."""
    tune = domain.find("cputune")
    limit, units = float(config.get("cpulimit") or 0), config.get("cpuunits")
    if (0 < limit < config.vcpus or units) and tune is None:
        tune = add(domain, "cputune")
    if tune is not None and 0 < limit < config.vcpus:
        add(tune, "global_period", "100000")
        add(tune, "global_quota", str(round(limit * 100_000)))
    if tune is not None and units:
        add(tune, "shares", units)


def _cpu(config: Config) -> Iterator[tuple[str, str]]:
    parts = config.parts("cpu", "cputype")
    yield "model", parts.get("cputype", CPU)
    for flag in filter(None, parts.get("flags", "").split(";")):
        yield flag[1:], "on" if flag[0] == "+" else "off"


def model_flags(config: Config) -> list[str] | None:
    """The useful features of the CPU model; None for a model that Proxmox does not define."""
    name = config.parts("cpu", "cputype").get("cputype", CPU)
    return list(_LEVELS[name]) if name in _LEVELS else None


def _disks(config: Config) -> Iterator[ET.Element]:
    for name in config.disks:
        parts = config.parts(name, "file")
        match = _DISK.fullmatch(name)
        element = ET.Element("disk", type="block" if parts.get("file", "").startswith("/dev/") else "volume")
        add(element, "driver", name="qemu", cache=parts.get("cache", "none"))
        add(element, "target", dev=name, bus=match[1] if match else "")
        rates = {RATES[key]: value for key, value in parts.items() if key in RATES and value != "0"}
        if rates:
            tune = add(element, "iotune")
            for (rate, factor), value in rates.items():
                add(tune, rate, f"{float(value) * factor:.0f}")
        yield element


def _cards(config: Config) -> Iterator[ET.Element]:
    for mac, name in config.cards.items():
        parts = config.parts(name)
        model = card_of(parts)[0]
        card = ET.Element("interface", type="bridge" if parts.get("bridge") else "user")
        add(card, "mac", address=mac)
        add(card, "model", type=model)
        if model == "virtio":
            queues = {"queues": parts["queues"]} if parts.get("queues", "0") != "0" else {}
            add(card, "driver", **({"name": "vhost"} if parts.get("bridge") else {}), **queues)
        if rate := parts.get("rate"):
            add(add(card, "bandwidth"), "inbound", average=f"{float(rate) * 1000:.0f}")
        yield card


def has_hpet(config: Config) -> bool | None:
    """Return whether a guest that is off will have an HPET; None if the node's version of QEMU decides."""
    kind = config.get("ostype", "other")
    if kind in ("wxp", "w2k", "w2k3"):
        return True
    if kind.startswith("w"):
        return False
    version = _VERSION.search(config.get("machine"))
    if kind not in ("l24", "l26"):
        return True
    return None if version is None else (int(version[1]), int(version[2])) < _NO_HPET

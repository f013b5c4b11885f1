"""Read a neutral guest of Proxmox VE from its configuration, `/etc/pve/qemu-server/VMID.conf`, and its process."""

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from vmtoll.hypervisors.command_line import CommandLine, parse_command_line
from vmtoll.hypervisors.guest_config import (
    X86,
    Card,
    Cell,
    Cpu,
    Disk,
    Fact,
    GuestConfig,
    Known,
    Pins,
    Quota,
    Unknown,
    cpus,
    flag_name,
)  # fmt: skip
from vmtoll.hypervisors.qemu_config import cpu_of, with_args

SOURCE = "the configuration"
# The file of a node's own CPU models, below its root.
MODELS = "etc/pve/virtual-guest/cpu-models.conf"
_KEY = re.compile(r"([a-z][a-z0-9_-]*):\s*(.*?)\s*")
_DISK = re.compile(r"(virtio|scsi|sata|ide)\d+")
_CARD = re.compile(r"net\d+")
_HOST_DEVICE = re.compile(r"hostpci\d+")
_CELL = re.compile(r"numa\d+")
_MAC = re.compile(r"(?:[0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}")
_CARDS = ("virtio", "e1000", "rtl8139", "vmxnet3", "ne2k", "pcnet", "i82")
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
    """A guest's configuration. `values`: its options, by name; `pending`: those at its next start, None if no other.
    `models`: the text of the node's file of CPU models, None if it was not read.
    """

    vmid: str
    values: Mapping[str, str] = field(default_factory=dict)
    pending: Mapping[str, str] | None = None
    models: str | None = None

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
    def args(self) -> CommandLine:
        """The options of QEMU that it adds."""
        try:
            return parse_command_line(["kvm", *shlex.split(self.get("args"))])
        except ValueError:  # a quote without its end: Proxmox refuses to start it
            return CommandLine("kvm", (), (f"args: {self.get('args')[:40]}",))

    @property
    def later(self) -> "Config | None":
        """The configuration at the guest's next start, if another one."""
        return None if self.pending is None else replace(self, values=self.pending, pending=None)


def parse_config(vmid: str, text: str, models: str | None = None) -> Config:
    """Parse a configuration: its first section and the pending changes; the other sections are snapshots."""
    sections: dict[str, dict[str, str]] = {"": {}}
    values = sections[""]
    for line in text.splitlines():
        if line.startswith("["):
            values = sections.setdefault(line.strip().strip("[]"), {})
        elif match := _KEY.fullmatch(line):
            values[match[1]] = match[2]
    changes = sections.get("PENDING")
    if not changes:
        return Config(vmid, sections[""], models=models)
    deleted = {name.strip().lstrip("!") for name in changes.pop("delete", "").split(",")}
    kept = {name: value for name, value in sections[""].items() if name not in deleted}
    return Config(vmid, sections[""], kept | changes, models)


def card_of(parts: Mapping[str, str]) -> tuple[str, str]:
    """Model and MAC address of a card."""
    model, mac = next(((key, value) for key, value in parts.items() if _MAC.fullmatch(value)), ("", ""))
    model = parts.get("model", "") if model in ("macaddr", "") else model
    return model or next((v for key, v in parts.items() if not key and v.startswith(_CARDS)), ""), mac.lower()


def guest_of_config(config: Config, architecture: str = "") -> GuestConfig:
    """The guest as the configuration has it. `architecture`: the node's."""
    memory = config.parts("memory", "current").get("current", "512")
    count, kind = config.vcpus, config.get("arch", architecture or "x86_64")
    cpu, hidden = _cpu(config, kind)
    limit = float(config.get("cpulimit") or 0)
    affinity = tuple(cpus(config.get("affinity")))
    hpet = has_hpet(config)
    guest = GuestConfig(
        name=config.vmid, domain_type=Known("qemu" if config.get("kvm") == "0" else "kvm", SOURCE),
        architecture=Known(kind, SOURCE), vcpus=Known(count, SOURCE), cpu=cpu, model_flags=_model_flags(config, cpu),
        seen_flags=Unknown("QEMU's monitor, once the guest runs"), kvmclock=hidden,
        hpet=Unknown("the version of QEMU that starts it") if hpet is None else Known(hpet, SOURCE),
        memory_bytes=Known(int(memory) << 20, SOURCE), cells=Known(tuple(_cells(config, count)), SOURCE),
        huge_pages=Known(bool(config.get("hugepages")), SOURCE), pins=Known(Pins(together=affinity), SOURCE),
        quotas=Known((Quota("global_quota", limit),) if 0 < limit < count else (), SOURCE),
        weight=Known(int(config.get("cpuunits") or 0), SOURCE), memory_limits=Known({}, SOURCE),
        blkio=Known((), SOURCE), kernel=Known("", SOURCE),
        is_protected=Known(bool(config.get("amd-sev") or config.get("intel-tdx")), SOURCE),
        disks=Known(tuple(_disk(config, name) for name in config.disks), SOURCE),
        cards=Known(tuple(_cards(config)), SOURCE),
        controllers=tuple({_controller(config) for name in config.disks if name.startswith("scsi")}),
        host_devices=tuple(_host_devices(config)),
    )  # fmt: skip
    line = config.args
    return with_args(guest, line) if line.options else guest


def while_running(guest: GuestConfig, live: GuestConfig) -> GuestConfig:
    """The guest of a configuration with what its process and QEMU's monitor have."""
    facts: dict[str, Any] = {
        name: fact
        for name in ("domain_type", "cpu", "seen_flags", "hpet", "pins", "vcpus", "kvmclock", "cells", "is_protected")
        if isinstance(fact := getattr(live, name), Known)
    }
    if isinstance(live.model_flags, Known) and isinstance(guest.model_flags, Unknown):
        facts["model_flags"] = live.model_flags
    if isinstance(pins := guest.pins, Known) and pins.known.together and isinstance(live.pins, Known):
        sets = set(live.pins.known.each.values())
        together = next(iter(sets)) if len(sets) == 1 and len(next(iter(sets))) > 1 else ()
        if together or not sets:
            facts["pins"] = Known(Pins(together=together), live.pins.source)
    if isinstance(live.disks, Known) and isinstance(guest.disks, Known):
        now = {disk.name.removeprefix("drive-"): disk for disk in live.disks.known}
        listed = tuple(
            replace(disk, cache=now[disk.name].cache, rates=now[disk.name].rates) if disk.name in now else disk
            for disk in guest.disks.known
        )
        facts["disks"] = Known(listed, live.disks.source)
    return replace(guest, running=True, **facts)


def _cells(config: Config, count: int) -> Iterator[Cell]:
    """The guest's cells, by `numaN`; `hostnodes` binds a cell's memory."""
    names = [name for name in config.values if _CELL.fullmatch(name)] if config.get("numa") == "1" else []
    for name in names:
        parts = config.parts(name)
        listed = cpus(parts.get("cpus", ""))
        yield Cell(tuple(cpu for cpu in listed if cpu < count), frozenset(cpus(parts.get("hostnodes", ""))))
    if not names:
        yield Cell(tuple(range(count)))


def _custom(config: Config, name: str) -> dict[str, str] | None:
    """The options of a model of the node's file; None if it was not read, or has no such model."""
    found: dict[str, str] | None = None
    for line in (config.models or "").splitlines():
        words = line.split(None, 1)
        if line.startswith("cpu-model:"):
            if found is not None:
                break
            found = {} if words[1:] and words[1].strip() == name.removeprefix("custom-") else None
        elif found is not None and words:
            found[words[0]] = words[1].strip() if words[1:] else "1"
    return found


def _cpu(config: Config, architecture: str) -> tuple[Fact[Cpu], Fact[str]]:
    """The CPU, and the reason why the guest has no kvmclock, empty if it has it."""
    parts = config.parts("cpu", "cputype")
    name = parts.get("cputype", CPU if architecture in X86 else "")
    if name.startswith("custom-"):
        custom = _custom(config, name)
        if custom is None:
            tells = Unknown(f"the model {name} in /{MODELS}")
            return tells, _hidden(parts) if "hidden" in parts else tells
        flags = ";".join(filter(None, [custom.get("flags", ""), parts.get("flags", "")]))
        parts = custom | parts | {"flags": flags}
        name = custom.get("reported-model", CPU)
    if not name:
        return Unknown(f"the CPU that Proxmox takes for {architecture}"), _hidden(parts)
    switches = {flag[1:]: "on" if flag[0] == "+" else "off" for flag in parts.get("flags", "").split(";") if flag}
    return Known(cpu_of({"model": name, **switches}), SOURCE), _hidden(parts)


def _hidden(parts: Mapping[str, str]) -> Known[str]:
    return Known("no kvmclock: hidden=1 hides KVM" if parts.get("hidden") == "1" else "", SOURCE)


def _model_flags(config: Config, cpu: Fact[Cpu]) -> Fact[frozenset[str]]:
    """The useful features of a CPU model that Proxmox defines."""
    name = cpu.known.model if isinstance(cpu, Known) else ""
    if name in _LEVELS:
        return Known(frozenset(map(flag_name, _LEVELS[name])), "Proxmox VE's CPU models")
    return Unknown("QEMU's model list (`kvm -cpu help` of the node), or its monitor once the guest runs")


def _controller(config: Config) -> str:
    return _CONTROLLERS.get(config.get("scsihw"), "lsilogic")


def _disk(config: Config, name: str) -> Disk:
    parts = config.parts(name, "file")
    match = _DISK.fullmatch(name)
    bus = match[1] if match else ""
    if bus == "scsi":
        bus = f"scsi ({_controller(config)})"
    rates = {RATES[key]: value for key, value in parts.items() if key in RATES and float(value or 0)}
    return Disk(
        name, bus=Known(bus, SOURCE), cache=Known(parts.get("cache", "none"), SOURCE), switches=Known({}, SOURCE),
        storage=Known("block" if parts.get("file", "").startswith("/dev/") else "volume", SOURCE),
        rates=Known({rate: f"{float(value) * factor:.0f}" for (rate, factor), value in rates.items()}, SOURCE),
        handle=name,
    )  # fmt: skip


def _cards(config: Config) -> Iterator[Card]:
    for name in (name for name in config.values if _CARD.fullmatch(name)):
        parts = config.parts(name)
        model, mac = card_of(parts)
        is_bridged = bool(parts.get("bridge"))
        yield Card(
            mac or name, network=Known("bridge" if is_bridged else "user", SOURCE),
            model=Known(model, SOURCE) if model else Unknown(f"the model in the option {name}"),
            carrier=Known("vhost" if model == "virtio" and is_bridged else "", SOURCE),
            queues=Known(int(parts.get("queues") or 0) or 1, SOURCE), switches=Known({}, SOURCE),
            offloads=Known({}, SOURCE), handle=name, bandwidth=Known(
                {"inbound": f"{float(parts['rate']) * 1000:.0f}"} if float(parts.get("rate") or 0) else {}, SOURCE
            ), is_down=parts.get("link_down") == "1",
        )  # fmt: skip


def _host_devices(config: Config) -> Iterator[str]:
    """Addresses of the host's devices, or the names of their mappings."""
    for name in (name for name in config.values if _HOST_DEVICE.fullmatch(name)):
        parts = config.parts(name, "host")
        yield parts.get("mapping") or parts.get("host", name)


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

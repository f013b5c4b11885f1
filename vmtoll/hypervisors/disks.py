"""The disks of a QEMU command line."""

import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from vmtoll.hypervisors.command_line import CommandLine, Option
from vmtoll.hypervisors.elements import add, driver

# Beginnings of the drivers of disks → libvirt's name of the bus.
_BUSES = {
    "virtio-blk": "virtio",
    "scsi-": "scsi",
    "ide-": "ide",
    "usb-": "usb",
    "nvme": "nvme",
    "vhost-user-blk": "virtio",
}
_LETTERS = {"hda": "ide", "hdb": "ide", "hdc": "ide", "hdd": "ide", "sd": "sd", "mtdblock": "mtd"}
_NETWORKS = {"rbd", "nbd", "iscsi", "ssh", "http", "https", "ftp", "ftps", "gluster", "nfs"}
_NO_DISKS = ("pflash", "floppy", "none", "mtd")
# QEMU's names of a rate → libvirt's.
_RATES = {
    f"{qemu}{end}": f"{libvirt}_{unit}_sec{longest}"
    for kind, unit in (("bps", "bytes"), ("iops", "iops"))
    for qemu, libvirt in ((f"{kind}-total", "total"), (f"{kind}-read", "read"), (f"{kind}-write", "write"))
    for end, longest in (("", ""), ("-max", "_max"))
} | {
    f"{kind}{way}": f"{libvirt}_{unit}_sec"
    for kind, unit in (("bps", "bytes"), ("iops", "iops"))
    for way, libvirt in (("", "total"), ("_rd", "read"), ("_wr", "write"))
}  # fmt: skip


@dataclass(frozen=True)
class Disk:
    """A disk: its name, its element of a definition, the options that make it, the drive or node before the device."""

    name: str
    element: ET.Element
    options: tuple[Option, ...]


def disks(line: CommandLine, live: Mapping[str, Mapping[str, bool]]) -> Iterator[Disk]:
    """Yield each disk, but no CD and no floppy. `live`: a drive's cache in the running process."""
    drives = {each.get("id"): each for each in line.all("drive") if each.get("id")}
    nodes = {each.get("node-name"): each for each in line.all("blockdev")}
    limits = dict(_throttle_groups(line))
    used = set()
    for device in line.all("device"):
        name = device.get("drive")
        kind = device.get("driver")
        bus = next((bus for start, bus in _BUSES.items() if kind.startswith(start)), None)
        drive = drives.get(name) or nodes.get(name)
        used.add(name)
        if bus and drive and not kind.endswith("-cd") and drive.get("media") != "cdrom":
            yield _disk(name, bus, [drive, *_below(drive, nodes)], device, live, limits)
    number = 0
    for each in line.all("drive", *_LETTERS):
        bus = _LETTERS.get(each.name) or each.get("if", default="ide")
        if each.get("id") in used or each.get("media") == "cdrom" or bus in _NO_DISKS:
            continue
        yield _disk(each.get("id") or f"{bus}{number}", bus, [each], None, live, limits)
        number += 1


def _below(node: Option, nodes: Mapping[str, Option]) -> Iterator[Option]:
    """Yield the nodes below a node: a format has a file below it."""
    seen = set[str]()
    while (name := node.get("file")) in nodes and name not in seen:
        seen.add(name)
        node = nodes[name]
        yield node


def _disk(
    name: str,
    bus: str,
    drives: list[Option],
    device: Option | None,
    live: Mapping[str, Mapping[str, bool]],
    limits: Mapping[str, Mapping[str, str]],
) -> Disk:
    path = next((found for each in drives for key in _FILES if (found := each.get(key))), "")
    element = ET.Element("disk", type=_kind(path, drives), device="disk")
    ids = [name, *(device.get("id") for device in [device] if device), *(each.get("node-name") for each in drives)]
    cache = _cache(drives, device, next((live[each] for each in ids if each in live), {}))
    switches = driver(device) if device else {}
    add(element, "driver", name="qemu", type=_format(drives), cache=cache, **switches)
    add(element, "source", **_source(path, drives))
    add(element, "target", dev=name, bus=bus)
    rates = {key: value for each in drives for key, value in _rates(each, "throttling.").items()}
    for each in drives:
        rates |= limits.get(each.get("throttle-group"), {})
    if rates:
        tune = add(element, "iotune")
        for rate, value in rates.items():
            add(tune, rate, value)
    return Disk(name, element, (*drives, *([device] if device else [])))


def _rates(option: Option, *prefixes: str) -> dict[str, str]:
    """The rates that an option sets, by libvirt's names."""
    names = {_without(key, *prefixes): value for key, value in option.values.items() if value != "0"}
    return {_RATES[name]: value for name, value in names.items() if name in _RATES}


def _without(key: str, *prefixes: str) -> str:
    for prefix in prefixes:
        key = key.removeprefix(prefix)
    return key


def _throttle_groups(line: CommandLine) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield each throttle group with its rates, which may be none."""
    for each in line.all("object"):
        if each.get("qom-type") == "throttle-group":
            yield each.get("id"), _rates(each, "limits.", "x-")


_FILES = ("filename", "file.filename", "file.file.filename", "file", "path")


def _kind(path: str, drives: list[Option]) -> str:
    """libvirt's type of the source: a file, a device of the host, or a network protocol."""
    if path.startswith("/dev/") or "host_device" in _drivers(drives):
        return "block"
    return "network" if _protocol(path, drives) else "file"


def _protocol(path: str, drives: list[Option]) -> str:
    """The network protocol of a disk; empty for a local one."""
    return min(_NETWORKS.intersection([path.partition(":")[0], *_drivers(drives)]), default="")


def _drivers(drives: list[Option]) -> set[str]:
    return {value for each in drives for key, value in each.values.items() if key.endswith("driver")}


def _source(path: str, drives: list[Option]) -> dict[str, str]:
    """The attributes of a source, without the address of a network disk, which may contain credentials."""
    if protocol := _protocol(path, drives):
        return {"protocol": protocol}
    return {} if path.startswith("json:") else {"file": path}


def _format(drives: list[Option]) -> str:
    names = [each.get(key) for each in drives for key in ("format", "driver", "file.driver")]
    return next((name for name in names if name and name != "throttle"), "raw")


# Prefixes of the cache switches of a node and of the nodes in it.
_LEVELS = ("cache.", "file.cache.", "file.file.cache.")


def _cache(drives: list[Option], device: Option | None, live: Mapping[str, bool]) -> str:
    """QEMU's name of the cache mode. A drive has the name or switches, a node only switches.

    `live`: the switches of the running process. Its `writeback` does not count: it follows the guest's driver.
    """
    if mode := drives[0].get("cache"):
        return mode if mode != "off" else "none"
    switches = {name: any(each.is_on(f"{prefix}{name}") for each in drives for prefix in _LEVELS)
                for name in ("direct", "no-flush")}  # fmt: skip
    through = drives[0].is_off("cache.writeback") or (device is not None and device.is_off("write-cache"))
    return _mode({**switches, **live, "writeback": not through})


def _mode(cache: Mapping[str, bool]) -> str:
    if cache["direct"]:
        return "none" if cache["writeback"] else "directsync"
    if cache["no-flush"]:
        return "unsafe"
    return "writeback" if cache["writeback"] else "writethrough"

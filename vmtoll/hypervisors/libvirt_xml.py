"""Read a libvirt definition into a neutral guest."""

import xml.etree.ElementTree as ET
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from vmtoll.hypervisors.command_line import parse_command_line
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
from vmtoll.hypervisors.qemu_config import with_args
from vmtoll.model.errors import UserError

_SOURCE = "libvirt's definition"
_ARG = "{http://libvirt.org/schemas/domain/qemu/1.0}arg"
_SIZES = {"b": 1, "bytes": 1, "KB": 10**3, "k": 2**10, "KiB": 2**10, "MB": 10**6, "M": 2**20, "MiB": 2**20,
          "GB": 10**9, "G": 2**30, "GiB": 2**30, "TB": 10**12, "T": 2**40, "TiB": 2**40}  # fmt: skip
# Elements of a limit of CPU time, with the period that each counts in.
_QUOTAS = {"quota": "period", "global_quota": "global_period", "emulator_quota": "emulator_period",
           "iothread_quota": "iothread_period"}  # fmt: skip
_PERIOD_US = 100_000
_SWITCHES = ("ioeventfd", "event_idx", "txmode", "iommu", "ats", "packed")


@dataclass(frozen=True)
class Place:
    """Where a definition has a device: its element and the path to it."""

    element: ET.Element
    path: str


def parsed(xml: str) -> ET.Element:
    """The domain. Raises UserError if the text is not XML."""
    try:
        return ET.fromstring(xml)
    except ET.ParseError as error:
        raise UserError(f"libvirt's definition of the guest is not XML ({error}); check `virsh dumpxml`") from error


def attribute(element: ET.Element, child: str, name: str) -> str:
    """An attribute of a child; empty where there is no such child or attribute."""
    found = element.find(child)
    return "" if found is None else found.get(name, "")


def size_bytes(element: ET.Element | None) -> int:
    """A size in bytes from its value and unit; libvirt's default is KiB."""
    return 0 if element is None else int(float(element.text or 0)) * _SIZES[element.get("unit", "KiB")]


def guest_of_xml(
    domain: ET.Element, model_flags: Collection[str] | None = None, *, running: bool = False
) -> GuestConfig:
    """The guest of a definition. `model_flags`: those of the CPU model that it names, None where libvirt does not know
    them.
    """
    architecture = attribute(domain, "os/type", "arch") or "x86_64"  # libvirt's own choice on a PC
    count = _vcpus(domain)
    memory = domain.find("memory")
    guest = GuestConfig(
        name=domain.findtext("name") or "", running=running, domain_type=Known(domain.get("type", ""), _SOURCE),
        architecture=Known(architecture, _SOURCE), machine=attribute(domain, "os/type", "machine"),
        vcpus=Known(count, _SOURCE), threads=Known(int(attribute(domain, "cpu/topology", "threads") or 1), _SOURCE),
        cpu=_cpu(domain, architecture), model_flags=_flags(model_flags), seen_flags=Unknown("QEMU's monitor"),
        kvmclock=Known(_kvmclock(domain), _SOURCE), hpet=Known(_timer(domain, "hpet") != "no", _SOURCE),
        memory_bytes=Unknown("the element `memory`") if memory is None else Known(size_bytes(memory), _SOURCE),
        cells=Known(tuple(_cells(domain, count)), _SOURCE),
        huge_pages=Known(domain.find("memoryBacking/hugepages") is not None, _SOURCE),
        pins=Known(_pins(domain), _SOURCE), quotas=Known(tuple(_quotas(domain)), _SOURCE),
        weight=Known(int(domain.findtext("cputune/shares") or 0), _SOURCE), memory_limits=Known(
            {e.tag: size_bytes(e) for e in domain.iterfind("memtune/*") if e.tag in ("hard_limit", "soft_limit")},
            _SOURCE,
        ),
        blkio=Known(
            tuple(f"{device.findtext('path')}: {rate} {value}" for device in domain.iterfind("blkiotune/device")
                  for rate, value in _rates(device).items()),
            _SOURCE,
        ),
        kernel=Known("" if domain.find("os/kernel") is None else domain.findtext("os/kernel") or "(unnamed)", _SOURCE),
        cmdline=(domain.findtext("os/cmdline") or "").strip(),
        is_protected=Known(domain.find("launchSecurity") is not None, _SOURCE),
        disks=Known(tuple(_disks(domain)), _SOURCE), cards=Known(tuple(_cards(domain, architecture)), _SOURCE),
        host_devices=tuple(_host_devices(domain)),
    )  # fmt: skip
    args = [argument.get("value", "") for argument in domain.iter(_ARG)]
    return with_args(guest, parse_command_line(["qemu", *args])) if args else guest


def _vcpus(domain: ET.Element) -> int:
    element = domain.find("vcpu")
    return 1 if element is None else int(element.get("current") or element.text or 1)


def _flags(flags: Collection[str] | None) -> Fact[frozenset[str]]:
    if flags is None:
        return Unknown("a libvirt that knows the CPU model (`virsh cpu-models`), or QEMU's monitor")
    return Known(frozenset(map(flag_name, flags)), "libvirt's CPU models")


def _cpu(domain: ET.Element, architecture: str) -> Fact[Cpu]:
    cpu = domain.find("cpu")
    mode = "custom" if cpu is None else cpu.get("mode", "custom")
    name = ((cpu.findtext("model") if cpu is not None else None) or "").strip()
    if mode == "custom" and not name:
        if architecture not in X86:
            return Unknown(f"the CPU that QEMU takes for {architecture} where the definition names none")
        name = "qemu64"
    policies = {} if cpu is None else {f.get("name", ""): f.get("policy", "require") for f in cpu.iterfind("feature")}
    on, off = (
        frozenset(flag_name(feature) for feature, policy in policies.items() if policy in chosen)
        for chosen in (("require", "force", "optional"), ("disable", "forbid"))
    )
    return Known(Cpu(mode, name, on, off), _SOURCE)


def _timer(domain: ET.Element, name: str) -> str:
    return next((t.get("present", "") for t in domain.iterfind("clock/timer") if t.get("name") == name), "")


def _kvmclock(domain: ET.Element) -> str:
    """The reason why the guest has no kvmclock; empty if it has it."""
    if attribute(domain, "features/kvm/hidden", "state") == "on" or attribute(domain, "features/kvm", "hidden"):
        return "no kvmclock: KVM is hidden"
    return "no kvmclock" if _timer(domain, "kvmclock") == "no" else ""


def _nodes(text: str) -> frozenset[int]:
    return frozenset(cpus(text)) if text and "$" not in text else frozenset()


def _cells(domain: ET.Element, count: int) -> Iterator[Cell]:
    everywhere = _nodes(attribute(domain, "numatune/memory", "nodeset"))
    of_cell = {n.get("cellid"): _nodes(n.get("nodeset", "")) for n in domain.iterfind("numatune/memnode")}
    cells = domain.findall("cpu/numa/cell")
    for number, cell in enumerate(cells):
        nodes = of_cell.get(cell.get("id", str(number)), everywhere)
        yield Cell(tuple(cpu for cpu in cpus(cell.get("cpus", "")) if cpu < count), nodes)
    if not cells:
        yield Cell(tuple(range(count)), everywhere)


def _pins(domain: ET.Element) -> Pins:
    pins = {pin.get("vcpu", ""): tuple(cpus(pin.get("cpuset", ""))) for pin in domain.iterfind("cputune/vcpupin")}
    return Pins(
        {int(number): numbers for number, numbers in pins.items() if number.isdigit()},
        emulator=tuple(cpus(attribute(domain, "cputune/emulatorpin", "cpuset"))),
        allowed=tuple(cpus(attribute(domain, "vcpu", "cpuset"))),
    )


def _quotas(domain: ET.Element) -> Iterator[Quota]:
    for name, period in _QUOTAS.items():
        quota_us = int(domain.findtext(f"cputune/{name}") or 0)
        if quota_us > 0:
            yield Quota(name, quota_us / int(domain.findtext(f"cputune/{period}") or _PERIOD_US))


def _rates(element: ET.Element | None) -> dict[str, str]:
    """The rates of a limit that are not 0."""
    rates = [] if element is None else [child for child in element if child.tag != "path"]
    return {rate.tag: rate.text or "" for rate in rates if rate.text not in (None, "0")}


def _switches(element: ET.Element) -> dict[str, str]:
    return {name: value for name in _SWITCHES if (value := attribute(element, "driver", name))}


def _disks(domain: ET.Element) -> Iterator[Disk]:
    for number, disk in enumerate(domain.iterfind("devices/disk"), start=1):
        if disk.get("device", "disk") not in ("disk", "lun"):
            continue
        groups = [group.get("group", "") for group in disk.iterfind("throttlefilters/throttlefilter")]
        rates = _rates(disk.find("iotune")) | ({"throttle group": "; throttle group ".join(groups)} if groups else {})
        yield Disk(
            attribute(disk, "target", "dev"), bus=_bus(domain, disk), storage=Known(disk.get("type", ""), _SOURCE),
            cache=Known(attribute(disk, "driver", "cache"), _SOURCE), switches=Known(_switches(disk), _SOURCE),
            rates=Known(rates, _SOURCE), handle=Place(disk, f"./devices/disk[{number}]"),
        )  # fmt: skip


def _bus(domain: ET.Element, disk: ET.Element) -> Fact[str]:
    bus = attribute(disk, "target", "bus") or "ide"
    if bus != "scsi":
        return Known(bus, _SOURCE)
    controllers = domain.findall("devices/controller[@type='scsi']")
    models = [controller.get("model", "auto") for controller in controllers]
    number = attribute(disk, "address", "controller")
    if number and len(set(models)) > 1:
        models = [c.get("model", "auto") for c in controllers if c.get("index", "0") == number] or models
    if len({"virtio" in model for model in models}) > 1:
        return Unknown("the SCSI controller of the disk (its element `address`)")
    return Known(f"scsi ({', '.join(models) or 'auto'})", _SOURCE)


def _host_devices(domain: ET.Element) -> Iterator[str]:
    for address in domain.iterfind("devices/hostdev[@type='pci']/source/address"):
        numbers = [int(address.get(part, "0"), 0) for part in ("domain", "bus", "slot", "function")]
        yield "{:04x}:{:02x}:{:02x}.{:x}".format(*numbers)


def _cards(domain: ET.Element, architecture: str) -> Iterator[Card]:
    for number, card in enumerate(domain.iterfind("devices/interface"), start=1):
        model = attribute(card, "model", "type") or ("rtl8139" if architecture in X86 else "")  # QEMU's choice
        passt = " (passt)" if attribute(card, "backend", "type") == "passt" else ""
        offloads = {
            side: tuple(name for name, value in element.attrib.items() if value == "off")
            for side in ("host", "guest") if (element := card.find(f"driver/{side}")) is not None
        }  # fmt: skip
        ways = {way: attribute(card, f"bandwidth/{way}", "average") for way in ("inbound", "outbound")}
        yield Card(
            attribute(card, "mac", "address"), network=Known(card.get("type", "") + passt, _SOURCE),
            model=Known(model, _SOURCE) if model else Unknown(f"the card that libvirt takes for {architecture}"),
            carrier=Known(attribute(card, "driver", "name"), _SOURCE),
            queues=Known(int(attribute(card, "driver", "queues") or 1), _SOURCE),
            switches=Known(_switches(card), _SOURCE), offloads=Known(offloads, _SOURCE),
            bandwidth=Known({way: average for way, average in ways.items() if average}, _SOURCE),
            handle=Place(card, f"./devices/interface[{number}]"), is_down=attribute(card, "link", "state") == "down",
        )  # fmt: skip

"""Write a neutral guest as libvirt would: the definition that a run records of a guest without one of libvirt's."""

import xml.etree.ElementTree as ET
from collections.abc import Mapping
from typing import TypeVar

from vmtoll.hypervisors.guest_config import Card, Disk, Fact, GuestConfig, Known

T = TypeVar("T")


def _of(fact: Fact[T], default: T) -> T:
    """A record has no word for unknown: it leaves out what the default is for."""
    return fact.known if isinstance(fact, Known) else default


def _add(parent: ET.Element, tag: str, text: str = "", /, **attributes: str) -> ET.Element:
    child = ET.SubElement(parent, tag, attributes)
    child.text = text or None
    return child


def definition_xml(guest: GuestConfig) -> str:
    """The definition, without what is unknown."""
    domain = ET.Element("domain", type=_of(guest.domain_type, "unknown"))
    _add(domain, "name", guest.name)
    if isinstance(guest.memory_bytes, Known):
        _add(domain, "memory", str(guest.memory_bytes.known >> 10), unit="KiB")
    if _of(guest.huge_pages, False):
        _add(_add(domain, "memoryBacking"), "hugepages")
    _virtual_cpus(domain, guest)
    if isinstance(guest.architecture, Known):
        system = _add(domain, "os")
        machine = {"machine": guest.machine} if guest.machine else {}
        _add(system, "type", "hvm", arch=guest.architecture.known, **machine)
        if kernel := _of(guest.kernel, ""):
            _add(system, "kernel", kernel)
        if guest.cmdline:
            _add(system, "cmdline", guest.cmdline)
    _cpu(domain, guest)
    devices = _add(domain, "devices") if isinstance(guest.disks, Known) or isinstance(guest.cards, Known) else domain
    for disk in _of(guest.disks, ()):
        _disk(devices, disk)
    for card in _of(guest.cards, ()):
        _card(devices, card)
    for model in guest.controllers:
        _add(devices, "controller", type="scsi", model=model)
    if _of(guest.is_protected, False):
        _add(domain, "launchSecurity", type="sev")
    ET.indent(domain)
    return ET.tostring(domain, encoding="unicode")


def _virtual_cpus(domain: ET.Element, guest: GuestConfig) -> None:
    pins = guest.pins.known if isinstance(guest.pins, Known) else None
    allowed = pins.together or pins.allowed if pins else ()
    if isinstance(guest.vcpus, Known):
        _add(domain, "vcpu", str(guest.vcpus.known), **({"cpuset": _set(allowed)} if allowed else {}))
    if guest.iothreads:
        _add(domain, "iothreads", str(guest.iothreads))
    tune = ET.Element("cputune")
    for quota in _of(guest.quotas, ()):
        _add(tune, "global_period", "100000")
        _add(tune, quota.name, str(round(quota.cpus * 100_000)))
    if weight := _of(guest.weight, 0):
        _add(tune, "shares", str(weight))
    for number, cpus in sorted(pins.each.items()) if pins else ():
        _add(tune, "vcpupin", vcpu=str(number), cpuset=_set(cpus))
    if pins and pins.emulator:
        _add(tune, "emulatorpin", cpuset=_set(pins.emulator))
    if len(tune):
        domain.append(tune)


def _set(cpus: tuple[int, ...]) -> str:
    return ",".join(map(str, sorted(cpus)))


def _cpu(domain: ET.Element, guest: GuestConfig) -> None:
    if isinstance(guest.cpu, Known):
        cpu = _add(domain, "cpu", mode=guest.cpu.known.mode)
        if guest.cpu.known.model:
            _add(cpu, "model", guest.cpu.known.model)
        if (threads := _of(guest.threads, 1)) > 1:
            _add(cpu, "topology", threads=str(threads))
        for policy, features in (("require", guest.cpu.known.on), ("disable", guest.cpu.known.off)):
            for feature in sorted(features):
                _add(cpu, "feature", policy=policy, name=feature)
    absent = {"hpet": _of(guest.hpet, True) is False, "kvmclock": bool(_of(guest.kvmclock, ""))}
    if isinstance(guest.hpet, Known):
        clock = _add(domain, "clock", offset="utc")
        for name in (name for name, is_absent in absent.items() if is_absent):
            _add(clock, "timer", name=name, present="no")


def _disk(devices: ET.Element, disk: Disk) -> None:
    """A disk, without the address of a network disk, which may contain credentials."""
    element = _add(devices, "disk", type=_of(disk.storage, "file"), device="disk")
    kind, switches = disk.recorded.get("type"), _of(disk.switches, {})
    cache = {"cache": disk.cache.known} if isinstance(disk.cache, Known) else {}
    _add(element, "driver", name="qemu", **({"type": kind} if kind else {}), **cache, **switches)
    source = {key: value for key, value in disk.recorded.items() if key != "type"}
    if disk.recorded:
        _add(element, "source", **source)
    if isinstance(disk.bus, Known):
        _add(element, "target", dev=disk.name, bus=disk.bus.known.partition(" ")[0])
    if rates := _of(disk.rates, {}):
        tune = _add(element, "iotune")
        for rate, value in rates.items():
            _add(tune, rate, value)


def _card(devices: ET.Element, card: Card) -> None:
    kind, _, backend = _of(card.network, "unknown").partition(" (")
    element = _add(devices, "interface", type=kind)
    _add(element, "mac", address=card.mac)
    if isinstance(card.model, Known):
        _add(element, "model", type=card.model.known)
    if backend:
        _add(element, "backend", type=backend.rstrip(")"))
    if isinstance(card.model, Known) and card.model.known == "virtio":
        values: Mapping[str, str] = {"queues": str(_of(card.queues, 1)), **_of(card.switches, {})}
        name = _of(card.carrier, "")
        driver = _add(element, "driver", **values, **({"name": name} if name else {}))
        for side, names in _of(card.offloads, {}).items():
            _add(driver, side, **dict.fromkeys(names, "off"))
    for way, average in _of(card.bandwidth, {}).items():
        _add(_add(element, "bandwidth"), way, average=average)

"""Tuning steps that a libvirt domain has taken: a pure function over its definition and the facts of its host.

`READER` is the script that reads the facts; it runs on the host as `python3 -` and changes nothing.
"""

import re
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from vmtoll.model.diagnosis import State, Step, Tuning
from vmtoll.model.errors import UserError

READER = Path(__file__).with_name("guest_facts.py")

Facts = Mapping[str, Any]

# CPU models that leave the host's newer instructions out: QEMU's own of x86 (qemu64, kvm64, …) and those of 2008.
_GENERIC = re.compile(r"(qemu|kvm)(32|64)|486|pentium[23]?|core2duo|coreduo|n270|athlon|phenom")
_POLLING = re.compile(r"(?:^|\s)idle=poll(?:\s|$)")
_MOST_QUEUES = 256  # MAX_TAP_QUEUES in the kernel's drivers/net/tap.c and tun.c
_SIZES = {"b": 1, "bytes": 1, "KB": 10**3, "k": 2**10, "KiB": 2**10, "MB": 10**6, "M": 2**20, "MiB": 2**20,
          "GB": 10**9, "G": 2**30, "GiB": 2**30, "TB": 10**12, "T": 2**40, "TiB": 2**40}  # fmt: skip


def diagnose(xml: str, facts: Facts) -> tuple[Step, ...]:
    """Every tuning step of the domain with its state, in the order in which to take them. Raises UserError."""
    try:
        domain = ET.fromstring(xml)
    except ET.ParseError as error:
        raise UserError(f"libvirt's definition of the guest is not XML ({error}); check `virsh dumpxml`") from error
    return tuple(step for look in _LOOKS for step in look(domain, facts))


def _kvm(domain: ET.Element, facts: Facts) -> Iterator[Step]:
    kind = domain.get("type", "")
    state = State.TAKEN if kind == "kvm" else State.LACKING
    yield Step(Tuning.KVM, state, current=kind, xml="" if kind == "kvm" else "<domain type='kvm'>",
               host={"kvm": int(bool(facts["kvm_device"]))})  # fmt: skip


def _cpu_model(domain: ET.Element, facts: Facts) -> Iterator[Step]:
    cpu = domain.find("cpu")
    mode = "custom" if cpu is None else cpu.get("mode", "custom")
    model = ((cpu.findtext("model") if cpu is not None else None) or "qemu64").strip()
    current = model if mode == "custom" else mode
    lacking = mode == "custom" and bool(_GENERIC.fullmatch(model))
    fix = "<cpu mode='host-passthrough'/>" if _is_kvm(domain) else "<cpu mode='maximum'/>"
    state = State.LACKING if lacking else State.TAKEN
    yield Step(Tuning.CPU_MODEL, state, current=current, xml=fix if lacking else "")


def _network(domain: ET.Element, facts: Facts) -> Iterator[Step]:
    """Packets of the type `user` pass through a TCP stack of QEMU's own."""
    for card in domain.iterfind("devices/interface"):
        kind, lacking = card.get("type", ""), card.get("type") == "user"
        xml = f"<interface type='bridge'>\n  {_mac_element(card)}<source bridge='br0'/>\n  …\n</interface>"
        state = State.LACKING if lacking else State.TAKEN
        yield Step(Tuning.NETWORK, state, _mac(card), kind, xml if lacking else "")


def _card(domain: ET.Element, facts: Facts) -> Iterator[Step]:
    for card in domain.iterfind("devices/interface"):
        model = _attribute(card, "model", "type") or "rtl8139"  # QEMU's choice where none is asked for
        if card.get("type") == "hostdev":
            yield Step(Tuning.CARD, State.INAPPLICABLE, _mac(card), "hostdev")
        else:
            taken = model.startswith("virtio")
            state, xml = (State.TAKEN, "") if taken else (State.LACKING, "<model type='virtio'/>")
            yield Step(Tuning.CARD, state, _mac(card), model, xml)


def _disk_bus(domain: ET.Element, facts: Facts) -> Iterator[Step]:
    for disk in _disks(domain):
        bus, name = _attribute(disk, "target", "bus") or "ide", _attribute(disk, "target", "dev")
        if bus == "scsi":
            models = [c.get("model", "auto") for c in domain.iterfind("devices/controller[@type='scsi']")]
            bus = f"scsi ({', '.join(models) or 'auto'})"
        taken = bus == "virtio" or "virtio" in bus
        state, xml = (State.TAKEN, "") if taken else (State.LACKING, "<target dev='vda' bus='virtio'/>")
        yield Step(Tuning.DISK_BUS, state, name, bus, xml)


def _cache(domain: ET.Element, facts: Facts) -> Iterator[Step]:
    for disk in _disks(domain):
        name, current = _attribute(disk, "target", "dev"), _attribute(disk, "driver", "cache")
        if disk.get("type") not in ("file", "block", "volume"):
            yield Step(Tuning.CACHE, State.INAPPLICABLE, name, disk.get("type", ""))
            continue
        driver = disk.find("driver")
        attributes = {"name": "qemu", "type": "raw"} if driver is None else dict(driver.attrib)
        taken = current in ("none", "directsync")
        xml = "" if taken else _element("driver", attributes | {"cache": "none"})
        yield Step(Tuning.CACHE, State.TAKEN if taken else State.LACKING, name, current or "writeback", xml)


def _vhost(domain: ET.Element, facts: Facts) -> Iterator[Step]:
    """Step by the definition; if that leaves it to libvirt, by the threads of the running guest, else by the host."""
    for card in _virtio_cards(domain):
        backend = _attribute(card, "driver", "name")
        if not _is_kvm(domain) or card.get("type") == "user":
            yield Step(Tuning.VHOST, State.INAPPLICABLE, _mac(card), backend or "qemu")
            continue
        threads = facts.get("vhost_threads")
        if card.get("type") == "vhostuser" or backend == "vhost":
            state = State.TAKEN
        elif backend:
            state = State.LACKING
        elif threads is not None:
            state = State.TAKEN if threads else State.LACKING
        else:  # libvirt takes vhost where it can
            state = State.UNKNOWN if facts["vhost_net"] else State.LACKING
        xml = _element("driver", _driver_attributes(card) | {"name": "vhost"}) if state is State.LACKING else ""
        current = backend or {State.TAKEN: "vhost", State.LACKING: "qemu"}.get(state, "")
        yield Step(Tuning.VHOST, state, _mac(card), current, xml, {"vhost_net": int(bool(facts["vhost_net"]))})


def _multiqueue(domain: ET.Element, facts: Facts) -> Iterator[Step]:
    queues_needed = min(_vcpus(domain), _MOST_QUEUES)
    for card in _virtio_cards(domain):
        queues = int(_attribute(card, "driver", "queues") or 1)
        if queues_needed == 1 or card.get("type") == "user":
            yield Step(Tuning.MULTIQUEUE, State.INAPPLICABLE, _mac(card), str(queues))
            continue
        taken = queues >= queues_needed
        name = {"name": "vhost"} if _is_kvm(domain) else {"name": "qemu"}
        attributes = name | _driver_attributes(card) | {"queues": str(queues_needed)}
        xml = "" if taken else _element("driver", attributes)
        yield Step(Tuning.MULTIQUEUE, State.TAKEN if taken else State.LACKING, _mac(card), str(queues), xml)


def _pinning(domain: ET.Element, facts: Facts) -> Iterator[Step]:
    """Taken when each virtual CPU has one CPU, and none has another's."""
    vcpus = _vcpus(domain)
    pins = {pin.get("vcpu"): cpus(pin.get("cpuset", "")) for pin in domain.iterfind("cputune/vcpupin")}
    pinned_to = [pins.get(str(number), []) for number in range(vcpus)]
    pinned = sum(len(of_one) == 1 for of_one in pinned_to)
    if pinned == vcpus and len({of_one[0] for of_one in pinned_to}) == vcpus:
        yield Step(Tuning.PINNING, State.TAKEN, current=f"{pinned}")
        return
    allowed = cpus(getattr(domain.find("vcpu"), "attrib", {}).get("cpuset", ""))
    online = list(facts["cpus"])
    if len(online) < vcpus:
        yield Step(Tuning.PINNING, State.INAPPLICABLE, current=f"{pinned}", host={"cpus": len(online)})
        return
    free = [cpu for cpu in allowed if cpu in online]
    if len(free) < vcpus:
        free = online[1:] if len(online) > vcpus else online  # the first one serves the host's interrupts
    chosen = free[:vcpus]
    rest = [cpu for cpu in online if cpu not in chosen] or chosen
    lines = [f"  <vcpupin vcpu='{number}' cpuset='{cpu}'/>" for number, cpu in enumerate(chosen)]
    lines += [f"  <emulatorpin cpuset='{','.join(map(str, rest))}'/>"]
    xml = "\n".join(["<cputune>", *lines, "</cputune>"])
    yield Step(Tuning.PINNING, State.LACKING, current=f"{pinned}", xml=xml, host={"cpus": len(online)})


def _huge_pages(domain: ET.Element, facts: Facts) -> Iterator[Step]:
    host = {"size_kib": facts["hugepages"]["size_kib"], "free": facts["hugepages"]["free"]}
    if domain.find("memoryBacking/hugepages") is not None:
        yield Step(Tuning.HUGE_PAGES, State.TAKEN, host=host)
        return
    memory = domain.find("memory")
    size = int(float(memory.text or 0)) * _SIZES[memory.get("unit", "KiB")] if memory is not None else 0
    host["needed"] = -(-size // (1024 * host["size_kib"]))
    host["transparent"] = facts.get("transparent_hugepages") or ""
    xml = "<memoryBacking>\n  <hugepages/>\n</memoryBacking>"
    yield Step(Tuning.HUGE_PAGES, State.LACKING, xml=xml, host=host)


def _halt_polling(domain: ET.Element, facts: Facts) -> Iterator[Step]:
    """Step by the kernel command line of the definition; a guest that boots by itself keeps its own inside."""
    host = {"halt_poll_ns": facts["halt_poll_ns"]} if facts.get("halt_poll_ns") is not None else {}
    if not _is_kvm(domain):
        yield Step(Tuning.HALT_POLLING, State.INAPPLICABLE, host=host)
        return
    line = (domain.findtext("os/cmdline") or "").strip()
    if _POLLING.search(line):
        yield Step(Tuning.HALT_POLLING, State.TAKEN, current="idle=poll", host=host)
    elif domain.find("os/kernel") is not None:
        element = ET.Element("cmdline")
        element.text = f"{line} idle=poll".strip()
        xml = ET.tostring(element, encoding="unicode")
        yield Step(Tuning.HALT_POLLING, State.LACKING, xml=xml, host=host)
    else:
        state = State.LACKING if host.get("halt_poll_ns") == 0 else State.UNKNOWN
        yield Step(Tuning.HALT_POLLING, state, host=host)


_LOOKS: tuple[Callable[[ET.Element, Facts], Iterator[Step]], ...] = (
    _kvm, _cpu_model, _network, _card, _disk_bus, _cache, _vhost, _multiqueue, _pinning, _huge_pages, _halt_polling,
)  # fmt: skip


def cpus(text: str) -> list[int]:
    """The CPUs of libvirt's set `0-3,^2,8`, one by one."""
    chosen: list[int] = []
    for part in filter(None, text.replace(" ", "").split(",")):
        low, _, high = part.lstrip("^").partition("-")
        numbers = range(int(low), int(high or low) + 1)
        if part.startswith("^"):
            chosen = [cpu for cpu in chosen if cpu not in numbers]
        else:
            chosen += [cpu for cpu in numbers if cpu not in chosen]
    return sorted(chosen)


def _is_kvm(domain: ET.Element) -> bool:
    return domain.get("type") == "kvm"


def _vcpus(domain: ET.Element) -> int:
    element = domain.find("vcpu")
    return 1 if element is None else int(element.get("current") or element.text or 1)


def _disks(domain: ET.Element) -> list[ET.Element]:
    return [disk for disk in domain.iterfind("devices/disk") if disk.get("device", "disk") == "disk"]


def _virtio_cards(domain: ET.Element) -> list[ET.Element]:
    cards = [card for card in domain.iterfind("devices/interface") if card.get("type") != "hostdev"]
    return [card for card in cards if _attribute(card, "model", "type").startswith("virtio")]


def _attribute(element: ET.Element, child: str, name: str) -> str:
    child_element = element.find(child)
    return "" if child_element is None else child_element.get(name, "")


def _mac(card: ET.Element) -> str:
    return _attribute(card, "mac", "address")


def _mac_element(card: ET.Element) -> str:
    return f"<mac address='{_mac(card)}'/>\n  " if _mac(card) else ""


def _driver_attributes(card: ET.Element) -> dict[str, str]:
    driver = card.find("driver")
    return {} if driver is None else dict(driver.attrib)


def _element(tag: str, attributes: Mapping[str, str]) -> str:
    words = [tag, *(f"{name}='{value}'" for name, value in attributes.items())]
    return f"<{' '.join(words)}/>"

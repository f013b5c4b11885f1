"""Edit a libvirt definition: the changes that take a step, and the XML that shows them."""

import copy
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from string import ascii_lowercase

from vmtoll.guests.diagnosis.facts import USUAL_WEIGHT, Facts
from vmtoll.guests.diagnosis.pins import others
from vmtoll.guests.diagnosis.rules import SLOW, USEFUL, Finding
from vmtoll.hypervisors.guest_config import GuestConfig, cpu_set, flag_name
from vmtoll.hypervisors.libvirt_xml import Place, attribute
from vmtoll.model.diagnosis import Edit, State, Step, Tuning

# A part of a path: a name, and its number among those of that name. virt-xml splits other conditions wrongly.
_PART = re.compile(r"(?P<name>\w+)(?:\[(?P<nth>\d+)\])?")
_ATTRIBUTE = re.compile(r"(?P<element>.*?)(?:/@(?P<attribute>\w+))?")
# Elements that a disk on another bus may have, and one on virtio may not.
_NOT_OF_VIRTIO = ("address", "vendor", "product", "wwn")
_OF_A_PROCESS = ("backend", "source", "ip", "driver", "portForward")  # not allowed in a card on a bridge
# Steps whose changes only remove something; no XML shows that.
_REMOVALS = frozenset({Tuning.CPU_LIMIT, Tuning.MEMORY_LIMIT, Tuning.DISK_LIMIT, Tuning.NETWORK_LIMIT, Tuning.IOMMU,
                       Tuning.NOTIFICATIONS, Tuning.OFFLOADS})  # fmt: skip
Edits = Iterable[Edit]


class LibvirtWriter:
    """Takes steps by edits of a domain's definition."""

    def __init__(self, domain: ET.Element, guest: GuestConfig, facts: Facts) -> None:
        self.domain, self.guest, self.facts = domain, guest, facts
        self._names = _free_names(domain)

    def __call__(self, finding: Finding) -> Step:
        """The step with the edits that take it; without, where none can."""
        step = finding.step
        if step.state is not State.LACKING or (
            finding.device is not None and not isinstance(finding.device.handle, Place)
        ):
            return step
        changes = tuple(_EDITS[step.tuning](self, finding))
        xml = shown(self.domain, changes) if changes and step.tuning not in _REMOVALS else ""
        return replace(step, changes=changes, xml=xml)

    def kvm(self, finding: Finding) -> Edits:
        return [Edit("./@type", "kvm")]

    def cpu_limit(self, finding: Finding) -> Edits:
        yield from (Edit(f"./cputune/{quota.name}") for quota in self.guest.quotas.known)
        usual = USUAL_WEIGHT.get(self.facts.get("cgroup_version") or 0, 0)
        if 0 < self.guest.weight.known < usual:
            yield Edit("./cputune/shares")

    def memory_limit(self, finding: Finding) -> Edits:
        limits = self.guest.memory_limits.known
        yield from (Edit(f"./memtune/{name}") for name in limits)
        if "hard_limit" in limits and self.domain.find("memtune/swap_hard_limit") is not None:
            yield Edit("./memtune/swap_hard_limit")  # libvirt refuses such a limit without hard_limit

    def disk_limit(self, finding: Finding) -> Edits:
        if finding.device is None:
            devices = self.domain.findall("blkiotune/device")
            yield from (Edit(f"./blkiotune/device[{number}]") for number in range(len(devices), 0, -1))
            return
        rates, path = set(finding.device.rates.known), finding.device.handle.path
        if rates - {"throttle group"}:
            yield Edit(f"{path}/iotune")
        if "throttle group" in rates:
            yield Edit(f"{path}/throttlefilters")

    def network_limit(self, finding: Finding) -> Edits:
        return [Edit(f"{finding.device.handle.path}/bandwidth")]

    def model(self, finding: Finding) -> Edits:
        """Replace the model by the host's CPU. Topology, NUMA and features that the definition disables on purpose
        stay, except for useful instructions.
        """
        if self._has_argument("-cpu"):
            return
        cpu = self.domain.find("cpu")
        mode = "host-passthrough" if self.guest.domain_type.known == "kvm" else "maximum"
        features = [] if cpu is None else cpu.findall("feature")
        for number, feature in reversed(list(enumerate(features, start=1))):
            useful = flag_name(feature.get("name", "")) in USEFUL
            if useful or feature.get("policy") not in ("disable", "forbid"):
                yield Edit(f"./cpu/feature[{number}]")
        if cpu is not None:
            yield from (Edit(f"./cpu/{name}") for name in ("model", "vendor") if cpu.find(name) is not None)
            yield from (Edit(f"./cpu/@{name}") for name in ("match", "check") if cpu.get(name))
            mode = mode if cpu.get("mode", "custom") == "custom" else cpu.get("mode", mode)
        yield Edit("./cpu/@mode", mode)

    def _has_argument(self, name: str) -> bool:
        """Return whether the definition passes this option to QEMU, past libvirt: no element changes that."""
        return any(element.get("value") == name for element in self.domain.iter() if element.tag.endswith("}arg"))

    def timers(self, finding: Finding) -> Edits:
        timers = self.domain.findall("clock/timer")
        numbers = {timer.get("name"): number for number, timer in enumerate(timers, start=1)}
        if self.guest.kvmclock.known and self.guest.domain_type.known == "kvm" and not self._has_argument("-cpu"):
            if self.domain.find("features/kvm/hidden") is not None:
                yield Edit("./features/kvm/hidden")
            if "kvmclock" in numbers:
                yield Edit(f"./clock/timer[{numbers['kvmclock']}]/@present", "yes")
        if "HPET" in finding.step.current:
            which = numbers.get("hpet", len(timers) + 1)
            if self.domain.find("clock") is None:
                yield Edit("./clock/@offset", "utc")
            if "hpet" not in numbers:
                yield Edit(f"./clock/timer[{which}]/@name", "hpet")
            yield Edit(f"./clock/timer[{which}]/@present", "no")

    def network(self, finding: Finding) -> Edits:
        if not finding.wanted:
            return
        place = finding.device.handle
        yield from (Edit(f"{place.path}/{part.tag}") for part in place.element if part.tag in _OF_A_PROCESS)
        yield Edit(f"{place.path}/@type", "bridge")
        yield Edit(f"{place.path}/source/@bridge", finding.wanted)

    def card(self, finding: Finding) -> Edits:
        return put(f"{finding.device.handle.path}/model", {"type": "virtio"})

    def bus(self, finding: Finding) -> Edits:
        """A disk on another bus than virtio gets a name that no other disk has or gets."""
        disk, path = finding.device.handle.element, finding.device.handle.path
        name = finding.device.name
        name = name if name.startswith("vd") else next(self._names)
        yield from (Edit(f"{path}/{part}") for part in _NOT_OF_VIRTIO if disk.find(part) is not None)
        keys = ("removable", "rotation_rate", "tray")
        yield from (Edit(f"{path}/target/@{key}") for key in keys if attribute(disk, "target", key))
        yield from put(f"{path}/target", {"dev": name, "bus": "virtio"})

    def cache(self, finding: Finding) -> Edits:
        has_driver = finding.device.handle.element.find("driver") is not None
        format_ = {} if has_driver else {"name": "qemu", "type": "raw"}
        return put(f"{finding.device.handle.path}/driver", {**format_, "cache": "none"})

    def vhost(self, finding: Finding) -> Edits:
        return put(f"{finding.device.handle.path}/driver", {"name": "vhost"})

    def iommu(self, finding: Finding) -> Edits:
        path, switches = finding.device.handle.path, finding.device.switches.known
        return [Edit(f"{path}/driver/@{name}") for name in ("iommu", "ats") if name in switches]

    def notifications(self, finding: Finding) -> Edits:
        path, switches = finding.device.handle.path, finding.device.switches.known
        return [Edit(f"{path}/driver/@{name}") for name, value in SLOW.items() if switches.get(name) == value]

    def offloads(self, finding: Finding) -> Edits:
        for side, names in finding.device.offloads.known.items():
            path, element = f"{finding.device.handle.path}/driver/{side}", finding.device.handle.element
            given = element.find(f"driver/{side}").attrib
            if names and len(names) == len(given):
                yield Edit(path)
            else:
                yield from (Edit(f"{path}/@{name}") for name in names)

    def multiqueue(self, finding: Finding) -> Edits:
        count, name = finding.wanted
        named = {} if finding.device.network.known == "vhostuser" else {"name": name}
        return put(f"{finding.device.handle.path}/driver", {**named, "queues": str(count)})

    def pinning(self, finding: Finding) -> Edits:
        """Replace all pins. QEMU's other threads get the other CPUs of the same node."""
        if not finding.wanted:
            return
        old = self.domain.findall("cputune/vcpupin")
        yield from (Edit(f"./cputune/vcpupin[{number}]") for number in range(len(old), 0, -1))
        if self.domain.find("cputune/emulatorpin") is not None:
            yield Edit("./cputune/emulatorpin")
        for number, cpu in enumerate(finding.wanted):
            yield Edit(f"./cputune/vcpupin[{number + 1}]/@vcpu", str(number))
            yield Edit(f"./cputune/vcpupin[{number + 1}]/@cpuset", str(cpu))
        yield Edit("./cputune/emulatorpin/@cpuset", cpu_set(others(finding.wanted, self.facts)))

    def huge_pages(self, finding: Finding) -> Edits:
        return [Edit("./memoryBacking/hugepages", "")]

    def halt_polling(self, finding: Finding) -> Edits:
        if self.guest.kernel.known:
            yield Edit("./os/cmdline", f"{self.guest.cmdline} idle=poll".strip())


_EDITS: Mapping[Tuning, Callable[[LibvirtWriter, Finding], Edits]] = {
    Tuning.KVM: LibvirtWriter.kvm, Tuning.CPU_LIMIT: LibvirtWriter.cpu_limit,
    Tuning.MEMORY_LIMIT: LibvirtWriter.memory_limit, Tuning.DISK_LIMIT: LibvirtWriter.disk_limit,
    Tuning.NETWORK_LIMIT: LibvirtWriter.network_limit, Tuning.CPU_MODEL: LibvirtWriter.model,
    Tuning.TIMERS: LibvirtWriter.timers, Tuning.NETWORK: LibvirtWriter.network, Tuning.CARD: LibvirtWriter.card,
    Tuning.DISK_BUS: LibvirtWriter.bus, Tuning.CACHE: LibvirtWriter.cache, Tuning.VHOST: LibvirtWriter.vhost,
    Tuning.IOMMU: LibvirtWriter.iommu, Tuning.NOTIFICATIONS: LibvirtWriter.notifications,
    Tuning.OFFLOADS: LibvirtWriter.offloads, Tuning.MULTIQUEUE: LibvirtWriter.multiqueue,
    Tuning.PINNING: LibvirtWriter.pinning, Tuning.HUGE_PAGES: LibvirtWriter.huge_pages,
    Tuning.HALT_POLLING: LibvirtWriter.halt_polling,
}  # fmt: skip


def _free_names(domain: ET.Element) -> Iterator[str]:
    """vda, vdb, … vdaa: those that no disk has."""
    taken = {attribute(disk, "target", "dev") for disk in domain.iterfind("devices/disk")}
    for length in (1, 2):
        for letters in product(ascii_lowercase, repeat=length):
            if (name := f"vd{''.join(letters)}") not in taken:
                yield name


def put(path: str, attributes: Mapping[str, str]) -> tuple[Edit, ...]:
    """The changes that give the element at this path these attributes."""
    return tuple(Edit(f"{path}/@{name}", value) for name, value in attributes.items())


def edited(domain: ET.Element, changes: Iterable[Edit]) -> ET.Element:
    """A copy of the domain with these changes, one after the other."""
    domain = copy.deepcopy(domain)
    for change in changes:
        _edit(domain, change)
    return domain


def _edit(domain: ET.Element, change: Edit) -> None:
    path, attribute_name = _split(change.xpath)
    parent, element = domain, domain
    for part in _PART.finditer(path):
        parent, found = element, _child(element, part)
        if found is None and change.value is None:
            return
        element = ET.SubElement(parent, part["name"]) if found is None else found
    if attribute_name and change.value is not None:
        element.set(attribute_name, change.value)
    elif attribute_name:
        element.attrib.pop(attribute_name, None)
    elif change.value is None:
        parent.remove(element)
    elif change.value:
        element.text = change.value


def _split(xpath: str) -> tuple[str, str]:
    """Split a path into that of an element and an attribute; the latter is empty if the path names the element."""
    match = _ATTRIBUTE.fullmatch(xpath)
    return (match["element"], match["attribute"] or "") if match else (xpath, "")


def _child(element: ET.Element, part: re.Match[str]) -> ET.Element | None:
    named, nth = element.findall(part["name"]), int(part["nth"] or 1)
    return named[nth - 1] if len(named) >= nth else None


def shown(domain: ET.Element, changes: Sequence[Edit]) -> str:
    """XML of the elements that these changes set, as they are afterwards: new ones whole, siblings in their parent."""
    after = edited(domain, changes)
    paths = (_split(change.xpath)[0] for change in changes if change.value is not None)
    tops = [_outermost_new(domain, path) for path in dict.fromkeys(paths)]
    tops = [path for path in dict.fromkeys(tops) if not any(path.startswith(f"{other}/") for other in tops)]
    parents = [path.rpartition("/")[0] for path in tops]
    texts = [part if parents.count(parent) == 1 else parent for part, parent in zip(tops, parents, strict=True)]
    elements = (find(after, path) for path in dict.fromkeys(texts))
    return "\n".join(text_of(element) for element in elements if element is not None)


def _outermost_new(domain: ET.Element, path: str) -> str:
    """Path of the first element on a path that the domain does not have; the path itself if it has all."""
    ends = [match.end() for match in _PART.finditer(path)]
    return next((path[:end] for end in ends if find(domain, path[:end]) is None), path)


def find(domain: ET.Element, path: str) -> ET.Element | None:
    """The element at a path of a change."""
    element: ET.Element | None = domain
    for part in _PART.finditer(path):
        element = None if element is None else _child(element, part)
    return element


def text_of(element: ET.Element) -> str:
    """An element as libvirt prints it, with single quotes; for the domain only its opening tag."""
    element = copy.deepcopy(element)
    element.text, element.tail = (element.text or "").strip(), None
    if element.tag == "domain":
        element[:] = []
        return _quoted(ET.tostring(element, encoding="unicode")).replace(" />", ">")
    ET.indent(element)
    return _quoted(ET.tostring(element, encoding="unicode")).replace(" />", "/>")


def _quoted(text: str) -> str:
    return re.sub(r'="([^"\']*)"', r"='\1'", text)

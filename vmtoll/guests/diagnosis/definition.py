"""Read and edit a libvirt definition."""

import copy
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Iterator, Mapping, Sequence

from vmtoll.model.diagnosis import Edit
from vmtoll.model.errors import UserError

# A part of a path: a name, and its number among those of that name. virt-xml splits other conditions wrongly.
_PART = re.compile(r"(?P<name>\w+)(?:\[(?P<nth>\d+)\])?")
_ATTRIBUTE = re.compile(r"(?P<element>.*?)(?:/@(?P<attribute>\w+))?")
_SIZES = {"b": 1, "bytes": 1, "KB": 10**3, "k": 2**10, "KiB": 2**10, "MB": 10**6, "M": 2**20, "MiB": 2**20,
          "GB": 10**9, "G": 2**30, "GiB": 2**30, "TB": 10**12, "T": 2**40, "TiB": 2**40}  # fmt: skip


def parsed(xml: str) -> ET.Element:
    """The domain. Raises UserError if the text is not XML."""
    try:
        return ET.fromstring(xml)
    except ET.ParseError as error:
        raise UserError(f"libvirt's definition of the guest is not XML ({error}); check `virsh dumpxml`") from error


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


def is_kvm(domain: ET.Element) -> bool:
    """Return whether the guest runs under KVM."""
    return domain.get("type") == "kvm"


def is_x86(domain: ET.Element) -> bool:
    """Return whether the guest is a PC, which is libvirt's default if the definition names no architecture."""
    return attribute(domain, "os/type", "arch") in ("", "x86_64", "i686")


def vcpus(domain: ET.Element) -> int:
    """Number of virtual CPUs that the guest has now."""
    element = domain.find("vcpu")
    return 1 if element is None else int(element.get("current") or element.text or 1)


def memory_bytes(domain: ET.Element) -> int:
    """Memory of the guest, 0 where the definition has none."""
    return size_bytes(domain.find("memory"))


def size_bytes(element: ET.Element | None) -> int:
    """A size in bytes from its value and unit; libvirt's default is KiB."""
    return 0 if element is None else int(float(element.text or 0)) * _SIZES[element.get("unit", "KiB")]


def disks(domain: ET.Element) -> Iterator[tuple[ET.Element, str, str]]:
    """Each disk, neither a CD nor a floppy: the element, the path to it, its target."""
    for number, disk in enumerate(domain.iterfind("devices/disk"), start=1):
        if disk.get("device", "disk") in ("disk", "lun"):
            yield disk, f"./devices/disk[{number}]", attribute(disk, "target", "dev")


def cards(domain: ET.Element) -> Iterator[tuple[ET.Element, str, str]]:
    """Each network card: the element, the path to it, its MAC address."""
    for number, card in enumerate(domain.iterfind("devices/interface"), start=1):
        yield card, f"./devices/interface[{number}]", attribute(card, "mac", "address")


def virtio_cards(domain: ET.Element) -> Iterator[tuple[ET.Element, str, str]]:
    """Like cards, but only virtio's; no function of the host's card (hostdev)."""
    for card, path, mac in cards(domain):
        if card.get("type") != "hostdev" and attribute(card, "model", "type").startswith("virtio"):
            yield card, path, mac


def attribute(element: ET.Element, child: str, name: str) -> str:
    """An attribute of a child; empty where there is no such child or attribute."""
    found = element.find(child)
    return "" if found is None else found.get(name, "")


def put(path: str, attributes: Mapping[str, str]) -> tuple[Edit, ...]:
    """The changes that give the element at this path these attributes."""
    return tuple(Edit(f"{path}/@{name}", value) for name, value in attributes.items())


def cpus(text: str) -> list[int]:
    """The numbers of the CPUs in a set of libvirt's, such as `0-3,^2,8`."""
    chosen: list[int] = []
    for part in filter(None, text.replace(" ", "").split(",")):
        low, _, high = part.lstrip("^").partition("-")
        numbers = range(int(low), int(high or low) + 1)
        if part.startswith("^"):
            chosen = [cpu for cpu in chosen if cpu not in numbers]
        else:
            chosen += [cpu for cpu in numbers if cpu not in chosen]
    return sorted(chosen)


def cpu_set(numbers: Iterable[int]) -> str:
    """CPUs as libvirt writes them: `0-3,8`."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(f"{low}-{high}" if high > low else str(low) for low, high in runs)

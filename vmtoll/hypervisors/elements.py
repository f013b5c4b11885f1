"""XML elements of a definition."""

import xml.etree.ElementTree as ET
from collections.abc import Mapping

from vmtoll.hypervisors.command_line import Option

_SWITCHES = {"ioeventfd": "ioeventfd", "event_idx": "event_idx", "iommu_platform": "iommu", "ats": "ats",
             "packed": "packed"}  # fmt: skip


def add(parent: ET.Element, tag: str, text: str = "", /, **attributes: str) -> ET.Element:
    """A new child of an element."""
    child = ET.SubElement(parent, tag, attributes)
    child.text = text or None
    return child


def driver(device: Option, names: Mapping[str, str] = _SWITCHES) -> dict[str, str]:
    """The attributes of libvirt's element `driver` that a virtio device's switches come to."""
    values = {libvirts: device.get(name) for name, libvirts in names.items() if device.get(name)}
    return {name: {"true": "on", "false": "off"}.get(value, value) for name, value in values.items()}

"""Disks: the bus that the guest sees, and the cache of the host."""

import xml.etree.ElementTree as ET
from collections.abc import Iterator
from itertools import product
from string import ascii_lowercase

from vmtoll.guests.diagnosis.definition import attribute, disks, put, shown
from vmtoll.guests.diagnosis.facts import Facts
from vmtoll.model.diagnosis import Edit, State, Step, Tuning

# Elements that a disk on another bus may have, and one on virtio may not.
_NOT_OF_VIRTIO = ("address", "vendor", "product", "wwn")


def bus(domain: ET.Element, facts: Facts) -> Iterator[Step]:
    """Each disk on another bus than virtio gets a name that no other disk has or gets."""
    names = _free_names(domain)
    for disk, path, target in disks(domain):
        kind = attribute(disk, "target", "bus") or "ide"
        if kind == "scsi":
            models = [c.get("model", "auto") for c in domain.iterfind("devices/controller[@type='scsi']")]
            kind = f"scsi ({', '.join(models) or 'auto'})"
        if "virtio" in kind:
            yield Step(Tuning.DISK_BUS, State.TAKEN, target, kind)
            continue
        name = target if target.startswith("vd") else next(names)
        changes = tuple(Edit(f"{path}/{part}") for part in _NOT_OF_VIRTIO if disk.find(part) is not None)
        of_target = [key for key in ("removable", "rotation_rate", "tray") if attribute(disk, "target", key)]
        changes += tuple(Edit(f"{path}/target/@{key}") for key in of_target)
        changes += put(f"{path}/target", {"dev": name, "bus": "virtio"})
        yield Step(Tuning.DISK_BUS, State.LACKING, target, kind, shown(domain, changes), changes=changes)


def _free_names(domain: ET.Element) -> Iterator[str]:
    """vda, vdb, … vdaa: those that no disk has."""
    taken = {attribute(disk, "target", "dev") for disk in domain.iterfind("devices/disk")}
    for length in (1, 2):
        for letters in product(ascii_lowercase, repeat=length):
            if (name := f"vd{''.join(letters)}") not in taken:
                yield name


def cache(domain: ET.Element, facts: Facts) -> Iterator[Step]:
    for disk, path, target in disks(domain):
        current = attribute(disk, "driver", "cache")
        if disk.get("type") not in ("file", "block", "volume"):
            yield Step(Tuning.CACHE, State.INAPPLICABLE, target, disk.get("type", ""))
        elif current in ("none", "directsync"):
            yield Step(Tuning.CACHE, State.TAKEN, target, current)
        else:
            format_ = {} if disk.find("driver") is not None else {"name": "qemu", "type": "raw"}
            changes = put(f"{path}/driver", {**format_, "cache": "none"})
            xml = shown(domain, changes)
            yield Step(Tuning.CACHE, State.LACKING, target, current or "writeback", xml, changes=changes)

"""Commands that apply the changes of a diagnosis; libvirt first checks each change on a copy of the definition."""

import shlex
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import replace

from vmtoll.agent.virsh import called
from vmtoll.guests.diagnosis.definition import edited
from vmtoll.hypervisors.libvirt_xml import parsed
from vmtoll.model.diagnosis import Edit, Step


def candidates(xml: str, steps: Sequence[Step]) -> list[str]:
    """The definition as it is, and for each step with changes a definition with only these."""
    domain = parsed(xml)
    return [xml, *(ET.tostring(edited(domain, s.changes), encoding="unicode") for s in steps if s.changes)]


def tried(steps: Sequence[Step], refusals: Sequence[str], uri: str, guest: str) -> tuple[Step, ...]:
    """The steps with the commands that apply them; a step that libvirt refuses has no changes.

    `refusals`: for each of `candidates`, why libvirt refuses it, empty if it does not. If it refuses the definition as
    it is, no change can be checked, and all count as refused.
    """
    as_it_is, *of_changes = refusals
    of_change = iter(of_changes)
    return tuple(_tried(step, next(of_change), as_it_is, uri, guest) if step.changes else step for step in steps)


def _tried(step: Step, refusal: str, as_it_is: str, uri: str, guest: str) -> Step:
    if as_it_is or refusal:
        return replace(step, changes=(), xml="", refused=refusal or as_it_is)
    return replace(step, apply=shlex.join(virt_xml(uri, guest, step.changes)))


def virt_xml(uri: str, guest: str, changes: Sequence[Edit]) -> list[str]:
    """The command of virt-xml (Debian: virtinst) that makes these changes to a guest's definition."""
    words = [word for change in changes for word in ("--xml", _option(change))]
    return ["virt-xml", "--connect", uri, guest, "--edit", *words]


def _option(change: Edit) -> str:
    """virt-xml's option for a change. virt-xml ends a value at a comma, unless doubled, and a path at the last =."""
    if change.value is None:
        return f"xpath.delete={change.xpath}"
    if change.value == "":
        return f"xpath.create={change.xpath}"
    value = change.value.replace(",", ",,")
    return f"xpath.set={change.xpath},xpath.value={value}" if "=" in value else f"{change.xpath}={value}"


def unchanged(uri: str, guest: str) -> tuple[str, str]:
    """The commands that save a guest's definition to a file, and restore it."""
    file = f"{'./' * guest.startswith('-')}{guest}-before.xml"
    kept = shlex.join(["virsh", "-c", uri, "dumpxml", "--inactive", *called(guest)])
    return f"{kept} >{shlex.quote(file)}", shlex.join(["virsh", "-c", uri, "define", file])

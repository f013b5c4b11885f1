"""How the changes of a diagnosis are applied: each is tried on a copy of the definition before anybody reads of it."""

import shlex
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import replace

from vmtoll.guests.diagnosis.definition import edited, parsed
from vmtoll.model.diagnosis import Change, Step


def candidates(xml: str, steps: Sequence[Step]) -> list[str]:
    """The definition as it is, and one for each step that changes it, with its changes alone."""
    domain = parsed(xml)
    return [xml, *(ET.tostring(edited(domain, s.changes), encoding="unicode") for s in steps if s.changes)]


def tried(steps: Sequence[Step], refusals: Sequence[str], uri: str, guest: str) -> tuple[Step, ...]:
    """The steps with the commands that apply them; without changes where libvirt refuses these.

    `refusals`: of each of `candidates`, why libvirt refuses it, empty where it does not. Where it refuses the
    definition as it is, nothing is known of its changes.
    """
    as_it_is, *of_changes = refusals
    of_change = iter(of_changes)
    return tuple(_tried(step, next(of_change), as_it_is, uri, guest) if step.changes else step for step in steps)


def _tried(step: Step, refusal: str, as_it_is: str, uri: str, guest: str) -> Step:
    if as_it_is or refusal:
        return replace(step, changes=(), xml="", refused=refusal or as_it_is)
    return replace(step, apply=shlex.join(virt_xml(uri, guest, step.changes)))


def virt_xml(uri: str, guest: str, changes: Sequence[Change]) -> list[str]:
    """The command of virt-xml (Debian: virtinst) that makes these changes to a guest's definition."""
    words = [word for change in changes for word in ("--xml", _option(change))]
    return ["virt-xml", "--connect", uri, guest, "--edit", *words]


def _option(change: Change) -> str:
    """virt-xml takes a comma for the end of a value, unless there are two, and the last = for the end of the path."""
    if change.value is None:
        return f"xpath.delete={change.xpath}"
    if change.value == "":
        return f"xpath.create={change.xpath}"
    value = change.value.replace(",", ",,")
    return f"xpath.set={change.xpath},xpath.value={value}" if "=" in value else f"{change.xpath}={value}"


def unchanged(uri: str, guest: str) -> tuple[str, str]:
    """The commands that keep the definition of a guest in a file, and go back to it."""
    file = f"{guest}-before.xml"
    kept = shlex.join(["virsh", "-c", uri, "dumpxml", "--inactive", guest])
    return f"{kept} >{shlex.quote(file)}", shlex.join(["virsh", "-c", uri, "define", file])

"""A guest's libvirt domain: the template of vm-images, filled in from profile, guest and files."""

import xml.etree.ElementTree as ET
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, TemplateError

from vmtoll.guests.inventory import Guest
from vmtoll.guests.profiles import Kernel, Profile
from vmtoll.model.architecture import X86_64, Architecture
from vmtoll.model.errors import UserError
from vmtoll.paths import VM_IMAGES


@dataclass(frozen=True)
class Files:
    """Paths of the guest's files on its KVM host, and systemd's credentials: `credentials`, name → base64, which every
    user of the host can read, and `secrets`, name → path of a file with the value.
    """

    kernel_file: str
    initrd_file: str
    disk: str
    console_log: str
    credentials: Mapping[str, str]
    secrets: Mapping[str, str]


def files_of_role(name: str, kernel: Kernel) -> Files:
    """A guest's files, with placeholders that the role kvm_guest replaces: only the role knows its folders and keys."""
    own = dict.fromkeys(("vmlinuz", "initrd"), "")
    own |= {ending.partition("-")[0]: f"@folder@/{name}.{ending}" for ending in kernel.files}
    return Files(
        kernel_file=own["vmlinuz"] or f"@image@/vmlinuz{kernel.suffix}",
        initrd_file=own["initrd"] if kernel.file else f"@image@/initrd.img{kernel.suffix}",
        disk=f"@folder@/{name}.qcow2",
        console_log=f"@console_folder@/{name}-console.log",
        credentials={"ssh.authorized_keys.root": "@public_key@"},
        secrets={"vmtoll.ssh_host_key": f"@folder@/{name}.host_key"},
    )


def render(
    profile: Profile,
    guest: Guest,
    files: Files,
    images: Path = VM_IMAGES,
    *,
    architecture: Architecture = X86_64,
    tsc_khz: int | None = None,
) -> str:
    """The domain's XML, for a host of this architecture. `tsc_khz`: rate of its time stamp counter, where it is known.

    Raises UserError when a value of the profile cannot be filled in, or the result is not XML.
    """
    environment = Environment(
        loader=FileSystemLoader(images), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    variables: dict[str, Any] = {
        **guest.values(), **vars(files), "profile": profile, "architecture": architecture, "tsc_khz": tsc_khz,
    }  # fmt: skip
    given = {} if guest.memory_mib is None else {"memory_mib": guest.memory_mib}
    try:
        for key, value in (profile.under(guest.accelerator) | given).items():
            variables[key] = _filled(environment, value, variables)
        text = environment.get_template("domain.xml.j2").render(variables)
        tree = ET.fromstring(text)
    except (TemplateError, ET.ParseError, IndexError) as error:
        raise UserError(f"{guest.name}: the profile {profile.name} does not fit it: {error}") from error
    for boot in tree.findall("os"):
        for initrd in boot.findall("initrd"):
            if not initrd.text:  # a kernel that needs none
                boot.remove(initrd)
    ET.indent(tree)
    return ET.tostring(tree, encoding="unicode") + "\n"


def _filled(environment: Environment, value: Any, variables: Mapping[str, Any]) -> Any:
    if isinstance(value, list):
        return [filled for word in value if (filled := _filled(environment, word, variables))]
    return environment.from_string(value).render(variables) if isinstance(value, str) else value

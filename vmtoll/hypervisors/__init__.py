"""One interface to a guest on its host, with an adapter for each kind of software that runs guests.

`of` returns the adapter for a guest of the inventory.
"""

import re

from vmtoll.agent.protocol import FoundGuest
from vmtoll.hypervisors.base import Guest, Line, Virsh
from vmtoll.hypervisors.libvirt import LibvirtGuest
from vmtoll.hypervisors.process import ProcessGuest
from vmtoll.hypervisors.proxmox import ProxmoxGuest
from vmtoll.hypervisors.qemu import QemuGuest
from vmtoll.model.errors import AgentError
from vmtoll.model.inventory import Host

__all__ = ["Guest", "Line", "Virsh", "of", "uuids"]

# -uuid of QEMU, -smbios type=1 of QEMU, smbios1 of Proxmox VE.
_UUID = re.compile(r"(?:-uuid |uuid=)([0-9A-Fa-f-]{36})")


def uuids(host: Line) -> set[str]:
    """UUIDs that the firmware of a host's guests reports, by their processes or Proxmox VE. Raises AgentError."""
    guests: list[FoundGuest] = host.call("guests")
    texts = [" ".join(guest["process"]["argv"]) if guest["process"] else guest["config"] for guest in guests]
    return {uuid.lower() for text in texts for uuid in _UUID.findall(text)}


def of(guest: Host, host: Line) -> Guest:
    """The adapter for a guest. Raises AgentError if no variable of the inventory names the guest on its host."""
    if guest.vars.domain:
        return LibvirtGuest(guest, host)
    if guest.vars.vmid is not None:
        return ProxmoxGuest(guest, host)
    if guest.vars.qmp_socket:
        return QemuGuest(guest, host)
    if guest.vars.unit or guest.vars.pid_file:
        return ProcessGuest(guest, host)
    raise AgentError(
        f"{guest.name}: no variable names it on {host.host.name}; set vmtoll_domain, "
        "vmtoll_vmid, vmtoll_qmp_socket, vmtoll_unit or vmtoll_pid_file"
    )

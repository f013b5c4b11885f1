"""A guest that libvirt runs: virsh on its host."""

from vmtoll.agent.protocol import GuestAddress
from vmtoll.agent.virsh import called
from vmtoll.hypervisors.base import Guest, Virsh


class LibvirtGuest(Guest):
    """A libvirt domain."""

    @property
    def virsh(self) -> Virsh:
        """virsh on its host."""
        return Virsh(self.host)

    @property
    def address(self) -> GuestAddress:
        return {"kind": "libvirt", "name": self.name, "uri": self.host.host.libvirt_uri}

    def definition(self) -> str:
        return self.virsh("dumpxml", *called(self.name))

    def start_command(self) -> list[str]:
        return self.virsh.words("start", *called(self.name))

    def shut_down(self) -> None:
        self.virsh("shutdown", *called(self.name))

    def power_off(self) -> None:
        self.virsh("destroy", *called(self.name))

    def is_off(self) -> bool:
        return self.virsh.output("domstate", *called(self.name))["stdout"].strip() == "shut off"

"""A guest that libvirt runs: virsh on its host."""

import xml.etree.ElementTree as ET

from vmtoll.agent.protocol import GuestAddress
from vmtoll.hypervisors.base import Guest
from vmtoll.hypervisors.definition import Definition


class LibvirtGuest(Guest):
    """A libvirt domain."""

    @property
    def address(self) -> GuestAddress:
        return {"kind": "libvirt", "name": self.name, "uri": self.host.host.libvirt_uri}

    def definition(self) -> Definition:
        return Definition(ET.fromstring(self.run(self._virsh("dumpxml"))))

    def start_command(self) -> list[str]:
        return self._virsh("start")

    def shut_down(self) -> None:
        self.run(self._virsh("shutdown"))

    def power_off(self) -> None:
        self.run(self._virsh("destroy"))

    def is_off(self) -> bool:
        return self.output(self._virsh("domstate"))["stdout"].strip() == "shut off"

    def _virsh(self, verb: str) -> list[str]:
        return ["virsh", "-c", self.host.host.libvirt_uri, verb, self.name]

"""The adapter for guests of Proxmox VE: `qm`, the guest's configuration, and its QMP socket."""

from pathlib import PurePosixPath

from vmtoll.agent.protocol import GuestAddress
from vmtoll.hypervisors.base import Guest
from vmtoll.hypervisors.command_line import parse_command_line
from vmtoll.hypervisors.definition import Definition, has_hpet, live_of
from vmtoll.hypervisors.proxmox_config import definition, parse_config
from vmtoll.hypervisors.qemu import QemuGuest

CONFIGS, SOCKETS = "etc/pve/qemu-server", "var/run/qemu-server"


class ProxmoxGuest(QemuGuest):
    """A virtual machine of Proxmox VE, by its VMID."""

    @property
    def vmid(self) -> str:
        """Its number in Proxmox VE."""
        return str(self.guest.vars.vmid)

    @property
    def socket(self) -> str:
        return str(PurePosixPath(self.host.host.root, SOCKETS, f"{self.vmid}.qmp"))

    @property
    def address(self) -> GuestAddress:
        return {"kind": "proxmox", "name": self.name, "vmid": self.vmid, "socket": self.socket}

    def pause(self) -> None:
        Guest.pause(self)

    def resume(self) -> None:
        Guest.resume(self)

    @property
    def missing(self) -> str:
        return f"Proxmox VE runs no guest {self.vmid}"

    def start_command(self) -> list[str]:
        return ["qm", "start", self.vmid]

    def power_off(self) -> None:
        self.run(["qm", "stop", self.vmid])

    def shut_down(self) -> None:
        self.run(["qm", "shutdown", self.vmid])

    def is_off(self) -> bool:
        return self.output(["qm", "status", self.vmid])["stdout"].strip() == "status: stopped"

    def definition(self) -> Definition:
        """Its definition, from the configuration and the running process."""
        process, answers = self.process(), self.answers()
        text = self.run(["cat", str(PurePosixPath(self.host.host.root, CONFIGS, f"{self.vmid}.conf"))])
        live = live_of(process, process["online"], answers)
        return definition(parse_config(self.vmid, text), live, hpet=has_hpet(parse_command_line(process["argv"])))

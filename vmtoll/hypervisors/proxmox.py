"""The adapter for guests of Proxmox VE: `qm`, the guest's configuration, and its QMP socket."""

from pathlib import PurePosixPath

from vmtoll.agent.protocol import GuestAddress
from vmtoll.hypervisors.base import Guest
from vmtoll.hypervisors.guest_config import GuestConfig
from vmtoll.hypervisors.proxmox_config import guest_of_config, parse_config, while_running
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

    def config(self) -> GuestConfig:
        """What it is, by its configuration, its process and its monitor."""
        text = self.run(["cat", str(PurePosixPath(self.host.host.root, CONFIGS, f"{self.vmid}.conf"))])
        return while_running(guest_of_config(parse_config(self.vmid, text)), super().config())

"""A guest that vmtoll makes, as an inventory describes it: a host of `kvm_guests` with a vmtoll_profile."""

import hashlib
import ipaddress
import re
from typing import Any

from pydantic import ConfigDict, Field, ValidationError, field_validator

from vmtoll.agent.kvm_host import cpu_list
from vmtoll.model.errors import InventoryError
from vmtoll.model.inventory import CPU_SET, GuestVariables, Host

_PCI = re.compile(r"([0-9a-f]{4}):([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])")


class Guest(GuestVariables):
    """One guest. CPUs are in libvirt's notation (`2-5,8`); unset memory is the profile's."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9.-]*$")  # also its host name
    profile: str
    kvm_host: str = ""
    domain: str = Field(default="", pattern=r"^[A-Za-z0-9_.-]*$")  # libvirt's name for it; empty: `name`
    cpus: str = Field(pattern=CPU_SET)
    address: str = ""
    public_key: str = ""  # file on the controller

    @field_validator("vf")
    @classmethod
    def _is_a_pci_address(cls, vf: str) -> str:
        if vf and not _PCI.fullmatch(vf):
            raise ValueError("must be a PCI address such as 0000:3b:02.1")
        return vf

    @property
    def cpu_list(self) -> list[int]:
        """The numbers of the CPUs in `cpus`."""
        return cpu_list(self.cpus)

    @property
    def libvirt_name(self) -> str:
        """Name of the domain in libvirt."""
        return self.domain or self.name

    @property
    def vcpu_count(self) -> int:
        """Number of its virtual CPUs."""
        return self.vcpus or len(self.cpu_list)

    def values(self) -> dict[str, Any]:
        """Values that a profile and the domain template may use."""
        digest = hashlib.sha256(self.name.encode()).digest()
        pci = _PCI.fullmatch(self.vf)
        return {
            "name": self.name,
            "type": {"kvm": "kvm", "tcg": "qemu"}[self.accelerator],
            "libvirt_name": self.libvirt_name,
            "vcpus": self.vcpu_count,
            "cpus": self.cpus,
            "cpu_list": self.cpu_list,
            "emulator_cpus": self.emulator_cpus or self.cpus,
            "mac": self.mac or f"52:54:00:{digest[:3].hex(':')}",
            "bridge": self.bridge,
            "uplink": self.uplink,
            "vf": dict(zip(("domain", "bus", "slot", "function"), pci.groups(), strict=True)) if pci else None,
            "disk_cache": self.disk_cache,
            "ip": self.ip,
        }

    def ip(self, interface: str = "eth0") -> str:
        """The kernel's parameter `ip=` for this network interface: a fixed address, or DHCP."""
        if self.prefix is None:
            return f"ip={interface}:dhcp"
        mask = ipaddress.ip_interface(f"{self.address}/{self.prefix}").netmask
        return f"ip={self.address}::{self.gateway}:{mask}:{self.name}:{interface}:off"


def guest(host: Host) -> Guest:
    """The guest that a host's variables describe. Raises InventoryError naming host, variable and mistake."""
    host.check()
    environment, profile, key = host.vars.environment, host.vars.profile, host.ansible.ssh_private_key_file
    if environment != profile:
        raise InventoryError(
            f"{host.source}: {host.name}: vmtoll_environment is {environment!r} and vmtoll_profile {profile!r}; "
            "make them the same"
        )
    given = {
        name: value for name, value in host.vars.model_dump(exclude_none=True).items() if name in Guest.model_fields
    }
    defaults = {"address": host.ssh_host, "public_key": f"{key}.pub" if key else "~/.ssh/id_ed25519.pub"}
    try:
        described = Guest(name=host.name, **(defaults | given))
        described.ip()
    except ValidationError as error:
        raise InventoryError(
            f"{host.source}: {host.name}: {next(iter(Guest.first_mistakes(error).values()))}"
        ) from error
    except ValueError as error:
        raise InventoryError(f"{host.source}: {host.name}: vmtoll_address, vmtoll_prefix: {error}") from error
    return described

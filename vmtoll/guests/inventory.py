"""A guest that vmtoll makes, as an inventory describes it: the variables `vmtoll_<field>` of a host of `kvm_guests`."""

import hashlib
import ipaddress
import re
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, ValidationError, field_validator

from vmtoll.guests.profiles import Accelerator
from vmtoll.shell import UserError
from workloads.runner.documents import Model
from workloads.runner.registry import unknown

_PCI = re.compile(r"([0-9a-f]{4}):([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])")


class Guest(Model):
    """One guest. CPUs are libvirt's sets (`2-5,8`); memory is the profile's where there is none."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9.-]*$")  # also its host name
    profile: str
    state: Literal["present", "absent"] = "present"
    kvm_host: str = ""
    domain: str = Field(default="", pattern=r"^[A-Za-z0-9_.-]*$")  # libvirt's name for it; empty: `name`
    accelerator: Accelerator = "kvm"
    cpus: str = Field(pattern=r"^[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*$", strict=False, coerce_numbers_to_str=True)
    emulator_cpus: str = Field(default="", strict=False, coerce_numbers_to_str=True)  # empty: `cpus`
    vcpus: int = Field(default=0, ge=0, strict=False)  # 0: as many as `cpus`
    memory_mib: int | None = Field(default=None, ge=128, strict=False)
    mac: str = Field(default="", pattern=r"^(|[0-9a-f]{2}(:[0-9a-f]{2}){5})$")  # empty: made of the name
    bridge: str = "br0"
    uplink: str = ""  # macvtap: the host's network card
    vf: str = ""  # SR-IOV: PCI address of the virtual function
    address: str = ""
    prefix: int | None = Field(default=None, ge=1, le=128, strict=False)  # None: the address comes by DHCP
    gateway: str = ""
    disk_cache: str = "none"
    public_key: str = ""  # file on the controller

    @field_validator("vf")
    @classmethod
    def _is_a_pci_address(cls, vf: str) -> str:
        if vf and not _PCI.fullmatch(vf):
            raise ValueError("must be a PCI address such as 0000:3b:02.1")
        return vf

    @property
    def cpu_list(self) -> list[int]:
        """The CPUs of `cpus`, one by one."""
        ranges = [part.split("-") for part in self.cpus.split(",")]
        return [cpu for part in ranges for cpu in range(int(part[0]), int(part[-1]) + 1)]

    @property
    def libvirt_name(self) -> str:
        """What libvirt calls it."""
        return self.domain or self.name

    @property
    def vcpu_count(self) -> int:
        """How many virtual CPUs it has."""
        return self.vcpus or len(self.cpu_list)

    def values(self) -> dict[str, Any]:
        """What a profile's values and the domain template may name."""
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
            "ip": self.ip(),
        }

    def ip(self) -> str:
        """The kernel's parameter `ip=`: a fixed address, or DHCP."""
        if self.prefix is None:
            return "ip=eth0:dhcp"
        mask = ipaddress.ip_interface(f"{self.address}/{self.prefix}").netmask
        return f"ip={self.address}::{self.gateway}:{mask}:{self.name}:eth0:off"


# Of an inventory; `name` is the host's own.
VARIABLES = tuple(f"vmtoll_{field}" for field in Guest.model_fields if field != "name")


def guest(name: str, variables: Mapping[str, Any]) -> Guest:
    """The guest of one host's merged variables. Raises UserError: host, variable and what is wrong with it."""
    said = {field: variables[f"vmtoll_{field}"] for field in Guest.model_fields if f"vmtoll_{field}" in variables}
    said.setdefault("address", variables.get("ansible_host", name))
    key = variables.get("ansible_ssh_private_key_file")
    said.setdefault("public_key", f"{key}.pub" if key else "~/.ssh/id_ed25519.pub")
    environment, profile = variables.get("vmtoll_environment"), variables.get("vmtoll_profile")
    if environment != profile:
        raise UserError(
            f"{name}: vmtoll_environment is {environment!r} and vmtoll_profile {profile!r}; make them the same."
        )
    return checked({"name": name, **said})


def checked(said: Mapping[str, Any]) -> Guest:
    """A guest of these fields. Raises UserError."""
    try:
        found = Guest(**said)
        found.ip()
    except ValidationError as error:
        raise UserError(f"{said.get('name')}: {_mistake(error)}") from error
    except ValueError as error:
        raise UserError(f"{said.get('name')}: vmtoll_address, vmtoll_prefix: {error}.") from error
    return found


def _mistake(error: ValidationError) -> str:
    found = error.errors()[0]
    field = str(found["loc"][0])
    if found["type"] == "extra_forbidden":
        return f"{unknown('variable', f'vmtoll_{field}', VARIABLES)}."
    said = "is missing" if found["type"] == "missing" else f"is {found['input']!r}: {found['msg']}"
    return f"vmtoll_{field} {said}."

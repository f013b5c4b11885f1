"""The machines of a new lab, as flags or answers name them, and the lab.yml that describes them."""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

import yaml

from vmtoll.folder.sources import ListedGuest
from vmtoll.model.errors import UserError
from vmtoll.model.inventory import Host
from vmtoll.model.trial import METAL
from vmtoll.paths import VM_IMAGES
from vmtoll.search_path import environments
from vmtoll.spec.catalog import Registry

_WORD = r"\w[\w.-]*"  # no option of ssh
_MACHINE = re.compile(
    rf"(?:(?P<name>{_WORD})=)?(?:(?P<user>{_WORD})@)?(?P<address>{_WORD})(?::(?P<port>[0-9]{{1,5}}))?", re.ASCII
)
_LOCAL = {"localhost", "127.0.0.1"}
_HEAD = """\
# The machines of this lab: an Ansible inventory, which vmtoll reads in this folder where no --inventory is given.
# clients send the load; metal_hosts and kvm_guests are measured; kvm_hosts carry the guests.
# `vmtoll preflight` says what is wrong with them. All variables: docs/inventory.md.
"""
_EMBEDDED = """\
# No machine is named here: vmtoll measures in the embedded lab of this machine (`vmtoll lab up`).
# To measure machines of yours, describe them as docs/inventory.md says.
all: {}
"""


@dataclass(frozen=True)
class Machine:
    """A machine by its name in the inventory, and how ssh reaches it."""

    name: str
    address: str
    user: str | None = None
    port: int | None = None

    @classmethod
    def of(cls, text: str, option: str) -> Self:
        """Read `[NAME=][USER@]ADDRESS[:PORT]`. Raises UserError."""
        match = _MACHINE.fullmatch(text)
        if not match:
            raise UserError(f"{option} {text!r}: give [NAME=][USER@]ADDRESS[:PORT], such as web1=root@192.0.2.7")
        port = int(match["port"]) if match["port"] else None
        return cls(match["name"] or match["address"], match["address"], match["user"], port)

    @property
    def variables(self) -> dict[str, Any]:
        """What Ansible needs to reach it."""
        if self.address in _LOCAL:
            return {"ansible_connection": "local"}
        login = {} if self.user is None else {"ansible_user": self.user, "ansible_become": self.user != "root"}
        port = {} if self.port is None else {"ansible_port": self.port}
        address = {} if self.address == self.name else {"ansible_host": self.address}
        return address | login | port

    def host(self, lab: "LabMachines") -> Host:
        """The same as a KVM host that is to be asked for its guests."""
        login = (
            _login(lab.user) | lab.ssh_variables | ({"vmtoll_libvirt_uri": lab.libvirt_uri} if lab.libvirt_uri else {})
        )
        return Host(self.name, "kvm_host", login | self.variables, "--from-libvirt or --from-proxmox")


def _login(user: str) -> dict[str, Any]:
    return {"ansible_user": user} | ({} if user == "root" else {"ansible_become": True})


@dataclass(frozen=True)
class MeasuredGuest:
    """A guest that is measured."""

    machine: Machine
    listed: ListedGuest | None = None  # as its host lists it; None where the lab does not reach its host

    @property
    def environment(self) -> str:
        """Name of what is measured: the guest's own, as an experiment can write it."""
        name = re.sub(r"[^a-z0-9]+", "-", self.machine.name.lower()).strip("-")
        shipped = {*Registry().no_guests(), *environments().names_in(VM_IMAGES / "guests")}
        return f"{name}-guest" if name in shipped else name


@dataclass(frozen=True)
class LabMachines:
    """The machines of a lab; none at all is the embedded lab. `ssh_config`: read by ssh in place of its own file."""

    clients: Sequence[Machine] = ()
    metal: Machine | None = None
    kvm_host: Machine | None = None
    guests: Sequence[MeasuredGuest] = ()
    user: str = "root"
    link_mbit: float = 1000
    libvirt_uri: str | None = None
    ssh_config: Path | None = None

    @property
    def ssh_variables(self) -> dict[str, str]:
        """What makes Ansible and vmtoll's own ssh read that file."""
        return {"ansible_ssh_common_args": f"-F {shlex.quote(str(self.ssh_config))}"} if self.ssh_config else {}

    @property
    def environments(self) -> list[str]:
        """What is measured, the baseline first."""
        own = [guest.environment for guest in self.guests]
        return [METAL, *own] if self.metal else own

    @property
    def are_none(self) -> bool:
        """Return whether the embedded lab is meant."""
        return not (self.clients or self.metal or self.kvm_host or self.guests)

    def refuse_gaps(self) -> None:
        """Raise UserError where nothing could be measured with these machines."""
        if not self.clients:
            raise UserError("--client is missing; name the machine that sends the load")
        if not self.environments:
            raise UserError("--guest and --metal are missing; name a machine to be measured")
        names = self.environments
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise UserError(
                f"--guest: two guests would be measured as {twice}; give one of them another name (NAME=ADDRESS)"
            )

    def lab_yml(self) -> str:
        """The text of lab.yml."""
        if self.are_none:
            return _EMBEDDED
        taken: set[str] = set()
        groups: dict[str, Any] = {"clients": _group([_named(client, "client", taken) for client in self.clients])}
        carrier = _named(self.kvm_host, "host", taken) if self.kvm_host and any(g.listed for g in self.guests) else None
        if carrier:
            groups["kvm_hosts"] = _group(
                [carrier], {"vmtoll_libvirt_uri": self.libvirt_uri} if self.libvirt_uri else {}
            )
        under_test: dict[str, Any] = {}
        if self.metal:
            under_test["metal_hosts"] = _group([_named(self.metal, METAL, taken)], {"vmtoll_environment": METAL})
        if self.guests:
            hosts: dict[str, Any] = {}
            for guest in self.guests:
                variables: dict[str, Any] = {"vmtoll_environment": guest.environment}
                if carrier and guest.listed:
                    variables |= {"vmtoll_kvm_host": carrier.name, **guest.listed.variables}
                hosts |= _group([_named(guest.machine, "guest", taken)], variables)["hosts"]
            under_test["kvm_guests"] = {"hosts": hosts}
        everywhere = _login(self.user) | self.ssh_variables | {
            "vmtoll_lab": "hosts", "vmtoll_link": "unshaped", "vmtoll_link_mbit": _plain(self.link_mbit),
        }  # fmt: skip
        tree = {"all": {"vars": everywhere, "children": groups | {"suts": {"children": under_test}}}}
        return _HEAD + yaml.safe_dump(tree, sort_keys=False)


def _named(machine: Machine, role: str, taken: set[str]) -> Machine:
    """The machine; one whose name is taken in another group gets its role behind it."""
    named = replace(machine, name=f"{machine.name}-{role}") if machine.name in taken else machine
    taken.add(named.name)
    return named


def _group(machines: Sequence[Machine], variables: Mapping[str, Any] = MappingProxyType({})) -> dict[str, Any]:
    return {"hosts": {machine.name: {**machine.variables, **variables} for machine in machines}}


def _plain(number: float) -> float | int:
    return int(number) if number == int(number) else number

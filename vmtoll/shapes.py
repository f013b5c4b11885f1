"""What the embedded lab consists of: a topology (playbooks/topologies/<name>.yml), its guests, their addresses."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import yaml

from vmtoll.guests import profiles
from vmtoll.paths import PLAYBOOKS, VM_IMAGES
from vmtoll.shell import UserError
from workloads.runner.registry import unknown

TOPOLOGIES = PLAYBOOKS / "topologies"
# Where each kind of machine begins to count, in RFC 2544's range for benchmarks.
_FIRST = {"clients": "198.18.0.10", "metal": "198.18.0.20", "guests": "198.18.0.30"}
# What a machine takes beside the memory that a guest is given: QEMU and its translated code; systemd in a container.
_QEMU_MIB = 300
_MACHINE_MIB = 100


@dataclass(frozen=True)
class Shape:
    """The machines of a lab, as the role embedded_lab takes them.

    `machines`: {name, group, address, host}; `guests`: {name, profile, kvm_host, address, mac}; `cells`: name →
    names of machines.
    """

    topology: str
    machines: Sequence[Mapping[str, str]]
    guests: Sequence[Mapping[str, str]]
    kvm_hosts: Sequence[str]
    cells: Mapping[str, Sequence[str]]

    def variables(self) -> dict[str, Any]:
        """What the role is told."""
        parts = ("machines", "guests", "kvm_hosts", "cells")
        return {f"embedded_lab_{part}": getattr(self, part) for part in parts}

    def record(self) -> dict[str, Any]:
        """What tells one shape from another: the topology, and each guest's profile."""
        return {"topology": self.topology, "guests": {guest["name"]: guest["profile"] for guest in self.guests}}

    def memory_mib(self) -> int:
        """What all machines take together."""
        guests = sum(int(profiles.load(guest["profile"]).values["memory_mib"]) + _QEMU_MIB for guest in self.guests)
        return guests + len(self.machines) * _MACHINE_MIB


def shape(topology: str = "single", profiles: Sequence[str] = ()) -> Shape:
    """The shape of a topology; `profiles`, where there are any, replace its guests, all on its first KVM host.

    Raises UserError when there is no such topology or profile.
    """
    _known("topology", [topology], TOPOLOGIES)
    _known("guest profile", profiles, VM_IMAGES / "guests")
    described: dict[str, Any] = yaml.safe_load((TOPOLOGIES / f"{topology}.yml").read_text())
    kvm_hosts = list(described["guests"])
    on_hosts = {kvm_hosts[0]: _named(profiles)} if profiles else described["guests"]
    host_of = {name: host for host, guests in on_hosts.items() for name in guests}
    cells = {
        cell: [*members, *(name for name, host in host_of.items() if host in members)]
        for cell, members in described.get("cells", {}).items()
    }
    # The kernel that a container shares is this machine's: by the name that its own cell has for it.
    for members in cells.values():
        own = next(host for host in kvm_hosts if host in members)
        host_of |= {name: own for name in members if name not in host_of}
    machines = [
        {"name": name, "group": group, "address": address, "host": host_of.get(name, kvm_hosts[0])}
        for group in ("clients", "metal")
        for name, address in _addresses(group, described[group])
    ]
    profile_of = {name: profile for guests in on_hosts.values() for name, profile in guests.items()}
    guests = [
        {"name": name, "profile": profile_of[name], "kvm_host": host_of[name], "address": address, "mac": _mac(address)}
        for name, address in _addresses("guests", profile_of)
    ]
    return Shape(topology, machines, guests, kvm_hosts, cells)


def check_memory(wanted: Shape, meminfo: Path = Path("/proc/meminfo")) -> None:
    """Raises UserError when this machine has not got the memory for a lab."""
    fields = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
    free_mib, need_mib = int(fields["MemAvailable"].split()[0]) // 1024, wanted.memory_mib()
    if free_mib < need_mib:
        raise UserError(
            f"The lab of {len(wanted.machines)} machines and {len(wanted.guests)} guests takes about {need_mib} MiB "
            f"of memory, and {free_mib} MiB are available: ask for fewer with --guests, or use a larger machine."
        )


def _known(kind: str, names: Iterable[str], folder: Path) -> None:
    there = sorted(file.stem for file in folder.glob("*.yml"))
    for name in names:
        if name not in there:
            said = unknown(kind, name, there)
            raise UserError(f"{said[0].upper()}{said[1:]}.")


def _named(profiles: Sequence[str]) -> dict[str, str]:
    """Guest → profile; a guest is called after its profile, the second of one with -2 behind it."""
    named: dict[str, str] = {}
    for n, profile in enumerate(profiles):
        before = profiles[:n].count(profile)
        named[f"{profile}-{before + 1}" if before else profile] = profile
    return named


def _addresses(kind: str, names: Iterable[str]) -> list[tuple[str, str]]:
    return [(name, str(IPv4Address(_FIRST[kind]) + n)) for n, name in enumerate(names)]


def _mac(address: str) -> str:
    """QEMU's own prefix, then the address without its first byte."""
    return "52:54:00:" + IPv4Address(address).packed[1:].hex(":")

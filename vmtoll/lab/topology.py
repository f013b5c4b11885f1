"""The machines of the embedded lab: a topology (playbooks/topologies/<name>.yml), its guests, their addresses."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address
from pathlib import Path
from types import MappingProxyType
from typing import Any

from vmtoll.files import parse_yaml
from vmtoll.guests import profiles
from vmtoll.guests.inventory import Guest
from vmtoll.guests.profiles import names as profile_names
from vmtoll.model.errors import UserError
from vmtoll.model.inventory import GuestAccelerator
from vmtoll.model.release import Release
from vmtoll.paths import LAB, PLAYBOOKS
from vmtoll.spec.catalog import unknown

TOPOLOGIES = PLAYBOOKS / "topologies"
# First address of each kind of machine, in RFC 2544's range for benchmarks.
_FIRST = {
    "clients": "198.18.0.10",
    "metal_hosts": "198.18.0.20",
    "containers": "198.18.0.26",
    "runtimes": "198.18.0.100",
    "guests": "198.18.0.30",
    "targets": "198.18.0.200",
}
_PREFIX, _SWITCH_ADDRESS = 15, "198.18.0.1"
BRIDGE, UPLINK = "vt-br0", "vt-up"
# Memory of a machine in addition to a guest's own: QEMU and its translated code; systemd in a container.
_QEMU_MIB = 300
_MACHINE_MIB = 100
# Memory of a virtual machine of the lab, without the guests inside of it. Somewhat less than half of it is /tmp, where
# preflight requires 512 MiB of a client.
_VIRTUAL_MACHINE_MIB = 1280
_THIS_MACHINE = "this-machine"
# Seconds that a run waits for a virtual machine or a guest inside of it: on two busy cores a boot takes minutes.
_BACK_S = 1800
NOTHING: Mapping[str, str] = MappingProxyType({})
# Seconds that SSH may take to connect: emulated CPUs exchange its keys, doubly emulated ones in a guest.
SSH_S = 90


@dataclass(frozen=True)
class LabShape:
    """The machines of a lab, as the role embedded_lab needs them.

    `machines`: containers, {name, group, address, host}, of podman in the group `containers`, else of systemd-nspawn;
    in the group `runtimes` only their root file system and their network, for the agent of this machine to start in;
    `guests` of this machine: {name, profile, kvm_host, address, mac}; `test_beds`: test bed → names of its machines. A
    lab of virtual machines has no containers: its machines are `guests`, and `inventory` is its whole inventory, with
    the guests inside of its KVM hosts. `targets`: KVM hosts that guests can move to, {name, address}.
    """

    topology: str
    machines: Sequence[Mapping[str, str]]
    guests: Sequence[Mapping[str, Any]]
    kvm_hosts: Sequence[str]
    test_beds: Mapping[str, Sequence[str]]
    inventory: Mapping[str, Any] = field(default_factory=dict)
    targets: Sequence[Mapping[str, str]] = ()

    @property
    def kind(self) -> profiles.Kind:
        """Kind of profile that `guests` have."""
        return "machines" if self.inventory else "guests"

    def variables(self, release: Release, recorded: Mapping[str, str] = NOTHING) -> dict[str, object]:
        """Variables of the role embedded_lab. Guests inside of virtual machines get the machines' release. `recorded`:
        what the inventory of virtual machines says of them all, as vmtoll_NAME.
        """
        parts = {
            "machines": self.machines, "guests": self.guests, "kvm_hosts": self.kvm_hosts, "cells": self.test_beds,
            "targets": self.targets,
        }  # fmt: skip
        all_vars = self.inventory.get("all", {}).get("vars", {}) | {"vmtoll_suite": release.suite}
        all_vars |= {f"vmtoll_{name}": text for name, text in recorded.items()}
        return {f"embedded_lab_{name}": part for name, part in parts.items()} | {
            "embedded_lab_inventory": {"all": self.inventory["all"] | {"vars": all_vars}} if self.inventory else {},
            "embedded_lab_bridge": BRIDGE,
            "embedded_lab_uplink": UPLINK,
            "embedded_lab_prefix": _PREFIX,
            "embedded_lab_switch_address": _SWITCH_ADDRESS,
        }

    def described_guests(self, accelerators: Mapping[str, GuestAccelerator], cpus: str) -> list[Guest]:
        """The guests with all their variables; they share these CPUs. `accelerators`: by the guest's name."""
        shared = {
            "cpus": cpus,
            "bridge": BRIDGE,
            "uplink": UPLINK,
            "prefix": _PREFIX,
            "gateway": _SWITCH_ADDRESS,
            "disk_cache": "unsafe",
        }
        return [
            Guest.model_validate({**guest, **shared, "accelerator": accelerators[guest["name"]]})
            for guest in self.guests
        ]

    def guest_kernels(self, image: Path, images: Mapping[str, str]) -> dict[str, Path]:
        """Guest → the kernel that it boots. `images`: suite → folder of its image, where not all are of `image`."""
        kernels = dict[str, Path]()
        for guest in self.guests:
            profile = profiles.load(guest["profile"], kind=self.kind)
            folder, kernel = Path(images.get(str(profile.values["release"]), image)), profile.kernel
            kernels[guest["name"]] = Path(kernel.file) if kernel.file else folder / f"vmlinuz{kernel.suffix}"
        return kernels

    def images(self, release: Release) -> dict[Release, list[str]]:
        """The images of a lab of this release, first its own: release → packages of further kernels in it."""
        names = self.inner_guests().values() if self.inventory else [guest["profile"] for guest in self.guests]
        return {release: []} | profiles.kernels_by_release(map(profiles.load, names), release)

    def inner_guests(self) -> dict[str, str]:
        """The guests that are made inside of the lab's KVM hosts: name → profile."""
        if not self.inventory:
            return {}
        hosts = self.inventory["all"]["children"]["suts"]["children"]["kvm_guests"]["hosts"]
        return {name: variables["vmtoll_profile"] for name, variables in hosts.items()}

    def record(self) -> dict[str, object]:
        """The topology and each guest's profile; vmtoll rebuilds a lab whose record differs."""
        guests = {guest["name"]: guest["profile"] for guest in self.guests}
        return {"topology": self.topology, "guests": guests | self.inner_guests()}

    def memory_mib(self) -> int:
        """Memory of all machines and guests together, in MiB."""
        guests = sum(_memory_mib(guest, self.kind) + _QEMU_MIB for guest in self.guests)
        guests *= 2 if self.targets else 1  # a guest that moves is on both hosts
        return guests + len(self.machines) * _MACHINE_MIB


def shape(topology: str = "single", profiles: Sequence[str] = ()) -> LabShape:
    """The shape of a topology; `profiles`, if any, replace its guests, all on its first KVM host.

    Raises UserError when there is no such topology or profile.
    """
    _check_known("topology", [topology], sorted(file.stem for file in TOPOLOGIES.glob("*.yml")))
    _check_known("guest profile", profiles, profile_names())
    description: dict[str, Any] = parse_yaml((TOPOLOGIES / f"{topology}.yml").read_text())
    kvm_hosts = list(description["guests"])
    on_hosts = {kvm_hosts[0]: _profile_by_guest(profiles)} if profiles else description["guests"]
    if "machines" in description:
        return _virtual_shape(topology, description, on_hosts)
    host_of = {name: host for host, guests in on_hosts.items() for name in guests}
    test_beds = {
        test_bed: [*members, *(name for name, host in host_of.items() if host in members)]
        for test_bed, members in description.get("cells", {}).items()
    }
    # A container shares this machine's kernel; its host is the KVM host of the same test bed, a name for this machine.
    for members in test_beds.values():
        kvm_host = next(host for host in kvm_hosts if host in members)
        host_of |= {name: kvm_host for name in members if name not in host_of}
    machines = [
        {
            "name": name,
            "group": group,
            "address": address,
            "host": host_of.get(name, kvm_hosts[0]),
            **_card(group, name),
        }
        for group in ("clients", "metal_hosts", "containers", "runtimes")
        for name, address in _addresses(group, description.get(group, ()))
    ]
    profile_of = {name: profile for guests in on_hosts.values() for name, profile in guests.items()}
    guests = [
        {"name": name, "profile": profile_of[name], "kvm_host": host_of[name], "address": address, "mac": _mac(address)}
        for name, address in _addresses("guests", profile_of)
    ]
    targets = [
        {"name": name, "address": address} for name, address in _addresses("targets", description.get("targets", []))
    ]
    return LabShape(topology, machines, guests, kvm_hosts, test_beds, targets=targets)


def _virtual_shape(
    topology: str, description: Mapping[str, Any], on_hosts: Mapping[str, Mapping[str, str]]
) -> LabShape:
    """A lab of virtual machines, each with its own kernel: its machines are guests of this machine, in an ordinary
    inventory.

    `metal_hosts`: metal host → the virtual machine that it is. Provisioning makes the guests inside of the KVM hosts.
    Each machine has one virtual CPU: under emulation (QEMU 7.2), guests that start at the same moment on two CPUs hang.
    """
    machine_of = dict(description["metal_hosts"])
    names = {"clients": description["clients"], "metal_hosts": machine_of.values()}
    addresses = {name: address for group, names in names.items() for name, address in _addresses(group, names)}
    inner_guests = {name: (host, profile) for host, guests in on_hosts.items() for name, profile in guests.items()}
    guests = {
        name: {
            "ansible_host": address,
            "vmtoll_environment": inner_guests[name][1],
            "vmtoll_profile": inner_guests[name][1],
            "vmtoll_kvm_host": inner_guests[name][0],
            "vmtoll_domain": name,
            "vmtoll_cpus": "0",
            "vmtoll_mac": _mac(address),
            "vmtoll_prefix": _PREFIX,
            "vmtoll_gateway": _SWITCH_ADDRESS,
            "vmtoll_disk_cache": "unsafe",
        }
        for name, address in _addresses("guests", inner_guests)
    }
    machines = []
    for name, address in addresses.items():
        guest_memory = [
            _memory_mib({"profile": profile}) + _QEMU_MIB for host, profile in inner_guests.values() if host == name
        ]
        machines.append(
            {
                "name": name,
                "profile": description["machines"][name],
                "kvm_host": _THIS_MACHINE,
                "address": address,
                "mac": _mac(address),
                "memory_mib": _VIRTUAL_MACHINE_MIB * (2 if guest_memory else 1) + sum(guest_memory),
                "vcpus": 1,
            }
        )
    test_beds = {
        test_bed: [*members, *(name for name, (host, _) in inner_guests.items() if host in members)]
        for test_bed, members in description.get("cells", {}).items()
    }
    children: dict[str, Any] = {
        "clients": {"hosts": {name: {"ansible_host": addresses[name]} for name in description["clients"]}},
        "kvm_hosts": {"hosts": {name: {"ansible_host": addresses[name]} for name in on_hosts}},
        "suts": {
            "vars": {"vmtoll_workers": 1},
            "children": {
                "metal_hosts": {
                    "hosts": {
                        name: {"ansible_host": addresses[machine], "vmtoll_environment": "metal"}
                        for name, machine in machine_of.items()
                    }
                },
                "kvm_guests": {"hosts": guests},
            },
        },
    }
    if test_beds:
        children["cells"] = {"children": {bed: {"hosts": dict.fromkeys(members)} for bed, members in test_beds.items()}}
    all_vars = {
        "ansible_user": "root",
        "ansible_ssh_private_key_file": str(LAB / "key"),
        "ansible_ssh_common_args": f"-F {LAB}/ssh_config -o ConnectTimeout={SSH_S}",
        "ansible_ssh_timeout": SSH_S,
        "kvm_guest_known_hosts": str(LAB / "known_hosts"),
        "vmtoll_lab": "hosts",
        "vmtoll_back_s": _BACK_S,
        "vmtoll_link": "unshaped",
        "vmtoll_http_port": 8080,
    }
    return LabShape(topology, [], machines, [], {}, {"all": {"vars": all_vars, "children": children}})


def check_memory(lab: LabShape, meminfo: Path = Path("/proc/meminfo")) -> None:
    """Raise UserError when this machine has too little memory available for the lab."""
    fields = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
    free_mib, need_mib = int(fields["MemAvailable"].split()[0]) // 1024, lab.memory_mib()
    if free_mib < need_mib:
        raise UserError(
            f"the lab of {len(lab.machines)} machines and {len(lab.guests)} guests needs {need_mib} MiB "
            f"of memory, and {free_mib} MiB are available; ask for fewer with --guests, or use a larger machine"
        )


def _check_known(kind: str, names: Iterable[str], allowed: Sequence[str]) -> None:
    for name in names:
        if name not in allowed:
            raise UserError(unknown(kind, name, allowed))


def _profile_by_guest(profiles: Sequence[str]) -> dict[str, str]:
    """Guest → profile; a guest is named after its profile, further ones of it with the suffixes -2, -3, …"""
    profiles_by_guest: dict[str, str] = {}
    for n, profile in enumerate(profiles):
        count = profiles[:n].count(profile)
        profiles_by_guest[f"{profile}-{count + 1}" if count else profile] = profile
    return profiles_by_guest


def _addresses(kind: str, names: Iterable[str]) -> list[tuple[str, str]]:
    return [(name, str(IPv4Address(_FIRST[kind]) + n)) for n, name in enumerate(names)]


def _card(group: str, name: str) -> dict[str, str]:
    """The name of a runtime's port on the switch, at most 15 bytes with its prefix; others are named after machines."""
    return {"card": hashlib.sha256(name.encode()).hexdigest()[:10]} if group == "runtimes" else {}


def _memory_mib(guest: Mapping[str, Any], kind: profiles.Kind = "guests") -> int:
    return int(guest.get("memory_mib") or profiles.load(guest["profile"], kind=kind).values["memory_mib"])


def _mac(address: str) -> str:
    """QEMU's own prefix, then the address without its first byte."""
    return "52:54:00:" + IPv4Address(address).packed[1:].hex(":")

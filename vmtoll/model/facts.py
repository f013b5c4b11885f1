"""The facts of a machine, in one table: how each fact limits a comparison."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict

Facts = dict[str, Any]  # by name, whatever they are about


class ServerFacts(BaseModel):
    """Facts of a server on a machine. `version`: of its packages, None for a build of our own. `tls`: transport → what
    the handshake of the last trial agreed on.
    """

    model_config = ConfigDict(extra="allow")

    version: str | None = None
    binary_sha256: str | None = None
    config_sha256: str | None = None
    workers: int | None = None
    tls: dict[str, dict[str, Any]] = {}


class HostFacts(BaseModel):
    """Facts of a machine, an entry of hosts.json. None, or empty: not recorded.

    `role`: `sut`, `sibling` (a further machine of an environment), or the inventory's role. `domains`: on a KVM host,
    libvirt's domain → its definition. `hardware`: the platform below the machine, see vmtoll.model.hardware.
    """

    model_config = ConfigDict(extra="allow")

    role: str = "machine"
    environment: str | None = None
    workers: int | None = None
    release: str | None = None
    kernel: str | None = None
    cmdline: str | None = None
    cpu_model: str | None = None
    cpus_allowed: int | None = None
    stepping: str | None = None
    microcode: str | None = None
    sockets: int | None = None
    mitigations: dict[str, str] = {}
    governor: str | None = None
    smt: str | None = None
    numa_nodes: int | None = None
    clock_source: str | None = None
    cpu_latency_us: int | None = None
    memory_kib: int | None = None
    virtualization: str | None = None
    container: str | None = None
    hypervisor: dict[str, bool | str | None] = {}
    kvm_modules: list[str] = []
    kvm_flags: list[str] = []
    crypto_flags: list[str] = []
    nic: str | None = None
    sysctls: dict[str, str] = {}
    packages: dict[str, str] = {}
    servers: dict[str, ServerFacts] = {}
    content_digest: str | None = None
    libvirt_version: str | None = None
    qemu_version: str | None = None
    domains: dict[str, str] = {}
    hardware: str | None = None

    @property
    def is_kvm_host(self) -> bool:
        return self.role == "kvm_host"

    @property
    def recorded(self) -> Facts:
        """The facts that were recorded, by name, as in hosts.json."""
        return self.model_dump(exclude_unset=True)

    def server(self, name: str) -> ServerFacts:
        """Facts of a server; without any where the machine does not have it."""
        return self.servers.get(name, ServerFacts())


def kvm_hosts(hosts: Mapping[str, HostFacts]) -> dict[str, HostFacts]:
    """The KVM hosts among these machines, by name."""
    return {name: facts for name, facts in hosts.items() if facts.is_kvm_host}


@dataclass(frozen=True)
class Fact:
    """`label`: for readers. `compared`: two machines of a comparison may differ in this fact only where the experiment
    declares it. `boot`: metal and guest differ in it even with the same root filesystem, so it is declared by default.
    `lasting`: two runs count as measured on alike machines only if this fact is the same.
    """

    name: str
    label: str
    compared: bool = True
    boot: bool = True
    lasting: bool = False


FACTS = (
    Fact("release", "operating system", boot=False, lasting=True),
    Fact("kernel", "kernel", lasting=True),
    Fact("cmdline", "kernel command line"),
    Fact("cpu_model", "CPU model", lasting=True),
    Fact("cpus_allowed", "CPUs", lasting=True),
    Fact("microcode", "microcode"),
    Fact("mitigations", "mitigations"),
    Fact("governor", "CPU frequency governor"),
    Fact("smt", "SMT"),
    Fact("numa_nodes", "NUMA nodes"),
    Fact("clock_source", "clock source"),
    Fact("memory_kib", "memory", lasting=True),
    Fact("virtualization", "virtualization", lasting=True),
    Fact("container", "container"),
    Fact("nic", "network card"),
    Fact("sysctls", "kernel parameters", boot=False),
    Fact("packages", "packages", boot=False),
    Fact("servers", "servers", boot=False),
    Fact("content_digest", "site content", boot=False),
    Fact("workers", "workers", boot=False),
)
# Firmware tables and the kernel's own layout take some pages more or less of equal machines.
_MEMORY_TOLERANCE_KIB = 1024
COMPARED = [fact.name for fact in FACTS if fact.compared]
ALWAYS_DIFFER = [fact.name for fact in FACTS if fact.boot]
# What makes a container another environment than its machine, whose kernel it shares.
OF_A_CONTAINER = ["virtualization", "container", "nic"]


@dataclass(frozen=True)
class Kin:
    """Environments of which more is known than of all in a run: `declared` has the facts in which they may differ from
    each other.
    """

    environments: Sequence[str]
    declared: Sequence[str]


def flatten(facts: Facts, prefix: str = "") -> Iterable[tuple[str, str]]:
    """(name, value) of each compared fact, nested ones as `servers: nginx: version`."""
    for key, value in facts.items():
        if not prefix and key not in COMPARED:
            continue
        name = f"{prefix}: {key}" if prefix else key
        if isinstance(value, dict):
            yield from flatten(value, name)
        else:
            yield name, "—" if value is None else str(value)


def covers(item: str, name: str) -> bool:
    """Return whether a declared difference is about a fact: `nic` covers `nic: driver` too, `servers: *: version` the
    version of each server.
    """
    wanted, parts = item.split(": "), name.split(": ")
    return len(wanted) <= len(parts) and all(want in ("*", part) for want, part in zip(wanted, parts, strict=False))


def entries_of(declared: Iterable[str], fact: str) -> list[str]:
    """The declared differences that are about entries of a fact, such as `servers: *: version`."""
    return [item for item in declared if item.startswith(f"{fact}: ")]


def is_explained_absence(entries: Iterable[str], name: str) -> bool:
    """Return whether a declared difference about parts of an entry, as `servers: *: version` of `servers: nginx`, lets
    a machine lack that entry.
    """
    return any(covers(item.rpartition(": ")[0], name) for item in entries if item.count(": ") > name.count(": "))


def agree(name: str, values: Iterable[Any]) -> bool:
    """Return whether machines agree in a fact. `values`: that of each, None where it is not known."""
    known = list(values)
    if name == "memory_kib" and all(str(value).isdigit() for value in known):
        sizes_kib = [int(value) for value in known]
        return max(sizes_kib) - min(sizes_kib) <= _MEMORY_TOLERANCE_KIB
    return len({json.dumps(value, sort_keys=True) for value in known}) == 1

"""The facts of a machine, in one table: how each fact limits a comparison."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from vmtoll.model.table import Described

Facts = dict[str, Any]  # by name, whatever they are about


class ServerFacts(BaseModel):
    """Facts of a server on a machine."""

    model_config = ConfigDict(extra="allow")

    version: str | None = None  # of its packages, None for a build of our own
    binary_sha256: str | None = None
    config_sha256: str | None = None
    workers: int | None = None
    tls: dict[str, dict[str, Any]] = {}  # transport → what the handshake of the last trial agreed on


@dataclass(frozen=True)
class Fact:
    """A fact of two machines that are compared: they may differ in it only where the experiment declares it."""

    label: str
    boot: bool = True  # metal and guest differ in it even with the same root filesystem, so it is declared by default
    lasting: bool = False  # two runs count as measured on alike machines only if this fact is the same
    name: str = ""


def _known(
    doc: str = "", fact: Fact | None = None, *, default: Any = None, label: str = "", **options: Any
) -> Any:  # fmt: skip
    """A field of HostFacts. `doc`: of its column in the table of hosts; `label`: in the report's
    table of machines, by default the fact's; `options` as in Described.
    """
    described = (Described(doc=doc, required=False, **options),) if doc else ()
    return Field(default=default, json_schema_extra={"columns": described, "fact": fact, "label": label})  # type: ignore[dict-item]


def _mitigations_text(states: Mapping[str, str]) -> str:
    return "; ".join(f"{name}: {state}" for name, state in sorted(states.items()))


class HostFacts(BaseModel):
    """Facts of a machine, an entry of hosts.json. None, or empty: not recorded."""

    model_config = ConfigDict(extra="allow")

    # `sut`, `sibling` (a further machine of an environment), or the inventory's role
    role: str = _known("client, sut (under test), kvm_host, …", default="machine", label="role")
    environment: str | None = _known("environment of a machine under test", label="environment")
    workers: int | None = _known(fact=Fact("workers", boot=False))
    release: str | None = _known("operating system, as Debian 13", Fact("operating system", boot=False, lasting=True))
    kernel: str | None = _known("release of its kernel", Fact("kernel", lasting=True))
    cmdline: str | None = _known(fact=Fact("kernel command line"))
    cpu_model: str | None = _known("model of its CPU, as the kernel names it", Fact("CPU model", lasting=True))
    cpus_allowed: int | None = _known("CPUs that a process may use", Fact("CPUs", lasting=True))
    stepping: str | None = _known("family, model and stepping of its CPU, by numbers", before="cpus_allowed")
    microcode: str | None = _known("revision of the microcode", Fact("microcode"), before="cpus_allowed")
    sockets: int | None = _known("sockets with a CPU", before="cpus_allowed")
    mitigations: dict[str, str] = _known(
        "state of each vulnerability, as /sys says it", Fact("mitigations"), default={}, value=_mitigations_text
    )
    governor: str | None = _known("CPU frequency governor", Fact("CPU frequency governor"))
    smt: str | None = _known(
        "whether siblings of a core are online, as /sys says it", Fact("SMT"), before="mitigations"
    )
    numa_nodes: int | None = _known("NUMA nodes", Fact("NUMA nodes"), before="mitigations")
    clock_source: str | None = _known("clock source", Fact("clock source"))
    cpu_latency_us: int | None = _known(label="idle CPUs wake up within, µs")
    memory_kib: int | None = _known("memory", Fact("memory", lasting=True), label="memory, KiB", before="mitigations")
    virtualization: str | None = _known(
        "what it is a guest of, by systemd-detect-virt", Fact("virtualization", lasting=True)
    )
    container: str | None = _known(fact=Fact("container"))
    hypervisor: dict[str, bool | str | None] = _known(default={}, label="hypervisor shown by")
    kvm_modules: list[str] = _known(default=[], label="KVM modules")
    kvm_flags: list[str] = []
    crypto_flags: list[str] = []
    nic: str | None = _known("driver and MTU of each network card", Fact("network card"), name="nic_driver")
    sysctls: dict[str, str] = _known(fact=Fact("kernel parameters", boot=False), default={})
    packages: dict[str, str] = _known(fact=Fact("packages", boot=False), default={})
    servers: dict[str, ServerFacts] = _known(fact=Fact("servers", boot=False), default={})
    content_digest: str | None = _known(fact=Fact("site content", boot=False))
    libvirt_version: str | None = _known("version of libvirt, of a KVM host", label="libvirt", before="nic_driver")
    qemu_version: str | None = _known("version of QEMU, of a KVM host", label="QEMU", before="libvirt_version")
    domains: dict[str, str] = {}  # on a KVM host, libvirt's domain → its definition
    # of a container runtime: program, version, flags, command lines, seccomp filter, capabilities, network, image
    runtime: dict[str, Any] = _known(default={}, label="container runtime")
    # the platform below the machine, see vmtoll.model.hardware
    hardware: str | None = _known(
        "the platform below: native, nested, emulated, unknown", label="hardware below", before="qemu_version"
    )

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


def _facts() -> Iterator[Fact]:
    for name, info in HostFacts.model_fields.items():
        extra: Any = info.json_schema_extra
        if extra and extra["fact"]:
            yield replace(extra["fact"], name=name)


def _labels() -> Iterator[tuple[str, str]]:
    for name, info in HostFacts.model_fields.items():
        extra: Any = info.json_schema_extra
        if extra and (label := extra["label"] or (extra["fact"] and extra["fact"].label)):
            yield name, label


LABELS = dict(_labels())  # fact → its label in the report's table of machines
FACTS = tuple(sorted(_facts(), key=lambda fact: fact.name == "workers"))
# Firmware tables and the kernel's own layout take some pages more or less of equal machines.
_MEMORY_TOLERANCE_KIB = 1024
COMPARED = [fact.name for fact in FACTS]
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

"""Facts of a KVM host that a diagnosis uses: what vmtoll/agent/libvirt_guests.py reads there."""

from typing import Any, TypedDict

from vmtoll.hypervisors.guest_config import UnknownFactError

# A guest's weight where nobody has set one: control groups of version 1 and of version 2.
USUAL_WEIGHT = {1: 1024, 2: 100}


class Group(TypedDict):
    """A control group around a guest that limits it: its CPU time in CPUs, and memory; None without such a limit."""

    name: str
    cpus: float | None
    memory_bytes: int | None


class Pages(TypedDict):
    """Huge pages of the host's default size."""

    size_kib: int
    free: int


class _Needed(TypedDict):
    kvm_device: bool
    vhost_net: bool
    cpus: list[int]
    hugepages: Pages


class Facts(_Needed, total=False):
    """`architecture`: of the host. `cpus`: those that are online. `cores`, `nodes`: CPU, as text → the first CPU of its
    core, its NUMA node. `used`: CPUs that other guests of the host are pinned to. `flags`: of the host's CPU;
    `model_flags`: those of the model that the definition names, None where libvirt does not know it. `bridges`: of the
    host. `vhost_threads`: of the running guest. `groups`: control groups around it, from its own outwards.
    """

    architecture: str
    transparent_hugepages: str
    halt_poll_ns: int | None
    vhost_threads: int
    cores: dict[str, int]
    nodes: dict[str, int]
    used: list[int]
    flags: list[str]
    model_flags: list[str] | None
    bridges: list[str]
    cgroup_version: int | None
    groups: list[Group]


_TELLS = {
    "groups": "the control groups of its process, which the host does not show",
    "flags": "the instructions of the host's CPU (/proc/cpuinfo)",
    "cores": "which CPUs of the host share a core (/sys/devices/system/cpu)",
    "nodes": "the host's NUMA nodes (/sys/devices/system/node)",
}


def fact(facts: Facts, name: str) -> Any:
    """A fact that the host may not show. Raises UnknownFactError."""
    value = facts.get(name)
    if value is None:
        raise UnknownFactError(_TELLS[name])
    return value

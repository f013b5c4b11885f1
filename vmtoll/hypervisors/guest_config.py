"""What a guest is, in no hypervisor's words: each fact known, with its source, or unknown, with what would tell it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, NoReturn, TypeVar

T = TypeVar("T", covariant=True)  # noqa: PLC0105 (the customary name)
X86 = ("x86_64", "i686")


class UnknownFactError(Exception):
    """A fact is needed that no source has; its text names what would tell it."""


@dataclass(frozen=True)
class Known(Generic[T]):
    """A fact as its source has it."""

    known: T
    source: str


@dataclass(frozen=True)
class Unknown:
    """A fact that no source has. `tells`: what would tell it."""

    tells: str

    @property
    def known(self) -> NoReturn:
        """Raise UnknownFactError, so that nothing is concluded from it."""
        raise UnknownFactError(self.tells)


Fact = Known[T] | Unknown
_UNREAD = Unknown("the guest's definition")


@dataclass(frozen=True)
class Cpu:
    """`mode`: custom, or a way of libvirt's to take the host's CPU. `on`, `off`: features, by Linux's names."""

    mode: str
    model: str = ""
    on: frozenset[str] = frozenset()
    off: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Cell:
    """A NUMA cell of the guest: its virtual CPUs, and the host's nodes that its memory is bound to, if any."""

    vcpus: tuple[int, ...]
    nodes: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Pins:
    """CPUs that each virtual CPU has; those of all together, where a set holds for the whole guest; those of the other
    threads; those that the definition allows.
    """

    each: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    together: tuple[int, ...] = ()
    emulator: tuple[int, ...] = ()
    allowed: tuple[int, ...] = ()


@dataclass(frozen=True)
class Quota:
    """A limit of CPU time in CPUs; `name`: libvirt's element."""

    name: str
    cpus: float


@dataclass(frozen=True)
class Disk:
    """A disk that is neither CD nor floppy. `bus`: as the guest sees it, with the controller of SCSI. `storage`: file,
    block, volume or network. `switches`: of virtio, by libvirt's names. `rates`: limits by name. `handle`: where the
    definition has it. `recorded`: what only the record of a run has: format and source.
    """

    name: str
    bus: Fact[str] = _UNREAD
    storage: Fact[str] = _UNREAD
    cache: Fact[str] = _UNREAD
    switches: Fact[Mapping[str, str]] = _UNREAD
    rates: Fact[Mapping[str, str]] = _UNREAD
    handle: Any = None
    recorded: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_virtio(self) -> bool:
        """Return whether it is virtio-blk. Raises UnknownFactError."""
        return self.bus.known == "virtio"


@dataclass(frozen=True)
class Card:
    """A network card. `network`: kind of the backend, by libvirt's name if it has one. `carrier`: vhost, qemu, or empty
    if the hypervisor decides. `offloads`: those that are off, by side. `bandwidth`: limits by direction. `handle`:
    where the definition has it.
    """

    mac: str
    network: Fact[str] = _UNREAD
    model: Fact[str] = _UNREAD
    carrier: Fact[str] = _UNREAD
    queues: Fact[int] = _UNREAD
    switches: Fact[Mapping[str, str]] = _UNREAD
    offloads: Fact[Mapping[str, tuple[str, ...]]] = _UNREAD
    bandwidth: Fact[Mapping[str, str]] = _UNREAD
    handle: Any = None
    is_down: bool = False  # its definition takes the link away, so that it carries no packet

    @property
    def is_virtio(self) -> bool:
        """Return whether it is virtio-net, and no function of the host's card. Raises UnknownFactError."""
        return self.network.known != "hostdev" and self.model.known.startswith("virtio")


@dataclass(frozen=True)
class GuestConfig:
    """A guest. `domain_type`: what runs its code, as libvirt has it (kvm, qemu). `model_flags`: instructions of the CPU
    model; `seen_flags`: those that the running guest sees. `kvmclock`: why the guest has none, empty if it has it.
    `weight`: of CPU time, 0 if nobody has set one. `blkio`: limits of the host's devices. `kernel`: the file that the
    definition boots, empty if the guest boots its own; `cmdline`: that kernel's command line. `host_devices`: PCI
    devices of the host that the guest has, by address; a definition does not say what they are.
    """

    name: str
    running: bool = False
    domain_type: Fact[str] = _UNREAD
    architecture: Fact[str] = _UNREAD
    machine: str = ""
    vcpus: Fact[int] = _UNREAD
    threads: Fact[int] = Known(1, "the usual topology")
    cpu: Fact[Cpu] = _UNREAD
    model_flags: Fact[frozenset[str]] = _UNREAD
    seen_flags: Fact[frozenset[str]] = _UNREAD
    kvmclock: Fact[str] = _UNREAD
    hpet: Fact[bool] = _UNREAD
    memory_bytes: Fact[int] = _UNREAD
    cells: Fact[tuple[Cell, ...]] = _UNREAD
    huge_pages: Fact[bool] = _UNREAD
    pins: Fact[Pins] = _UNREAD
    quotas: Fact[tuple[Quota, ...]] = _UNREAD
    weight: Fact[int] = _UNREAD
    memory_limits: Fact[Mapping[str, int]] = _UNREAD
    blkio: Fact[tuple[str, ...]] = _UNREAD
    kernel: Fact[str] = _UNREAD
    cmdline: str = ""
    iothreads: int = 0
    is_protected: Fact[bool] = _UNREAD
    disks: Fact[tuple[Disk, ...]] = _UNREAD
    cards: Fact[tuple[Card, ...]] = _UNREAD
    controllers: tuple[str, ...] = ()
    host_devices: tuple[str, ...] = ()


def flag_name(name: str) -> str:
    """A CPU feature by Linux's name: libvirt and QEMU write sse4.1, sha-ni and pclmuldq."""
    linux = name.lower().replace(".", "_").replace("-", "_")
    return {"pclmuldq": "pclmulqdq"}.get(linux, linux)


def cpus(text: str) -> list[int]:
    """The numbers of the CPUs in a set such as `0-3,^2,8`, as libvirt, Proxmox VE and the kernel write it."""
    chosen: list[int] = []
    for part in filter(None, text.replace(" ", "").replace(";", ",").split(",")):
        low, _, high = part.lstrip("^").partition("-")
        numbers = range(int(low), int(high or low) + 1)
        if part.startswith("^"):
            chosen = [cpu for cpu in chosen if cpu not in numbers]
        else:
            chosen += [cpu for cpu in numbers if cpu not in chosen]
    return sorted(chosen)


def cpu_set(numbers: Iterable[int]) -> str:
    """CPUs as libvirt writes them: `0-3,8`."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(f"{low}-{high}" if high > low else str(low) for low, high in runs)

"""Tuning steps that an existing guest lacks."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from vmtoll.model.message import WithText
from vmtoll.model.metric import Metric
from vmtoll.model.trial import Scenario
from vmtoll.model.verdict import TuningStep


class Tuning(WithText):
    """Tuning steps, in the order in which to take them, with what a guest has that took one, and what one has without
    it. A guest with a limit lacks the step of that name.
    """

    lacking: str

    def __new__(cls, code: str, text: str, lacking: str) -> Self:
        member = str.__new__(cls, code)
        member._value_, member.text, member.lacking = code, text, lacking
        return member

    KVM = "kvm", "hardware virtualization", "runs on emulation (domain type {current})"
    CPU_LIMIT = "cpu-limit", "no limit of CPU time", "CPU time is limited: {current}"
    MEMORY_LIMIT = "memory-limit", "no limit of memory", "memory is limited: {current}"
    DISK_LIMIT = "disk-limit", "no limit of the disk", "the disk is limited: {current}"
    NETWORK_LIMIT = "network-limit", "no limit of the network", "the network is limited: {current}"
    CPU_MODEL = "cpu-model", "the host's CPU model", "CPU model {current}"
    TIMERS = "timers", "KVM's clock and no HPET", "timers: {current}"
    NETWORK = (
        "network",
        "a network backend in the host's kernel",
        "user-mode network: QEMU's own TCP stack carries the packets",
    )
    CARD = "card", "a virtio network card", "emulated network card {current}"
    DISK_BUS = "disk-bus", "a virtio disk", "emulated disk bus {current}"
    CACHE = "cache", "disk cache mode none", "disk cache mode {current}"
    VHOST = "vhost", "vhost", "no vhost: QEMU's process carries the packets"
    IOMMU = (
        "iommu",
        "no virtual IOMMU before the device",
        "a virtual IOMMU translates each access to the guest's memory ({current})",
    )
    NOTIFICATIONS = "notifications", "notifications by the kernel", "slow notifications: {current}"
    OFFLOADS = "offloads", "offloads", "offloads are off: {current}"
    MULTIQUEUE = (
        "multiqueue",
        "one network queue for each virtual CPU",
        "{current} network queue(s), fewer than virtual CPUs",
    )
    PINNING = "pinning", "pinned virtual CPUs", "unpinned: {current} virtual CPUs have a dedicated CPU"
    HUGE_PAGES = "huge-pages", "huge pages", "small pages"
    HALT_POLLING = "halt-polling", "halt polling in the guest", "no halt polling: idle virtual CPUs halt"


LIMITS = frozenset({Tuning.CPU_LIMIT, Tuning.MEMORY_LIMIT, Tuning.DISK_LIMIT, Tuning.NETWORK_LIMIT})


class State(StrEnum):
    """TAKEN: the guest has the step; LACKING: it does not; UNKNOWN: neither its definition nor its host shows which;
    INAPPLICABLE: the guest cannot have the step, such as several queues with one virtual CPU.
    """

    TAKEN = "taken"
    LACKING = "lacking"
    UNKNOWN = "unknown"
    INAPPLICABLE = "inapplicable"


@dataclass(frozen=True)
class Edit:
    """An edit of a guest's definition: set `value` at `xpath`, creating missing elements. An empty value makes an
    empty element, None removes the element.
    """

    xpath: str
    value: str | None = None


@dataclass(frozen=True)
class Step:
    """One tuning step of one device of the guest. `device`: a disk's target or a card's MAC address, empty for a step
    of the whole guest; `current`: what the definition has; `changes`: the edits that take the step, empty where no edit
    can; `xml`: the elements that the edits set; `apply`: the command that makes the edits; `host`: what the host must
    have or shows, by name. `refused`: why libvirt refuses the changes; `changes` is empty then. `pending`: the guest
    gets the step at its next start. `undo`: the command that takes back what `apply` does. `tells`: what would tell an
    UNKNOWN step.

    For a guest that libvirt does not run, `changes` and `xml` are empty. `options`: options of QEMU's command line that
    take the step; `instead`: the options that they replace, if any.
    """

    tuning: Tuning
    state: State
    device: str = ""
    current: str = ""
    xml: str = ""
    host: Mapping[str, int | str] | None = None
    changes: tuple[Edit, ...] = ()
    apply: str = ""
    refused: str = ""
    pending: bool = False
    undo: str = ""
    options: str = ""
    instead: str = ""
    tells: str = ""


@dataclass(frozen=True)
class Worth:
    """Effect of a step in one scenario and metric of a tuning run. `together`: all steps by which the two profiles
    differ, where there is more than one.
    """

    run: str
    scenario: Scenario
    tool: str
    metric: Metric
    result: TuningStep
    together: tuple[Tuning, ...] = ()


@dataclass(frozen=True)
class TuningRun:
    """A tuning run that a diagnosis cites. `local`: measured here, not committed with vmtoll. `emulated`: a guest ran
    under software emulation.
    """

    name: str
    started_at: str
    local: bool
    emulated: bool
    kvm_hardware: tuple[str, ...]
    cpu_models: tuple[str, ...]


@dataclass(frozen=True)
class Thread:
    """A thread of a guest's process: seconds on a CPU, and ready but waiting for one, since its start; the same in
    percent of the time that vmtoll measured it, None if it did not.
    """

    tid: int
    name: str
    cpu_s: float
    wait_s: float
    cpu_pct: float | None = None
    wait_pct: float | None = None


@dataclass(frozen=True)
class Diagnosis:
    """A guest's steps and, for each step that it lacks, the measured effect. `where`: its host, or the libvirt URI.

    `refused`: why libvirt refuses the definition as it is; vmtoll cannot check any change then. `kind`: what runs
    the guest (libvirt, qemu, proxmox, process). `save_command`, `restore_command`: save its definition and restore it.
    `monitor`: why QEMU's monitor did not answer; the diagnosis then rests on the command line and the process.
    `threads`: of its process, if libvirt does not run it. `title`: its name, if `guest` is a number; `program`: what
    runs it, if vmtoll knows only limits and threads of that.
    """

    guest: str
    where: str
    running: bool
    steps: tuple[Step, ...]
    worth: Mapping[Tuning, tuple[Worth, ...]]
    runs: tuple[TuningRun, ...]
    refused: str = ""
    kind: str = "libvirt"
    save_command: str = ""
    restore_command: str = ""
    monitor: str = ""
    threads: tuple[Thread, ...] = ()
    title: str = ""
    program: str = ""

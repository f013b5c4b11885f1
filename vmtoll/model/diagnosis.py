"""Tuning steps that an existing guest lacks: codes and values; the sentences are in vmtoll/report/words."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from vmtoll.model.metric import Metric
from vmtoll.model.trial import Scenario
from vmtoll.model.verdict import TuningStep


class Tuning(StrEnum):
    """Tuning steps, in the order in which to take them. A guest with a limit lacks the step of that name."""

    KVM = "kvm"
    CPU_LIMIT = "cpu-limit"
    MEMORY_LIMIT = "memory-limit"
    DISK_LIMIT = "disk-limit"
    NETWORK_LIMIT = "network-limit"
    CPU_MODEL = "cpu-model"
    TIMERS = "timers"
    NETWORK = "network"
    CARD = "card"
    DISK_BUS = "disk-bus"
    CACHE = "cache"
    VHOST = "vhost"
    IOMMU = "iommu"
    NOTIFICATIONS = "notifications"
    OFFLOADS = "offloads"
    MULTIQUEUE = "multiqueue"
    PINNING = "pinning"
    HUGE_PAGES = "huge-pages"
    HALT_POLLING = "halt-polling"


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

"""Tuning steps that an existing guest lacks: codes and values; the sentences are in vmtoll/report/words."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from vmtoll.model.metric import Metric
from vmtoll.model.trial import Scenario
from vmtoll.model.verdict import TuningStep


class Tuning(StrEnum):
    """A tuning step that a guest has or lacks, in the order in which to take them. A limit is a step that it lacks."""

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
    """TAKEN: the guest has the step; LACKING: it does not; UNKNOWN: neither its definition nor its host shows it;
    INAPPLICABLE: it cannot have it, such as several queues with one virtual CPU.
    """

    TAKEN = "taken"
    LACKING = "lacking"
    UNKNOWN = "unknown"
    INAPPLICABLE = "inapplicable"


@dataclass(frozen=True)
class Change:
    """An edit of a definition: `value` is set at `xpath`, which is made where it is missing. An empty value makes an
    empty element, None removes what is there.
    """

    xpath: str
    value: str | None = None


@dataclass(frozen=True)
class Step:
    """One tuning step of one device of the guest. `device`: a disk's target or a card's MAC address, empty where the
    step is the whole guest's; `current`: what the definition has; `changes`: the edits that take the step, empty where
    none can; `xml`: the elements that these set; `apply`: the command that makes them; `host`: what the host must have
    or shows, by name. `refused`: why libvirt would not take the changes, which are empty then. `pending`: the guest has
    the step from its next start on.
    """

    tuning: Tuning
    state: State
    device: str = ""
    current: str = ""
    xml: str = ""
    host: Mapping[str, int | str] | None = None
    changes: tuple[Change, ...] = ()
    apply: str = ""
    refused: str = ""
    pending: bool = False


@dataclass(frozen=True)
class Worth:
    """Effect of a step in one scenario and metric of a tuning run. `together`: the steps that the two profiles differ
    by, where they are more than one.
    """

    run: str
    scenario: Scenario
    tool: str
    metric: Metric
    result: TuningStep
    together: tuple[Tuning, ...] = ()


@dataclass(frozen=True)
class TuningRun:
    """A tuning run that a diagnosis cites. `local`: measured here, not committed with vmtoll. `emulated`: software
    emulated a guest.
    """

    name: str
    started_at: str
    local: bool
    emulated: bool
    kvm_hardware: tuple[str, ...]
    cpu_models: tuple[str, ...]


@dataclass(frozen=True)
class Diagnosis:
    """A guest's steps, and of those that it lacks what measured runs say. `where`: its host, or the libvirt URI.

    `refused`: why libvirt refuses the definition as it is; no change of it is known to be right then.
    """

    guest: str
    where: str
    running: bool
    steps: tuple[Step, ...]
    worth: Mapping[Tuning, tuple[Worth, ...]]
    runs: tuple[TuningRun, ...]
    refused: str = ""

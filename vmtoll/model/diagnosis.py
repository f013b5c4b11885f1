"""Tuning steps that an existing guest lacks: codes and values; the sentences are in vmtoll/report/words."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from vmtoll.model.metric import Metric
from vmtoll.model.trial import Scenario
from vmtoll.model.verdict import TuningStep


class Tuning(StrEnum):
    """A tuning step that a guest has or lacks, in the order in which to take them."""

    KVM = "kvm"
    CPU_MODEL = "cpu-model"
    NETWORK = "network"
    CARD = "card"
    DISK_BUS = "disk-bus"
    CACHE = "cache"
    VHOST = "vhost"
    MULTIQUEUE = "multiqueue"
    PINNING = "pinning"
    HUGE_PAGES = "huge-pages"
    HALT_POLLING = "halt-polling"


class State(StrEnum):
    """TAKEN: the guest has the step; LACKING: it does not; UNKNOWN: neither its definition nor its host shows it;
    INAPPLICABLE: it cannot have it, such as several queues with one virtual CPU.
    """

    TAKEN = "taken"
    LACKING = "lacking"
    UNKNOWN = "unknown"
    INAPPLICABLE = "inapplicable"


@dataclass(frozen=True)
class Step:
    """One tuning step of one device of the guest. `device`: a disk's target or a card's MAC address, empty where the
    step is the whole guest's; `current`: what the definition has; `xml`: the elements that take the step, empty where
    none can; `host`: what the host must have or shows, by name.
    """

    tuning: Tuning
    state: State
    device: str = ""
    current: str = ""
    xml: str = ""
    host: Mapping[str, int | str] | None = None


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
    """A guest's steps, and of those that it lacks what measured runs say. `where`: its host, or the libvirt URI."""

    guest: str
    where: str
    running: bool
    steps: tuple[Step, ...]
    worth: Mapping[Tuning, tuple[Worth, ...]]
    runs: tuple[TuningRun, ...]

"""Progress of a run as typed events, each with the line that vmtoll.commands.progress writes of it, if it is one."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from vmtoll.model.finding import Role, Validity
from vmtoll.model.first_answer import Way
from vmtoll.model.message import WithText
from vmtoll.model.trial import TrialRecord, TrialSpec
from vmtoll.model.until import Look, Stop


class Phase(WithText):
    """Phase of a trial, and what vmtoll does in it."""

    ALTERING = "altering", "changing the machine"
    STARTING = "starting", "starting the server"
    CAPACITY = "capacity", "measuring the capacity with {tool}"  # the closed loop that a share is taken of
    PREPARING = "preparing", "{tool} warms the server up"
    NEIGHBOUR = "neighbour", "{tool} sends {rate_rps:.0f} requests per second to the neighbour"
    MEASURING = "measuring", "{tool} measures"
    DELIVERING = "delivering", "delivering the accepted messages"  # a mail server empties its queue
    COUNTING = "counting", "counting the messages in the mailboxes"
    EXPLAINING = "explaining", "tracing its exits"


class Absence(WithText):
    """A machine's absence, or its return."""

    LOST = "lost", "{machine} is gone ({why}); bringing it back, or waiting up to {limit_s:g} s for it"
    BACK = "back", "{machine} is back"
    REBOOTING = "rebooting", "{machine} is rebooting"  # between two groups of blocks
    REBOOTED = "rebooted", "{machine} has rebooted"


@dataclass(frozen=True)
class NotMeasured:
    """A server, one of its workloads, or an environment that is not measured, and why."""

    line: ClassVar[str] = "skipped: {name}: {why}"
    name: str
    why: str


@dataclass(frozen=True)
class MarginHidden:
    """The gates miss disturbances that matter at the experiment's margin: background processes and the hypervisor may
    take `hidden_pct` of a CPU from a machine under test without a finding in loads of `duration_s`.
    """

    line: ClassVar[str] = (
        "note: with loads of {duration_s:g} s, background work of up to {hidden_pct:.1f}% of a CPU goes unnoticed, "
        "more than the margin of {margin_pct:g}%; raise duration_s or margin_pct"
    )
    hidden_pct: float
    margin_pct: float
    duration_s: float


@dataclass(frozen=True)
class NotPaused:
    """An idle guest on the measured machine cannot be paused, and why; the run goes on with the guest running."""

    line: ClassVar[str] = "note: {machine} idles during the trials and cannot be paused: {why}"
    machine: str
    why: str


@dataclass(frozen=True)
class NotReverted:
    """A change stays in place on a machine at the end of a run: why, and what to do."""

    line: ClassVar[str] = "machine: {machine}: {why}"
    machine: str
    why: str


@dataclass(frozen=True)
class Connecting:
    """vmtoll connects to the machines."""

    line: ClassVar[str] = "connect: reaching the machines, {left}"
    trials: int  # how many are planned
    total_s: float  # how long they should take
    baseline: str  # the environment that the others are compared with


@dataclass(frozen=True)
class ComparingMachines:
    """vmtoll gathers and compares the facts of the machines."""

    line: ClassVar[str] = "facts: comparing the machines, {left}"
    trials: int
    total_s: float


@dataclass(frozen=True)
class ServiceCompared:
    """Every arm of a service answered alike to this many URLs."""

    urls: int
    arms: Sequence[str]
    # `found`, `declared`: the dynamic ones, of which only the status was compared: asked twice, they differed, or the
    # experiment says so
    found: Sequence[str]
    declared: Sequence[str]


@dataclass(frozen=True)
class MachineStep:
    """A machine is lost, reboots or is back, between trials or before the first."""

    machine: str
    absence: Absence
    limit_s: float | None = None  # how long vmtoll waits for a lost machine
    why: str = ""  # why it is lost


@dataclass(frozen=True)
class Starting:
    """Guests of an environment, `at_once` of them, are about to be started by a way of `first_answer`."""

    line: ClassVar[str] = "start: {way} of {at_once} {environment}, block {block}"
    way: Way
    environment: str
    at_once: int
    block: int


@dataclass(frozen=True)
class StartFailed:
    """A start has no figures, and why."""

    line: ClassVar[str] = "start: {way} of {environment} failed: {why}"
    way: Way
    environment: str
    why: str


@dataclass(frozen=True, kw_only=True)
class TrialStep:
    """Trial `number` of `trials`, in one of `blocks` blocks, enters a phase."""

    spec: TrialSpec
    attempt: int
    number: int
    trials: int
    blocks: int
    phase: Phase
    left_s: float
    # `tool`, `role`, `rate_rps`: where the phase has them
    tool: str | None = None
    role: Role | None = None
    rate_rps: float | None = None


@dataclass(frozen=True)
class TrialEnded:
    """A trial's record is stored."""

    record: TrialRecord
    number: int
    trials: int
    left_s: float
    again: bool = False  # the trial failed, and vmtoll measures it or its block again


@dataclass(frozen=True)
class BlockEnded:
    """Every trial of a block is stored, at least one of them by this process."""

    block: int
    blocks: int
    validity: Mapping[Validity, int]  # of their last attempts
    left_s: float


@dataclass(frozen=True)
class LookEnded:
    """A run with `until` has looked at its comparisons."""

    look: Look
    next_blocks: int | None  # the number of blocks at the next look, None where the run `stopped`
    stopped: Stop | None


@dataclass(frozen=True)
class RunEnded:
    """Every trial is stored."""

    run_dir: Path
    records: Sequence[TrialRecord]  # the last attempt at each, also those of an earlier process


Event = (
    NotMeasured
    | MarginHidden
    | NotPaused
    | NotReverted
    | Connecting
    | ComparingMachines
    | ServiceCompared
    | MachineStep
    | Starting
    | StartFailed
    | TrialStep
    | TrialEnded
    | BlockEnded
    | LookEnded
    | RunEnded
)
Listener = Callable[[Event], None]

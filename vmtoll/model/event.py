"""Progress of a run as typed events; vmtoll.commands.progress turns them into text."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from vmtoll.model.finding import Role, Validity
from vmtoll.model.trial import TrialRecord, TrialSpec
from vmtoll.model.until import Look, Stop


class Phase(StrEnum):
    """Phase of a trial."""

    STARTING = "starting"  # the server is started
    CAPACITY = "capacity"  # the closed loop that a share is taken of
    PREPARING = "preparing"  # a tool is chosen and warms the server up
    NEIGHBOUR = "neighbour"  # the neighbour's load begins
    MEASURING = "measuring"  # a load that counts begins
    DELIVERING = "delivering"  # a mail server empties its queue
    COUNTING = "counting"  # messages are counted in the mailboxes


class Absence(StrEnum):
    """Reason for a machine's absence, or its return."""

    LOST = "lost"  # it is brought back, or waited for
    BACK = "back"
    REBOOTING = "rebooting"  # between two groups of blocks
    REBOOTED = "rebooted"


@dataclass(frozen=True)
class Skipped:
    """A server, one workload of it, or an environment is not measured, and why."""

    name: str
    why: str


@dataclass(frozen=True)
class MarginHidden:
    """The gates do not see all that matters at the experiment's margin. `hidden_pct` of a CPU may be taken from a
    machine under test without a finding in loads of `duration_s`.
    """

    hidden_pct: float
    margin_pct: float
    duration_s: float


@dataclass(frozen=True)
class NotPaused:
    """A guest that idles on the measured machine cannot be paused, and why; the run goes on without that."""

    machine: str
    why: str


@dataclass(frozen=True)
class Connecting:
    """The machines are being reached. `trials`: how many are planned, `total_s`: how long they should take; `baseline`:
    the environment that the others are compared with.
    """

    trials: int
    total_s: float
    baseline: str


@dataclass(frozen=True)
class ComparingMachines:
    """The facts of the machines are gathered and compared."""

    trials: int
    total_s: float


@dataclass(frozen=True)
class MachineStep:
    """A machine is lost or boots, between trials or before the first; or it is there again.

    `limit_s`: how long a lost machine is waited for. `why` it is lost.
    """

    machine: str
    absence: Absence
    limit_s: float | None = None
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class TrialStep:
    """Trial `number` of `trials`, in one of `blocks` blocks, enters a phase. The rest: where the phase has it."""

    spec: TrialSpec
    attempt: int
    number: int
    trials: int
    blocks: int
    phase: Phase
    left_s: float
    tool: str | None = None
    role: Role | None = None
    rate_rps: float | None = None


@dataclass(frozen=True)
class TrialEnded:
    """A trial's record is stored. `again`: it failed, and it or its block is measured again."""

    record: TrialRecord
    number: int
    trials: int
    left_s: float
    again: bool = False


@dataclass(frozen=True)
class BlockEnded:
    """Every trial of a block is stored, at least one of them by this process. `validity`: of their last attempts."""

    block: int
    blocks: int
    validity: Mapping[Validity, int]
    left_s: float


@dataclass(frozen=True)
class LookEnded:
    """A run that goes on until its comparisons are known has looked at them. `next_blocks`: after how many blocks it
    looks again, None where it `stopped`.
    """

    look: Look
    next_blocks: int | None
    stopped: Stop | None


@dataclass(frozen=True)
class RunEnded:
    """Every trial is stored. `records`: the last attempt at each, also those of an earlier process."""

    run_dir: Path
    records: Sequence[TrialRecord]


Event = (
    Skipped
    | MarginHidden
    | NotPaused
    | Connecting
    | ComparingMachines
    | MachineStep
    | TrialStep
    | TrialEnded
    | BlockEnded
    | LookEnded
    | RunEnded
)
Listener = Callable[[Event], None]

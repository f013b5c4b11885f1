"""What a reader must know with a verdict: a typed note, tagged by its code."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field


class NoteCode(StrEnum):
    """Code of a note that readers need with a verdict."""

    CONTROL_DIFFERS = "control-differs"
    NO_CONTROL = "no-control"
    FEW_BLOCKS = "few-blocks"
    CLIENT_ON_SAME_MACHINE = "client-on-same-machine"
    FAILED_REQUESTS = "failed-requests"
    OWN_RATES = "own-rates"
    ATTAINED = "attained"
    CROSSCHECK_DISAGREES = "crosscheck-disagrees"


@dataclass(frozen=True)
class ControlDiffers:
    """The A/A control differs from itself, surely by the factor `size`."""

    size: float
    code: Literal[NoteCode.CONTROL_DIFFERS] = NoteCode.CONTROL_DIFFERS


@dataclass(frozen=True)
class NoControl:
    """The run has no A/A control for this comparison."""

    code: Literal[NoteCode.NO_CONTROL] = NoteCode.NO_CONTROL


@dataclass(frozen=True)
class FewBlocks:
    """With as few blocks as this, the verdict assumes that the machines' state changes between blocks."""

    blocks: int
    code: Literal[NoteCode.FEW_BLOCKS] = NoteCode.FEW_BLOCKS


@dataclass(frozen=True)
class ClientOnSameMachine:
    """The load came from the machine under test."""

    code: Literal[NoteCode.CLIENT_ON_SAME_MACHINE] = NoteCode.CLIENT_ON_SAME_MACHINE


@dataclass(frozen=True)
class FailedRequests:
    """Requests failed; the verdict has the shares of both sides."""

    code: Literal[NoteCode.FAILED_REQUESTS] = NoteCode.FAILED_REQUESTS


@dataclass(frozen=True)
class OwnRates:
    """Each side was loaded at a rate of its own, in requests per second; None for a side without a trial."""

    baseline_rps: float | None = None
    compared_rps: float | None = None
    code: Literal[NoteCode.OWN_RATES] = NoteCode.OWN_RATES


@dataclass(frozen=True)
class Answered:
    """The rate offered to one side, in requests per second, and the fraction of it that was answered."""

    offered_rps: float
    attained: float


@dataclass(frozen=True)
class Attained:
    """What each side answered of the rate that was offered to it; None for a side without a valid trial."""

    baseline: Answered | None = None
    compared: Answered | None = None
    code: Literal[NoteCode.ATTAINED] = NoteCode.ATTAINED


@dataclass(frozen=True)
class CrosscheckDisagrees:
    """The interval of the cross-check's ratio (compared ÷ baseline) does not touch that of the primary tool."""

    tool: str
    low: float
    high: float
    code: Literal[NoteCode.CROSSCHECK_DISAGREES] = NoteCode.CROSSCHECK_DISAGREES


Note = Annotated[
    ControlDiffers
    | NoControl
    | FewBlocks
    | ClientOnSameMachine
    | FailedRequests
    | OwnRates
    | Attained
    | CrosscheckDisagrees,
    Field(discriminator="code"),
]

"""What a reader must know with a verdict: a typed note, tagged by its code, with its sentence where one fits all."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pydantic import Field


@dataclass(frozen=True)
class ControlDiffers:
    """The A/A control differs from itself, surely by the factor `size`."""

    sentence: ClassVar[str] = (
        "the A/A control differs from itself by at least {size:ratio}×, so the interval is wider by as much"
    )
    size: float
    code: Literal["control-differs"] = "control-differs"


@dataclass(frozen=True)
class NoControl:
    """The run has no A/A control for this comparison."""

    sentence: ClassVar[str] = "no A/A control"
    code: Literal["no-control"] = "no-control"


@dataclass(frozen=True)
class FewBlocks:
    """With as few blocks as this, the verdict assumes that the machines' state changes between blocks."""

    sentence: ClassVar[str] = (
        "with {blocks:plural block} the verdict assumes that the machines' state changes between them"
    )
    blocks: int
    code: Literal["few-blocks"] = "few-blocks"


@dataclass(frozen=True)
class ClientOnSameMachine:
    """The load came from the machine under test."""

    sentence: ClassVar[str] = "the client ran on the same machine and used part of the server's CPUs"
    code: Literal["client-on-same-machine"] = "client-on-same-machine"


@dataclass(frozen=True)
class ClientTime:
    """The client's own CPU time as a fraction of the load's time, with one user in a closed loop: a median over each
    side's trials, None where it is not known. What that user gets includes it.
    """

    baseline_share: float | None = None
    compared_share: float | None = None
    code: Literal["client-time"] = "client-time"


@dataclass(frozen=True)
class FailedRequests:
    """Requests failed; the verdict has the shares of both sides."""

    code: Literal["failed-requests"] = "failed-requests"


@dataclass(frozen=True)
class OwnRates:
    """Each side was loaded at its own rate, in requests per second; None for a side without a trial."""

    baseline_rps: float | None = None
    compared_rps: float | None = None
    code: Literal["own-rates"] = "own-rates"


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
    code: Literal["attained"] = "attained"


@dataclass(frozen=True)
class CrosscheckDisagrees:
    """The interval of the cross-check's ratio (compared ÷ baseline) does not touch that of the primary tool."""

    sentence: ClassVar[str] = "the cross-check by {tool} disagrees: {low:ratio} to {high:ratio}× of {baseline}"
    tool: str
    low: float
    high: float
    code: Literal["crosscheck-disagrees"] = "crosscheck-disagrees"


Note = Annotated[
    ControlDiffers
    | NoControl
    | FewBlocks
    | ClientOnSameMachine
    | ClientTime
    | FailedRequests
    | OwnRates
    | Attained
    | CrosscheckDisagrees,
    Field(discriminator="code"),
]

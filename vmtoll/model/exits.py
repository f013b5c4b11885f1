"""Exits of guests: those of an explained trial by their reason, and what each kind costs on an idle host."""

from dataclasses import dataclass
from typing import Literal

from pydantic import ConfigDict, Field

from vmtoll.model.document import Document
from vmtoll.model.trial import TrialRecord

Explain = Literal["exits"]


@dataclass(frozen=True, kw_only=True)
class ExitReason:
    """Exits for one reason during a load, of all virtual CPUs under test together."""

    reason: str  # the kernel's name
    count: int
    time_us: float  # from each exit to the next entry, by the host's clock
    # the part of it in which the virtual CPU's thread was on no CPU of the host, because it slept (as an idle one does)
    # or waited for one
    away_us: float

    @property
    def cpu_us(self) -> float:
        """CPU time of the host; 0 where the only exit had not ended when its sleep was read."""
        return max(0.0, self.time_us - self.away_us)


@dataclass(frozen=True, kw_only=True)
class ExplainedTrial:
    """A line of exits.jsonl: a trial that is compared with nothing, because its exits were traced meanwhile."""

    __pydantic_config__ = ConfigDict(extra="forbid", allow_inf_nan=False)

    trial: TrialRecord
    host: str  # the KVM host that traced them
    exits: tuple[ExitReason, ...] = ()  # by falling CPU time, empty where it failed


class ExitPrice(Document):
    """Price of one kind of exit on a KVM host, measured before the run by a virtual machine of one page."""

    kind: str = Field(description="what the machine did: see `vmtoll.agent.virtual_machine`")
    ns: float = Field(gt=0, description="from the instruction to the next one: median of the rounds")
    low_ns: float = Field(ge=0, description="the fastest round")
    high_ns: float = Field(gt=0, description="the slowest round")
    exits: int = Field(gt=0, description="how many were timed")

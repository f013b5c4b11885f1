"""From nothing that runs to the first answer: what is asked for, and what was seen of each start."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from pydantic import ConfigDict, Field, field_validator

from vmtoll.model.document import Document
from vmtoll.model.trial import Accelerator

Way = Literal["boot", "restore", "resume", "start"]
# Parts of the time to the first answer, in their order.
PARTS = (
    "host", "firmware", "loader", "kernel", "initrd", "systemd", "network", "engine", "runtime", "server", "hypervisor",
    "guest",
)  # fmt: skip


class FirstAnswer(Document):
    """How guests are brought back in each block, with their clients asking all the while."""

    of: list[Way] = Field(
        min_length=1,
        description="`boot` of a guest that was shut down; `restore` of one that was saved to a file; `resume` of a "
        "paused one; `start` of a container runtime, or of its plain process, of which none ran",
    )
    at_once: list[int] = Field(
        default=[1], min_length=1, description="numbers of guests of an environment that start at the same time"
    )
    every_ms: float = Field(default=20.0, ge=1, description="time between two requests to a guest, answered or not")
    limit_s: float = Field(default=300.0, gt=0, description="time limit from the start to the first answer, wall clock")

    @field_validator("at_once")
    @classmethod
    def _counts(cls, counts: list[int]) -> list[int]:
        if any(count < 1 for count in counts):
            raise ValueError("give numbers of guests from 1")
        return counts

    @property
    def starts(self) -> list[tuple[Way, int]]:
        """Each way with each number of guests, once."""
        return list(dict.fromkeys((way, count) for way in self.of for count in self.at_once))

    @property
    def most_at_once(self) -> int:
        """The number of guests of an environment that it needs."""
        return max(self.at_once)


@dataclass(frozen=True, kw_only=True)
class UnitWait:
    """A unit that the server waited for."""

    unit: str
    begin_s: float  # when it began, in s from the kernel's start
    length_s: float  # until it was up


@dataclass(frozen=True, kw_only=True)
class GuestStart:
    """One guest of a start. Times are in s from when the start was issued on the KVM host."""

    guest: str
    # until the client had the first whole answer with status 200, None if there was none in time
    answer_s: float | None = None
    network_s: float | None = None  # until the guest first answered on its network, be it by refusing
    command_s: float | None = None  # until the hypervisor's command ended
    # part of PARTS → seconds; together `answer_s`, empty where they are not known
    parts: Mapping[str, float] = field(default_factory=dict)
    waits: tuple[UnitWait, ...] = ()  # what the server waited for, the last one first
    error_s: float = 0.0  # half of the round trips that the clocks were compared by
    gap_s: float = 0.0  # the longest time between two requests


@dataclass(frozen=True, kw_only=True)
class StartRecord:
    """A line of first-answers.jsonl: guests of an environment, started at once."""

    __pydantic_config__ = ConfigDict(extra="forbid", allow_inf_nan=False)

    block: int
    order: int
    environment: str
    accelerator: Accelerator
    server: str
    way: Way
    at_once: int
    started_at: str  # UTC, ISO 8601
    guests: tuple[GuestStart, ...] = ()
    failure: str = ""  # why there are no figures, empty with them

    @property
    def key(self) -> tuple[int, str, str, str, int]:
        """What identifies it in a run."""
        return self.block, self.environment, self.server, self.way, self.at_once

    @property
    def last_s(self) -> float | None:
        """When all of its guests had answered; None if one did not."""
        answers = [guest.answer_s for guest in self.guests]
        known = [answer for answer in answers if answer is not None]
        return max(known) if known and len(known) == len(answers) else None

"""What a load of pages meets beyond one machine: guests that share it, a neighbour under load, cold caches."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Self, TypeVar

from pydantic import model_validator

from workloads import tools
from workloads.runner.documents import Model
from workloads.tools import Adapter

Number = TypeVar("Number", int, float)


@dataclass(frozen=True)
class Dose:
    """The load on the neighbour: `neighbour-rate:300` requests per second, `neighbour-share:0.5` of the capacity."""

    kind: Literal["rate", "share"]
    value: float

    def __str__(self) -> str:
        return f"neighbour-{self.kind}:{self.value:.10g}"


@dataclass(frozen=True)
class Place:
    """Where a load goes: over how many guests, and beside which dose; None where the workload says nothing."""

    guests: int | None = None
    dose: Dose | None = None

    @property
    def words(self) -> list[str]:
        """`guests:2`, `neighbour-share:0.5`."""
        guests = [] if self.guests is None else [f"guests:{self.guests}"]
        return [*guests, *([str(self.dose)] if self.dose else [])]


ALONE = Place()


class Neighbour(Model):
    """Background load on one further guest of the environment, at a constant rate; a list is a ladder of doses."""

    tool: str = "vegeta"
    rate_rps: float | list[float] | None = None
    share: float | list[float] | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if (self.rate_rps is None) == (self.share is None):
            raise ValueError("give either rate_rps or share")
        values = [dose.value for dose in self.doses]
        if not values or values[0] < 0 or any(low >= high for low, high in itertools.pairwise(values)):
            raise ValueError("its doses must be 0 or more and rise")
        return self

    @property
    def doses(self) -> list[Dose]:
        """One for each scenario."""
        if self.rate_rps is not None:
            return [Dose("rate", value) for value in listed(self.rate_rps)]
        return [Dose("share", value) for value in listed(self.share or 0.0)]


class Beside(Model):
    """`guests`: the load is spread over so many guests of one KVM host; a list is a ladder. `cold`: nothing that is
    asked for is in a page cache, and each file is asked for once.
    """

    guests: int | list[int] | None = None
    neighbour: Neighbour | None = None
    cold: bool = False

    @model_validator(mode="after")
    def _rises(self) -> Self:
        counts = self._counts
        if not counts or counts[0] < 1 or any(low >= high for low, high in itertools.pairwise(counts)):
            raise ValueError("guests: must be 1 or more and rise")
        return self

    @property
    def _counts(self) -> Sequence[int]:
        return listed(1 if self.guests is None else self.guests)

    @property
    def places(self) -> list[Place]:
        """Each of them makes a scenario of every load."""
        guests: Sequence[int | None] = [None] if self.guests is None else self._counts
        doses: Sequence[Dose | None] = self.neighbour.doses if self.neighbour else [None]
        return [Place(count, dose) for count in guests for dose in doses]

    @property
    def needed(self) -> int:
        """How many guests of one environment must stand on one host, the neighbour with them."""
        return max(self._counts) + (self.neighbour is not None)

    @property
    def takes_shares(self) -> bool:
        """Whether the neighbour's load is a share of a capacity."""
        return self.neighbour is not None and self.neighbour.share is not None

    @property
    def more_tools(self) -> list[str]:
        """The neighbour's."""
        return [self.neighbour.tool] if self.neighbour else []

    @property
    def spread(self) -> bool:
        """Whether any scenario sends to several machines."""
        return max(self._counts) > 1

    def misplaced(self, client: str, twin: str | None, page: str | None, *, shares: bool) -> str:
        """What does not go together, with its key; empty when all does. `shares`: a load is a share of a capacity."""
        if client == "localhost" and (self.spread or self.neighbour):
            return "client: with `guests` or `neighbour` it must be remote: no guest stands for the others"
        if self.cold and twin:
            return "twin: must be null with `cold: true`: what it asks for would be in the cache"
        if self.cold and shares:
            return "cold: goes with rates only: the closed loop that a share is taken of would fill the server's caches"
        if self.cold and page:
            return "page: must not be given with `cold: true`: each file of the site is asked for once"
        return ""


def listed(value: Number | list[Number]) -> Sequence[Number]:
    """One value or several, as a list."""
    return value if isinstance(value, list) else [value]


def mistaken_tool(beside: Beside, adapter: Adapter, users: int | None) -> str:
    """Why this tool cannot do what stands beside the load; empty when it can. `users`: of a closed loop."""
    if beside.spread and tools.one_host(adapter):
        return "sends all to the host of its first URL, so that no load can be spread over guests"
    if beside.cold and tools.at_random(adapter):
        return "draws its URLs at random, so that it cannot ask for each file once"
    if beside.cold and adapter.LOCKSTEP and users != 1:
        return "has all its users start at the same file, so that it asks for each file once with `users: 1` only"
    return ""

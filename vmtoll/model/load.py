"""Load of a scenario: users or a rate, the number of guests that share it, and the neighbour's load meanwhile."""

from dataclasses import dataclass, replace
from enum import StrEnum


class LoadKind(StrEnum):
    """CLOSED: users who wait for each answer. RATE and SHARE: an open loop, in requests per second or as a share of
    the capacity. SEARCH: a search for the highest rate; each trial gets its rate or share when it is due.
    """

    CLOSED = "closed"
    RATE = "rate"
    SHARE = "share"
    SEARCH = "search"


@dataclass(frozen=True)
class NeighbourLoad:
    """The constant rate on the neighbour: `value` requests per second (RATE), or a share of the capacity (SHARE)."""

    kind: LoadKind
    value: float


@dataclass(frozen=True)
class Load:
    """One offered load. `value`: users, requests per second, a share, or a search's deadline in ms, by `kind`.

    `guests`: number of guests of one host that share the load, None where the workload does not set it; `neighbour`:
    the load of a further guest on that host, None without one.
    """

    kind: LoadKind
    value: float
    guests: int | None = None
    neighbour: NeighbourLoad | None = None

    @property
    def is_open(self) -> bool:
        """Return whether the client sends requests at a rate, whatever the server does."""
        return self.kind is not LoadKind.CLOSED

    @property
    def is_one_user(self) -> bool:
        """Return whether one user waits for each answer, so that nothing but its own client waits for the client."""
        return self.kind is LoadKind.CLOSED and self.value == 1

    @property
    def is_single_machine(self) -> bool:
        """Return whether one machine has the whole load and no neighbour has any."""
        return self.guests in (None, 1) and not (self.neighbour and self.neighbour.value)

    @property
    def on_one_machine(self) -> "Load":
        """The same load on one machine without a neighbour."""
        return replace(self, guests=None, neighbour=None)

    @property
    def sort_key(self) -> tuple[str, float, int, str, float]:
        """Closed loops, rates, searches, shares, each from light to heavy; then by guests and by neighbour load."""
        neighbour = self.neighbour
        return (
            self.kind.value, self.value, self.guests or 0,
            neighbour.kind.value if neighbour else "", neighbour.value if neighbour else 0.0,
        )  # fmt: skip

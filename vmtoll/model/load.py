"""Load of a scenario: users or a rate, the number of guests that share it, and the neighbour's load meanwhile."""

from dataclasses import dataclass, replace
from enum import StrEnum

from vmtoll.model.table import column, nested


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
    """The constant rate on the neighbour: RATE or SHARE."""

    kind: LoadKind = column("rate or share: the load on the neighbour; empty without one")
    value: float = column("requests per second or the share, by neighbour_kind")


@dataclass(frozen=True)
class Load:
    """One offered load; a search has its deadline in ms as its value."""

    kind: LoadKind = column(
        "closed (users), rate (open loop), share (open loop, of the closed-loop capacity)", name="load_kind"
    )
    value: float = column("users, requests per second, or the share, by load_kind", name="load_value")
    guests: int | None = column(
        "guests that the workload spreads its load over; empty where it does not say", name="load_guests", least=1,
        default=None,
    )  # fmt: skip
    neighbour: NeighbourLoad | None = nested(prefix="neighbour_", default=None)  # of a further guest on the same host

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

"""Density: how many guests a host carries. Guests that each bring their own load, and what was read of each number."""

from dataclasses import dataclass
from typing import Self

from pydantic import Field, model_validator

from vmtoll.model.document import Document

# More guests than this share no host that vmtoll was built for, and each number of them is a scenario.
MOST_GUESTS = 200


class Tile(Document):
    """What one guest brings: a workload, or nothing."""

    workload: str | None = Field(
        default=None, description="the load that it gets: an open loop of vegeta at a rate, or mail"
    )
    idle: bool = Field(default=False, description="instead: the guest runs without load")
    server: str | None = Field(default=None, description="mail: its server; pages have that of `servers`")
    rate_rps: float | None = Field(default=None, gt=0, description="mail: sessions per second; pages have it already")
    deadline_ms: float | None = Field(default=None, gt=0, description="mail: 99% of the sessions end within it")

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if self.idle == (self.workload is not None):
            raise ValueError("give either workload, or idle: true")
        keys = [key for key in ("server", "rate_rps", "deadline_ms") if getattr(self, key) is not None]
        if keys and len(keys) < 3:
            raise ValueError("server, rate_rps and deadline_ms: mail needs all three, other tiles none of them")
        if keys and self.idle:
            raise ValueError(f"{keys[0]}: an idle guest gets no load; leave it out")
        return self

    @property
    def is_mail(self) -> bool:
        return self.server is not None

    @property
    def name(self) -> str:
        return self.workload or "idle"


class Density(Document):
    """Guests of one host that run at once, each with its own load: `tiles` in turn over the guests of the inventory."""

    tiles: list[Tile] = Field(
        min_length=1, description="what each guest brings, in turn over the guests of the environment; pages first"
    )
    at_most: int = Field(ge=1, le=MOST_GUESTS, description="the most guests at once; needs as many in the inventory")
    availability_pct: float = Field(
        default=99.9, gt=0, lt=100, description="percent of each guest's requests that must succeed"
    )

    @model_validator(mode="after")
    def _pages_first(self) -> Self:
        if self.tiles[0].idle or self.tiles[0].is_mail:
            raise ValueError("tiles: the first guest must get pages, so that one guest has a load; reorder them")
        return self

    @property
    def workload(self) -> str:
        """The workload of the first guest, which names the scenarios."""
        return str(self.tiles[0].workload)

    def of(self, guests: int) -> list[Tile]:
        """What each of the first guests brings."""
        return [self.tiles[index % len(self.tiles)] for index in range(guests)]


@dataclass(frozen=True, kw_only=True)
class TileFigures:
    """One loaded guest in a trial."""

    guest: str
    kind: str  # its workload
    deadline_ms: float  # its limit
    requests: int
    successful: int
    p99_ms: float | None  # within which 99% of all planned requests succeeded, None if fewer did


@dataclass(frozen=True, kw_only=True)
class HostFigures:
    """The KVM host during the load. None: the host does not say.

    `vcpus`, `cpus`: virtual CPUs of the running guests, and the host's CPUs; `cpu_pct`: busy share of these;
    `ready_pct`: share of their time that virtual CPUs waited for one; memory in 10⁶ bytes: `guests_mb` resident of the
    running guests' processes, `available_mb` and `total_mb` of the host, `merged_mb` saved by KSM, which runs if `ksm`.
    """

    vcpus: int | None = None
    cpus: int | None = None
    cpu_pct: float | None = None
    ready_pct: float | None = None
    guests_mb: float | None = None
    available_mb: float | None = None
    total_mb: float | None = None
    ksm: bool | None = None
    merged_mb: float | None = None


@dataclass(frozen=True, kw_only=True)
class DensityFigures:
    """A trial of an experiment with `density`: `guests` ran at once."""

    guests: int
    tiles: tuple[TileFigures, ...]  # those with a load
    host: HostFigures = HostFigures()

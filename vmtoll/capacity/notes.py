"""What a reader must know before a capacity is used: typed notes."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class OtherObjectiveSearched:
    """The search was for another objective than the one asked for."""

    p99_ms: float
    availability_pct: float
    code: Literal["other-objective-searched"] = "other-objective-searched"


@dataclass(frozen=True)
class GapInSearch:
    """The search ended before the rate that holds and the one that misses were as close as it should bring them."""

    low_rps: float
    high_rps: float
    resolution_pct: float
    code: Literal["gap-in-search"] = "gap-in-search"


@dataclass(frozen=True)
class BlocksMissing:
    """Fewer blocks than an interval needs."""

    blocks: int
    needed: int
    code: Literal["few-blocks"] = "few-blocks"


@dataclass(frozen=True)
class LocalLoad:
    """The load came from the machine under test."""

    code: Literal["client-on-same-machine"] = "client-on-same-machine"


@dataclass(frozen=True)
class SweepEnds:
    """The highest rate of the sweep meets the objective."""

    rate_rps: float
    code: Literal["sweep-ends"] = "sweep-ends"


@dataclass(frozen=True)
class SearchEnds:
    """The highest rate that the search tried meets the objective."""

    rate_rps: float
    code: Literal["search-ends"] = "search-ends"


@dataclass(frozen=True)
class LowestMisses:
    """The lowest rate measured misses the objective."""

    rate_rps: float
    code: Literal["lowest-misses"] = "lowest-misses"


@dataclass(frozen=True)
class NoneShown:
    """No rate is shown to meet the objective."""

    code: Literal["none-shown"] = "none-shown"


@dataclass(frozen=True)
class TooFewRequests:
    """No request failed, and so few cannot show the availability."""

    requests: int
    rate_rps: float
    availability_pct: float
    more_s: int  # how much longer to load
    shown_pct: float  # the availability that they do show
    code: Literal["too-few-requests"] = "too-few-requests"


@dataclass(frozen=True)
class MetAboveAMiss:
    """A higher rate met the objective after a lower one had missed it."""

    code: Literal["met-above-a-miss"] = "met-above-a-miss"


@dataclass(frozen=True)
class AboveErlang:
    """More than the rate at which Erlang C holds the p99."""

    rate_rps: float
    code: Literal["above-erlang"] = "above-erlang"


@dataclass(frozen=True)
class SharedPowerUnknown:
    """The power of a host that `guests` share was not measured."""

    guests: int
    code: Literal["shared-power-unknown"] = "shared-power-unknown"


@dataclass(frozen=True)
class EnergyOfClientToo:
    """The energy is that of the machine that the load generator ran on as well."""

    code: Literal["energy-of-client-too"] = "energy-of-client-too"


CapacityNote = (
    OtherObjectiveSearched
    | GapInSearch
    | BlocksMissing
    | LocalLoad
    | SweepEnds
    | SearchEnds
    | LowestMisses
    | NoneShown
    | TooFewRequests
    | MetAboveAMiss
    | AboveErlang
    | SharedPowerUnknown
    | EnergyOfClientToo
)

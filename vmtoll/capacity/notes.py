"""What a reader must know before a capacity is used: typed notes."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal


class CapacityNoteCode(StrEnum):
    """Note to read before a capacity is used."""

    OTHER_OBJECTIVE_SEARCHED = "other-objective-searched"
    GAP_IN_SEARCH = "gap-in-search"
    FEW_BLOCKS = "few-blocks"
    CLIENT_ON_SAME_MACHINE = "client-on-same-machine"
    SWEEP_ENDS = "sweep-ends"
    SEARCH_ENDS = "search-ends"
    LOWEST_MISSES = "lowest-misses"
    NONE_SHOWN = "none-shown"
    TOO_FEW_REQUESTS = "too-few-requests"
    MET_ABOVE_A_MISS = "met-above-a-miss"
    ABOVE_ERLANG = "above-erlang"
    SHARED_POWER_UNKNOWN = "shared-power-unknown"
    ENERGY_OF_CLIENT_TOO = "energy-of-client-too"


@dataclass(frozen=True)
class OtherObjectiveSearched:
    """The search was for another objective than the one asked for."""

    p99_ms: float
    availability_pct: float
    code: Literal[CapacityNoteCode.OTHER_OBJECTIVE_SEARCHED] = CapacityNoteCode.OTHER_OBJECTIVE_SEARCHED


@dataclass(frozen=True)
class GapInSearch:
    """The search ended before the rate that holds and the one that misses were as close as it should bring them."""

    low_rps: float
    high_rps: float
    resolution_pct: float
    code: Literal[CapacityNoteCode.GAP_IN_SEARCH] = CapacityNoteCode.GAP_IN_SEARCH


@dataclass(frozen=True)
class FewBlocks:
    """Fewer blocks than an interval needs."""

    blocks: int
    needed: int
    code: Literal[CapacityNoteCode.FEW_BLOCKS] = CapacityNoteCode.FEW_BLOCKS


@dataclass(frozen=True)
class ClientOnSameMachine:
    """The load came from the machine under test."""

    code: Literal[CapacityNoteCode.CLIENT_ON_SAME_MACHINE] = CapacityNoteCode.CLIENT_ON_SAME_MACHINE


@dataclass(frozen=True)
class SweepEnds:
    """The highest rate of the sweep meets the objective."""

    rate_rps: float
    code: Literal[CapacityNoteCode.SWEEP_ENDS] = CapacityNoteCode.SWEEP_ENDS


@dataclass(frozen=True)
class SearchEnds:
    """The highest rate that the search tried meets the objective."""

    rate_rps: float
    code: Literal[CapacityNoteCode.SEARCH_ENDS] = CapacityNoteCode.SEARCH_ENDS


@dataclass(frozen=True)
class LowestMisses:
    """The lowest rate measured misses the objective."""

    rate_rps: float
    code: Literal[CapacityNoteCode.LOWEST_MISSES] = CapacityNoteCode.LOWEST_MISSES


@dataclass(frozen=True)
class NoneShown:
    """No rate is shown to meet the objective."""

    code: Literal[CapacityNoteCode.NONE_SHOWN] = CapacityNoteCode.NONE_SHOWN


@dataclass(frozen=True)
class TooFewRequests:
    """No request failed, and so few cannot show the availability. `more_s`: how much longer to load; `shown_pct`: the
    availability that they do show.
    """

    requests: int
    rate_rps: float
    availability_pct: float
    more_s: int
    shown_pct: float
    code: Literal[CapacityNoteCode.TOO_FEW_REQUESTS] = CapacityNoteCode.TOO_FEW_REQUESTS


@dataclass(frozen=True)
class MetAboveAMiss:
    """A higher rate met the objective after a lower one had missed it."""

    code: Literal[CapacityNoteCode.MET_ABOVE_A_MISS] = CapacityNoteCode.MET_ABOVE_A_MISS


@dataclass(frozen=True)
class AboveErlang:
    """More than the rate at which Erlang C holds the p99."""

    rate_rps: float
    code: Literal[CapacityNoteCode.ABOVE_ERLANG] = CapacityNoteCode.ABOVE_ERLANG


@dataclass(frozen=True)
class SharedPowerUnknown:
    """The power of a host with so many guests was not measured."""

    guests: int
    code: Literal[CapacityNoteCode.SHARED_POWER_UNKNOWN] = CapacityNoteCode.SHARED_POWER_UNKNOWN


@dataclass(frozen=True)
class EnergyOfClientToo:
    """The energy is that of the machine that the load generator ran on as well."""

    code: Literal[CapacityNoteCode.ENERGY_OF_CLIENT_TOO] = CapacityNoteCode.ENERGY_OF_CLIENT_TOO


CapacityNote = (
    OtherObjectiveSearched
    | GapInSearch
    | FewBlocks
    | ClientOnSameMachine
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

"""What a reader must know before a capacity is used: typed notes, each with its sentence."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from vmtoll.model.message import message


class _Note:
    sentence: ClassVar[str]

    @property
    def text(self) -> str:
        """The sentence with the note's numbers."""
        return message(self.sentence, vars(self))


@dataclass(frozen=True)
class OtherObjectiveSearched(_Note):
    """The search was for another objective than the one asked for."""

    sentence = (
        "the search was for p99 ≤ {p99_ms:g} ms, {availability_pct:.6g}% available: its rates may lie far apart "
        "for another objective"
    )
    p99_ms: float
    availability_pct: float
    code: Literal["other-objective-searched"] = "other-objective-searched"


@dataclass(frozen=True)
class GapInSearch(_Note):
    """The search ended before the rate that holds and the one that misses were as close as it should bring them."""

    sentence = (
        "nothing was measured between {low_rps:,.0f} and {high_rps:,.0f}/s, which are further apart than "
        "{resolution_pct:g}%: add blocks to continue"
    )
    low_rps: float
    high_rps: float
    resolution_pct: float
    code: Literal["gap-in-search"] = "gap-in-search"


@dataclass(frozen=True)
class BlocksMissing(_Note):
    """Fewer blocks than an interval needs."""

    sentence = "{blocks:g} of at least {needed:plural block}"
    blocks: int
    needed: int
    code: Literal["few-blocks"] = "few-blocks"


@dataclass(frozen=True)
class LocalLoad(_Note):
    """The load came from the machine under test."""

    sentence = "the load came from the machine itself, and took CPU from the server"
    code: Literal["client-on-same-machine"] = "client-on-same-machine"


@dataclass(frozen=True)
class SweepEnds(_Note):
    """The highest rate of the sweep meets the objective."""

    sentence = "the sweep ends at {rate_rps:,.0f}/s; higher rates were not measured"
    rate_rps: float
    code: Literal["sweep-ends"] = "sweep-ends"


@dataclass(frozen=True)
class SearchEnds(_Note):
    """The highest rate that the search tried meets the objective."""

    sentence = "the search tried nothing above {rate_rps:,.0f}/s; higher rates were not measured"
    rate_rps: float
    code: Literal["search-ends"] = "search-ends"


@dataclass(frozen=True)
class LowestMisses(_Note):
    """The lowest rate measured misses the objective."""

    sentence = "not even {rate_rps:,.0f}/s meets it, and lower rates were not measured"
    rate_rps: float
    code: Literal["lowest-misses"] = "lowest-misses"


@dataclass(frozen=True)
class NoneShown(_Note):
    """No rate is shown to meet the objective."""

    sentence = "no rate is shown to meet it; more blocks may"
    code: Literal["none-shown"] = "none-shown"


@dataclass(frozen=True)
class TooFewRequests(_Note):
    """No request failed, and so few cannot show the availability."""

    sentence = (
        "none of {requests:,.0f} requests at {rate_rps:,.0f}/s failed, but so few requests cannot show "
        "{availability_pct:.6g}%: measure {more_s:,.0f} s more, or ask for {shown_pct:.6g}%"
    )
    requests: int
    rate_rps: float
    availability_pct: float
    more_s: int  # how much longer to load
    shown_pct: float  # the availability that they do show
    code: Literal["too-few-requests"] = "too-few-requests"


@dataclass(frozen=True)
class MetAboveAMiss(_Note):
    """A higher rate met the objective after a lower one had missed it."""

    sentence = "a higher rate met it after a lower one had missed it; the higher one does not count"
    code: Literal["met-above-a-miss"] = "met-above-a-miss"


@dataclass(frozen=True)
class AboveErlang(_Note):
    """More than the rate at which Erlang C holds the p99."""

    sentence = (
        "more than the {rate_rps:,.0f}/s at which Erlang C holds this p99: arrivals were more even than Poisson, "
        "or not all CPU was counted"
    )
    rate_rps: float
    code: Literal["above-erlang"] = "above-erlang"


@dataclass(frozen=True)
class SharedPowerUnknown(_Note):
    """The power of a host that `guests` share was not measured."""

    sentence = "the power of a host with {guests:g} guests was not measured; --watts gives it"
    guests: int
    code: Literal["shared-power-unknown"] = "shared-power-unknown"


@dataclass(frozen=True)
class EnergyOfClientToo(_Note):
    """The energy is that of the machine that the load generator ran on as well."""

    sentence = "the energy is that of the whole machine, on which the load generator ran as well"
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

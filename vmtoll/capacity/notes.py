"""What a reader must know before a capacity is used: notes, each a code with its sentence, and its numbers."""

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import model_serializer

from vmtoll.model.message import WithText, blanks, message


class NoteCode(WithText):
    """What a note is about. TOO_FEW_REQUESTS: no request failed, and so few cannot show the availability: load for
    `more_s` longer, or ask for `shown_pct`, which they do show.
    """

    OTHER_OBJECTIVE_SEARCHED = (
        "other-objective-searched",
        "the search was for p99 ≤ {p99_ms:g} ms, {availability_pct:.6g}% available: its rates may lie far apart "
        "for another objective",
    )
    GAP_IN_SEARCH = (
        "gap-in-search",
        "nothing was measured between {low_rps:,.0f} and {high_rps:,.0f}/s, which are further apart than "
        "{resolution_pct:g}%: add blocks to continue",
    )
    FEW_BLOCKS = "few-blocks", "{blocks:g} of at least {needed:plural block}"
    CLIENT_ON_SAME_MACHINE = (
        "client-on-same-machine",
        "the load came from the machine itself, and took CPU from the server",
    )
    SWEEP_ENDS = "sweep-ends", "the sweep ends at {rate_rps:,.0f}/s; higher rates were not measured"
    SEARCH_ENDS = "search-ends", "the search tried nothing above {rate_rps:,.0f}/s; higher rates were not measured"
    LOWEST_MISSES = "lowest-misses", "not even {rate_rps:,.0f}/s meets it, and lower rates were not measured"
    NONE_SHOWN = "none-shown", "no rate is shown to meet it; more blocks may"
    TOO_FEW_REQUESTS = (
        "too-few-requests",
        "none of {requests:,.0f} requests at {rate_rps:,.0f}/s failed, but so few requests cannot show "
        "{availability_pct:.6g}%: measure {more_s:,.0f} s more, or ask for {shown_pct:.6g}%",
    )
    MET_ABOVE_A_MISS = (
        "met-above-a-miss",
        "a higher rate met it after a lower one had missed it; the higher one does not count",
    )
    ABOVE_ERLANG = (
        "above-erlang",
        "more than the {rate_rps:,.0f}/s at which Erlang C holds this p99: arrivals were more even than Poisson, "
        "or not all CPU was counted",
    )
    SHARED_POWER_UNKNOWN = (
        "shared-power-unknown",
        "the power of a host with {guests:g} guests was not measured; --watts gives it",
    )
    ENERGY_OF_CLIENT_TOO = (
        "energy-of-client-too",
        "the energy is that of the whole machine, on which the load generator ran as well",
    )


@dataclass(frozen=True)
class CapacityNote:
    """A note. `values`: the numbers of its sentence, by name; `--json` has them with the code.

    Raises ValueError if a number is missing, or is not in the sentence.
    """

    code: NoteCode
    values: Mapping[str, float]

    def __post_init__(self) -> None:
        if self.values.keys() != blanks(self.code.text):
            raise ValueError(f"{self.code}: {sorted(self.values)} for {sorted(blanks(self.code.text))}")

    @property
    def text(self) -> str:
        """The sentence with the note's numbers."""
        return message(self.code.text, self.values)

    @model_serializer
    def _flat(self) -> dict[str, int | float | str]:
        return {**self.values, "code": self.code.value}


def note(code: NoteCode, **values: float) -> CapacityNote:
    """A note with the numbers of its sentence."""
    return CapacityNote(code, values)

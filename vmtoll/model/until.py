"""A run without a fixed number of blocks: when it looks at its results, what a look found, and why the run stopped."""

from collections.abc import Sequence
from enum import StrEnum
from math import ceil, e, log

from pydantic import Field

from vmtoll.model.document import Document
from vmtoll.model.message import WithText
from vmtoll.model.trial import Arm, Scenario

GROWTH = 1.5  # factor by which the number of blocks grows from one look to the next


class Until(Document):
    """Stopping rule: after `blocks` blocks, measure more until each comparison is decided or its interval is narrow."""

    half_width_pct: float = Field(
        gt=0, le=50, description="half the width of a 95% interval that is narrow enough, in percent"
    )
    at_most_min: float = Field(gt=0, description="the run ends after this many minutes of measuring")

    @property
    def at_most_s(self) -> float:
        return 60 * self.at_most_min


class ComparisonState(StrEnum):
    """State of a comparison at a look. NARROW: undecided, but its interval is narrow enough. REFUSED: more blocks
    cannot decide it, because it is client-limited or link-limited, or has nothing to compare.
    """

    DECIDED = "decided"
    NARROW = "narrow"
    REFUSED = "refused"
    OPEN = "open"


class Stop(WithText):
    """Reason why a run stopped. DECIDED: no comparison was left that more blocks would decide; NARROW: the same, and
    some comparisons have a narrow enough interval instead of a decision.
    """

    DECIDED = "decided", "more blocks would decide no other comparison"
    NARROW = (
        "narrow",
        "every comparison that blocks decide is decided or known closely enough[ (±{half_width_pct:g}%)]",
    )
    TIME = "time", "the time limit[ of {at_most_min:g} minutes] was reached"


class LookComparison(Document):
    """A comparison at a look: a metric in a scenario, of `arms` (the baseline first), or a claim of the experiment."""

    standing: ComparisonState
    metric: str
    scenarios: list[Scenario]  # the scenarios that it needs
    arms: list[Arm] = Field(default_factory=list)
    claim: str | None = None
    half_width_pct: float | None = None  # half of its 95% interval, None without one


class Look(Document):
    """A look after this many `blocks` and seconds of measuring."""

    blocks: int
    measured_s: float
    share: float  # the fraction of the 5% of wrong verdicts that it could spend
    # `decided`, `narrow`, `refused`: how many comparisons
    decided: int = 0
    narrow: int = 0
    refused: int = 0
    open: list[LookComparison] = Field(default_factory=list)  # the comparisons left open

    @property
    def comparisons(self) -> int:
        return self.decided + self.narrow + self.refused + len(self.open)


def next_look(blocks: int, first: int, boot_blocks: int = 1) -> int:
    """Return the number of blocks at which the next look is due after `blocks` measured blocks: `first`, then half as
    many again each time. Looks come after whole pairs of blocks, which have both orders of the arms, and after whole
    boots of `boot_blocks` blocks.
    """
    due = first
    while due <= blocks:
        due = 2 * ceil(GROWTH * due / 2)
        due = boot_blocks * ceil(due / boot_blocks)
    return due


def spendable_fraction(time: float) -> float:
    """The fraction of the 5% that may be spent when the fraction `time` of the time is over: ln(1 + (e − 1) t), the
    Pocock-type spending function of Lan and DeMets (1983).
    """
    return log(1 + (e - 1) * min(max(time, 0.0), 1.0))


def look_share(earlier: Sequence[Look], time: float, *, last: bool) -> float:
    """Share of the 5% that a look may spend at the fraction `time` of the time: what `spendable_fraction` adds
    since the earlier looks; at the last look, all that is left.

    The shares of the looks add up to the 5%, so looks may depend on each other in any way and under any correction.
    """
    spent = sum(look.share for look in earlier)
    return max(0.0, (1.0 if last else spendable_fraction(time)) - spent)

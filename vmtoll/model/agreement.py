"""Whether a second run reproduces the first: codes and numbers for each scenario and metric."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import TypeAdapter

from vmtoll.model.message import WithText
from vmtoll.model.trial import Accelerator, Arm, Scenario
from vmtoll.model.verdict import Ratio, Verdict


class Status(WithText):
    """Agreement of a second run's result with the first. INCONCLUSIVE: the change is too imprecise; more blocks may
    help. IDENTICAL: both are copies of one run, which reproduces nothing.
    """

    REPRODUCED = "reproduced"
    IDENTICAL = "identical"
    NOT_REPRODUCED = "not-reproduced"
    INCONCLUSIVE = "inconclusive"
    NOT_COMPARABLE = "not-comparable"


class AgreementReason(WithText):
    """Reason for a result's status."""

    SAME = "same", "the sizes agree"
    BOUND_HOLDS = (
        "bound-holds",
        "the size keeps the published bound",
    )  # the first run gave a bound, and the second run's size respects it
    SIZE_CHANGED = "size-changed"
    BOUND_BROKEN = (
        "bound-broken",
        "the size contradicts the bound",
    )  # the first run gave a bound, and the second run's size lies on the wrong side of it
    CLAIM_CHANGED = "claim-changed", "the direction changed"
    IMPRECISE = "imprecise"  # the interval of the change reaches across the tolerance
    NO_INTERVAL = "no-interval", "a run of a single block has no interval"
    CLAIMS_NOTHING = (
        "claims-nothing",
        "the first run has no result to reproduce",
    )  # the first run's verdict is undecided or not judged
    NO_RESULT = "no-result", "the second run has no result"
    FACTS_DIFFER = "facts-differ", "facts differ"
    ONLY_IN_THE_FIRST = "only-in-the-first", "only in the first run"
    ONLY_IN_THE_SECOND = "only-in-the-second", "only in the second run"
    NO_FIGURE = "no-figure", "the first run has no value to reproduce"
    METRICS = "metrics"  # the scenario's metrics decide; each has its own reason


@dataclass(frozen=True)
class Agreement:
    """`change`: ratio again ÷ ratio published, with its interval, None without figures. `tolerance`: the largest
    tolerated change, a fraction. `blocks_needed`: how many more blocks the second run needs to show with 80% power that
    nothing changed; None where 1,000 blocks would not suffice, and unless `why` is IMPRECISE.
    """

    status: Status
    why: AgreementReason
    change: Ratio | None = None
    tolerance: float | None = None
    blocks_needed: int | None = None


@dataclass(frozen=True)
class RunDifference:
    """A fact that differs between the runs, with both values."""

    fact: str
    published: Any
    again: Any


@dataclass(frozen=True)
class MetricResult:
    """One metric of a scenario: both verdicts, and whether they agree."""

    agreement: Agreement
    published: Verdict
    again: Verdict


@dataclass(frozen=True, kw_only=True)
class ScenarioResult:
    """One scenario on one arm against its baseline."""

    scenario: Scenario
    baseline: Arm
    arm: Arm
    accelerator: Accelerator
    status: Status
    why: AgreementReason
    facts: tuple[RunDifference, ...] = ()  # differences that rule out a comparison
    other_differences: tuple[RunDifference, ...] = ()  # differences that rule out comparing absolute figures
    metrics: Mapping[str, MetricResult] = field(default_factory=dict)
    # environment → figure → median again ÷ published, None where absolute figures may not be compared
    absolute: Mapping[str, Mapping[str, float]] | None = None


@dataclass(frozen=True)
class RunName:
    """Identity of a compared run."""

    experiment: str
    run_id: str
    commit: str | None
    started_at: str
    lab: str
    link: str
    emulated: bool


@dataclass(frozen=True)
class RunComparison:
    """Two runs; the first is the one to be reproduced."""

    published: RunName
    again: RunName
    counts: Mapping[Status, int]  # scenarios by status
    scenarios: tuple[ScenarioResult, ...]
    # standard deviation of the log ratio between runs of one machine, as the user gave it; 0 where it is not known
    between_run_sd: float = 0.0


_COMPARISON = TypeAdapter(RunComparison)


def to_json(comparison: RunComparison) -> bytes:
    """The comparison as JSON."""
    return _COMPARISON.dump_json(comparison, indent=1)

"""Agreement of a second run's results with the first's: codes and numbers of each scenario and metric."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from pydantic import TypeAdapter

from vmtoll.model.trial import Accelerator, Arm, Scenario
from vmtoll.model.verdict import Estimate, Verdict


class Status(StrEnum):
    """Agreement of a second run's result with the first. INCONCLUSIVE: it is too imprecise to say; more blocks may.
    IDENTICAL: both are copies of one run, which reproduces nothing.
    """

    REPRODUCED = "reproduced"
    IDENTICAL = "identical"
    NOT_REPRODUCED = "not-reproduced"
    INCONCLUSIVE = "inconclusive"
    NOT_COMPARABLE = "not-comparable"


class Why(StrEnum):
    """Reason for a result's status."""

    SAME = "same"  # the change of the size lies within the tolerance
    BOUND_HOLDS = "bound-holds"  # the first run gave a bound, and the second one's size keeps it
    SIZE_CHANGED = "size-changed"
    BOUND_BROKEN = "bound-broken"  # the second run's size lies beyond the first one's bound, or the reverse
    CLAIM_CHANGED = "claim-changed"  # faster in one run, slower in the other
    IMPRECISE = "imprecise"  # the interval of the change reaches across the tolerance
    NO_INTERVAL = "no-interval"  # a run of a single block has none
    CLAIMS_NOTHING = "claims-nothing"  # the first run
    NO_RESULT = "no-result"  # of the second run
    FACTS_DIFFER = "facts-differ"
    ONLY_IN_THE_FIRST = "only-in-the-first"
    ONLY_IN_THE_SECOND = "only-in-the-second"
    NO_FIGURE = "no-figure"  # the first run has none to reproduce
    METRICS = "metrics"  # as its metrics say


@dataclass(frozen=True)
class Agreement:
    """`change`: ratio again ÷ ratio published, with its interval, None without figures. `tolerance`: the largest
    change that is tolerated, as a fraction. `blocks_needed`: how many more blocks the second run takes to show with
    80% power that nothing changed; None where no number is enough, and where it is not asked.
    """

    status: Status
    why: Why
    change: Estimate | None = None
    tolerance: float | None = None
    blocks_needed: int | None = None


@dataclass(frozen=True)
class Difference:
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
    """One scenario on one arm against its baseline. `facts`: those that differ and forbid a comparison;
    `other_differences`: those that forbid to compare absolute figures; `absolute`: environment → figure → median again
    ÷ published, None where they may not be compared.
    """

    scenario: Scenario
    baseline: Arm
    arm: Arm
    accelerator: Accelerator
    status: Status
    why: Why
    facts: tuple[Difference, ...] = ()
    other_differences: tuple[Difference, ...] = ()
    metrics: Mapping[str, MetricResult] = field(default_factory=dict)
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
    """Two runs; the first is the one to be reproduced. `counts`: scenarios by status; `between_run_sd`: of the log
    ratio between runs of one machine, as it was given; 0 where it is not known.
    """

    published: RunName
    again: RunName
    counts: Mapping[Status, int]
    scenarios: tuple[ScenarioResult, ...]
    between_run_sd: float = 0.0


_COMPARISON = TypeAdapter(RunComparison)


def to_json(comparison: RunComparison) -> bytes:
    """The comparison for programs."""
    return _COMPARISON.dump_json(comparison, indent=1)

"""Result of a comparison: codes with their words, and numbers. vmtoll.report.words makes sentences of them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, PlainSerializer, PlainValidator, WrapSerializer

from vmtoll.model.finding import Code, Role
from vmtoll.model.first_answer import Way
from vmtoll.model.hardware import Hardware
from vmtoll.model.limiter import Limiter
from vmtoll.model.message import WithText
from vmtoll.model.metric import METRICS, Metric
from vmtoll.model.note import Note
from vmtoll.model.table import Described, column, columns, nested
from vmtoll.model.trial import Accelerator, Arm, Scenario

# In JSON a metric is its name.
NamedMetric = Annotated[
    Metric,
    PlainValidator(lambda value: value if isinstance(value, Metric) else METRICS[value]),
    PlainSerializer(lambda metric: metric.name, return_type=str),
]


class Kind(WithText):
    """Result of the compared side against its baseline. SLOWER: fewer requests per second, or a higher time or cost.
    NOT_JUDGED: there is nothing to compare; the verdict names the reason.
    """

    FASTER = "faster"
    SLOWER = "slower"
    EQUIVALENT = "equivalent", "equal"
    UNDECIDED = "undecided"
    NOT_JUDGED = "not-judged"


DIFFERENT = frozenset({Kind.FASTER, Kind.SLOWER})
DECIDED = DIFFERENT | {Kind.EQUIVALENT}


class VerdictReason(WithText):
    """Reason why a verdict is undecided, or why nothing is judged.

    Undecided. NO_LOOK_YET: a run with `until` has not looked yet. LIMIT: in every block the client or the link, not the
    server, set a figure. FINDINGS: the figures as measured would decide, but not within what the findings allow.

    Not judged. NO_FIGURE: no block has a figure on both sides. NOT_COMPARABLE: the same, because the two sides are not
    the same thing. NOT_MEASURED: the tools of both sides got answers but gave no such figure in any trial.
    HOST_NOT_SEEN: the figure is that of a guest's host, which the inventory does not name. The others: the figure says
    nothing about a server under this kind of load.
    """

    NO_LOOK_YET = "no-look-yet", "the run has not had its first look yet"
    FEW_BLOCKS = "few-blocks"
    LIMIT = "limit", "the client or the link, not the server, set the value"
    FINDINGS = "findings", "only findings and lost trials leave it open"
    NOISE = "noise", "these blocks differ too much from each other"
    NO_FIGURE = "no-figure"
    NOT_COMPARABLE = "not-comparable"
    NOT_MEASURED = "not-measured"
    HOST_NOT_SEEN = "host-not-seen", "not seen: the host belongs to others"
    CLOSED_LOOP_HAS_NO_TAIL = "closed-loop-has-no-tail", "a closed loop hides stalls, so it has no tail"
    LOAD_SETS_THE_RATE = "load-sets-the-rate", "the load sets the rate"
    OPEN_LOOP_SEE_TAIL = "open-loop-see-tail", "an open loop is judged by its tail"


NOT_APPLICABLE = frozenset({
    VerdictReason.NOT_MEASURED, VerdictReason.HOST_NOT_SEEN, VerdictReason.CLOSED_LOOP_HAS_NO_TAIL,
    VerdictReason.LOAD_SETS_THE_RATE, VerdictReason.OPEN_LOOP_SEE_TAIL,
})  # fmt: skip


class Cause(WithText):
    """What widens an interval besides the findings of its trials. LOST: trials without a figure, each counted as twice
    as bad as the worst of its side. SECOND_ATTEMPTS: failed attempts before a successful one, counted like lost trials.
    UNEQUAL_REQUESTS: percentiles of unequal numbers of requests, without histograms. CONTROL: the A/A control differs
    from itself.
    """

    LOST = "lost-trials", "lost trial"
    SECOND_ATTEMPTS = "second-attempts", "second attempt"
    UNEQUAL_REQUESTS = "unequal-requests", "unequal numbers of requests"
    CONTROL = "control-differs", "an A/A control that differs from itself"


COUNTED = frozenset({Cause.LOST, Cause.SECOND_ATTEMPTS})  # causes that are things to count


@dataclass(frozen=True)
class Doubt:
    """One cause of doubt and how much it can explain."""

    cause: Annotated[Code | Cause, Field(union_mode="left_to_right")]
    # `baseline`, `compared`: trials of each side that have it
    baseline: int
    compared: int
    # the factor, 1 or more, by which it alone may have changed the mean ratio in the direction that counts against the
    # verdict
    size: float
    value: float | None = None  # the gate's largest figure, in its unit


@dataclass(frozen=True)
class Estimate:
    """A value with its interval; no interval with too few blocks."""

    value: float
    low: float | None = None
    high: float | None = None

    @property
    def ends(self) -> tuple[float, float] | None:
        """Both ends of the interval; None without one."""
        return None if self.low is None or self.high is None else (self.low, self.high)


def _renamed(content: Any, old: str, new: str) -> Any:
    return {new if key == old else key: value for key, value in content.items()} if type(content) is dict else content


# A ratio, compared ÷ baseline: in JSON its value is named `ratio`.
Ratio = Annotated[
    Estimate,
    BeforeValidator(lambda content: _renamed(content, "ratio", "value")),
    WrapSerializer(lambda ratio, serialized: _renamed(serialized(ratio), "value", "ratio")),
]


@dataclass(frozen=True)
class Share:
    """Planned requests of one side that were answered with success, over all its trials; Wilson's 95% interval."""

    successful: int
    requests: int
    share: float = column("share of the requests {} that succeeded, all blocks together", name="availability", most=1)
    low: float = column("lower end of its 95% Wilson interval", name="availability_low", most=1)
    high: float = column("upper end of its 95% Wilson interval", name="availability_high", most=1)


@dataclass(frozen=True)
class TrialShare:
    """Trials of one side: all, those that gave figures at the first attempt, and those that did so in the end."""

    trials: int
    at_first: int
    valid: int
    # `low`, `high`: the exact 95% interval of the share at the first attempt (Clopper and Pearson)
    low: float
    high: float


@dataclass(frozen=True)
class Reliability:
    """The trials of both sides."""

    baseline: TrialShare
    compared: TrialShare
    p: float  # of McNemar's test that first attempts fail equally often on both


@dataclass(frozen=True)
class PercentileLevel:
    """A side's percentile in µs: the geometric mean over blocks with its 95% interval."""

    value_us: float
    low: float | None = None
    high: float | None = None
    requests: int = 0  # of the trial with the fewest
    within: bool = False  # the interval comes from order statistics within trials, which is wider than that over blocks


@dataclass(frozen=True)
class Tests:
    """p-values, before and after Holm's correction among `family` comparisons; None where no p-value decides."""

    family: int = column("comparisons in that family", default=0)
    difference: float | None = column("two-sided p of no difference", name="p", most=1, before="family", default=None)
    difference_holm: float | None = column(
        "the same after Holm's correction within the family of the report", name="p_holm", most=1, before="family",
        default=None,
    )  # fmt: skip
    equivalence: float | None = column(
        "p of a difference beyond the margin", name="p_equivalence", most=1, before="family", default=None
    )
    equivalence_holm: float | None = column(
        "the same after Holm's correction", name="p_equivalence_holm", most=1, before="family", default=None
    )
    weight: float | None = column(
        "weight of this comparison in Holm's correction; all of a family add up to 1", most=1, before="level",
        default=None,
    )  # fmt: skip
    share: float | None = column(
        "share of the 5% that a comparison may spend at this look: 1 where the number of blocks was fixed, 0 before "
        "the first look", name="look", most=1, before="level", default=None,
    )  # fmt: skip


@dataclass(frozen=True)
class SideCounts:
    """The trials of one side, with those of its A/A control, counted by outcome."""

    trials: int = column("trials {}, those of its A/A control among them", default=0)
    used: int = column("trials {} that have a value", default=0)
    suspect: int = column("suspect trials {} among those used", default=0)
    lost: int = column("trials {} without a value, because something of this side failed", default=0)
    second_attempts: int = column("trials {} that have a value, after an attempt that failed", default=0)
    incomparable: int = column(
        "trials {} left out, because a finding says that the sides are not the same thing", default=0
    )
    limited: int = column("trials {} that the client or the link limited", default=0)
    findings: Mapping[Code, int] = field(default_factory=dict)  # code → used trials with it
    excluded_by: Mapping[Code, int] = field(default_factory=dict)  # code → trials without a figure that have it
    requests: tuple[int, ...] = ()  # of each used trial
    level: float | None = column(
        "mean {} over the blocks in which both sides have a value, in the metric's unit", "of the metric", name="mean",
        before="trials", default=None,
    )  # fmt: skip


@dataclass(frozen=True)
class BlockEffect:
    """One block of a comparison as ratios, compared ÷ baseline."""

    block: int = column("block, from 1", least=1)
    boot: int = column(
        "boot of the machines under test, from 1; where a comparison has two or more, the mean of a boot counts as one "
        "block", least=1,
    )  # fmt: skip
    low: float | None = column(
        "ratio as low as findings and lost trials allow; empty where the block is not in that series", default=None
    )
    mid: float | None = column("ratio as measured; empty where a side has no value", default=None)
    high: float | None = column("ratio as high as findings and lost trials allow", default=None)
    trials: int = column("trials of both sides in the block, with a value or lost", name="n", default=0)
    first_low: float | None = column(
        "the same as low by the first trial of each side alone, where a side has two and the blocks are skewed: with "
        "one boot, the interval of a verdict other than equivalent is the hull of both", before="n", default=None,
    )  # fmt: skip
    first_high: float | None = column(
        "the same as high by the first trial of each side alone", before="n", default=None
    )


RHOS = tuple(tenth / 10 for tenth in range(10))  # the autocorrelations that a page weighs
WEIGHTS = tuple(f"weight_rho_{tenth}0" for tenth in range(10))


# The weights of the autocorrelations of successive blocks in an interval, empty without one.
RHO_WEIGHTS = [
    Described(
        doc=f"weight of an autocorrelation of {rho:g} in this interval", name=name, kind="number", most=1,
        value=lambda weights, index=index: weights[index] if weights else None,  # type: ignore[misc]
    )
    for index, (name, rho) in enumerate(zip(WEIGHTS, RHOS, strict=True))
]  # fmt: skip


def _doubts_text(doubts: tuple[Doubt, ...]) -> str:
    return " ".join(f"{doubt.cause}:{doubt.size!r}:{doubt.baseline}:{doubt.compared}" for doubt in doubts)


def doubts_of(cell: str | None) -> list[Doubt]:
    """Parse a cell of the column `doubts`; the gates' figures are not in it."""
    return [
        Doubt(Cause(cause) if cause in set(Cause) else Code(cause), int(baseline), int(compared), float(size))
        for cause, size, baseline, compared in (doubt.split(":") for doubt in (cell or "").split())
    ]


@dataclass(frozen=True, kw_only=True)
class Judged:
    """The judgement of one figure of two arms. Ratios are compared ÷ baseline.

    `estimate` has no interval with too few blocks, or if `by_every_block`: then every block shows the difference.
    """

    kind: Kind = column(
        "the compared side against its baseline: slower means fewer requests per second, or a higher time or cost"
    )
    because: VerdictReason | None = column("why a verdict is undecided, or nothing is judged", default=None)
    by_every_block: bool = column(
        "decided because every block shows it; there is no interval then, but a range of blocks", default=False
    )
    also_different: bool = column("equivalent within the margin, and different for sure", default=False)
    estimate: Ratio | None = columns(
        Described(
            doc="mean ratio as measured: exp of the mean of ln(mid), weighed by autocorrelation", name="ratio",
            source="estimate.value",
        ),
        Described(doc="lower end of the interval that decided", name="low", source="estimate.low"),
        Described(doc="its upper end", name="high", source="estimate.high"),
        default=None,
    )  # fmt: skip
    confidence: float | None = column(
        "probability at which the interval was made, 1 − confidence: 0.05 times weight and look, over the weight that "
        "Holm's correction left", name="level", kind="number", value=lambda confidence: 1 - confidence, most=1,
        default=None,
    )  # fmt: skip
    blocks_range: Ratio | None = columns(
        Described(
            doc="least ratio of any block; the end nearer to 1 of a decided verdict as far as findings allow",
            name="range_low", source="blocks_range.low",
        ),
        Described(
            doc="largest ratio of any block, where every block shows it", name="range_high", source="blocks_range.high"
        ),
        default=None,
    )  # fmt: skip
    open_low: bool = column("a natural limit made the lower end; the true one may lie below", default=False)
    open_high: bool = column("a natural limit made the upper end; the true one may lie above", default=False)
    open_in_every_block: bool = False  # in each, the client or the link left an end of a side open
    mean_low: float | None = column("mean ratio as low as findings and lost trials allow", default=None)
    mean_high: float | None = column("mean ratio as high as they allow", default=None)
    widened: float = column(
        "the part of either that is due to an A/A control that differs from itself, a fraction", default=0.0
    )
    half_width: float | None = column("half of the 95% interval by sampling alone, a fraction", default=None)
    standard_error: float | None = column(
        "standard error of ln(ratio) by sampling alone, the geometric mean over the autocorrelations", default=None
    )
    blocks: int = column("blocks in which both sides have a value: the sample size", default=0)
    boots: int = column(
        "boots of the machines under test that the blocks were measured in; the sample size, where they are two or "
        "more", least=1, default=1,
    )  # fmt: skip
    blocks_needed: int | None = column(
        "of an undecided verdict: how many more blocks show a difference as large as the margin with 80% power. Empty "
        "where no number helps", default=None,
    )  # fmt: skip
    detectable: float | None = column(
        "of an undecided verdict: the smallest difference that these blocks show with 80% power, a fraction",
        default=None,
    )  # fmt: skip
    margin: float = column("margin of practical equivalence, a fraction; 0 where none applies", default=0.02)
    noise_floor: float | None = column(
        "largest difference of two A/A trials of a block, a fraction; empty without a control", default=None
    )
    correlation: float = column("expected autocorrelation of successive blocks of the report", most=1, default=0.0)
    rho_weights: tuple[float, ...] = columns(*RHO_WEIGHTS, default=())
    tests: Tests = nested(default=Tests())
    doubts: tuple[Doubt, ...] = column(
        "what widens the end that counts against the verdict, the largest first, separated by spaces: code:factor that "
        "it can explain:trials of the baseline:trials of the compared side", value=_doubts_text, before="notes",
        default=(),
    )  # fmt: skip
    baseline: SideCounts = nested(prefix="baseline_", whose="of the baseline", default=SideCounts())
    compared: SideCounts = nested(prefix="compared_", whose="of the compared side", default=SideCounts())
    effects: tuple[BlockEffect, ...] = ()

    @property
    def applies(self) -> bool:
        """Return whether the figure means something under this load, and the tool measures it."""
        return self.because not in NOT_APPLICABLE

    @property
    def is_decided(self) -> bool:
        return self.kind in DECIDED

    @property
    def is_at_least(self) -> bool:
        """Return whether the size is only a lower bound: the arms differ, and the end of the interval or range that is
        farther from 1 is open.
        """
        ratio = self.estimate.value if self.estimate else 1.0
        return self.kind in DIFFERENT and (self.open_high if ratio > 1 else self.open_low)


_LIMITER = "what kept most trials {} from answering more; nothing: the offered rate was reached"


@dataclass(frozen=True, kw_only=True)
class Verdict(Judged):
    """One metric of one comparison. `role`, `tool`: the measurement whose figures were compared."""

    metric: NamedMetric
    role: Role | None = None
    tool: str | None = None
    baseline_available: Share | None = nested(
        prefix="baseline_", whose="of the baseline", before="compared_mean", default=None
    )
    compared_available: Share | None = nested(prefix="compared_", whose="of the compared side", default=None)
    baseline_percentile: PercentileLevel | None = None
    compared_percentile: PercentileLevel | None = None
    baseline_limiter: Limiter | None = column(
        _LIMITER.format("of the baseline"), before="baseline_availability", default=None
    )
    compared_limiter: Limiter | None = column(
        _LIMITER.format("of the compared side"), before="compared_availability", default=None
    )
    notes: tuple[Note, ...] = column(
        "codes of what to know with the verdict, separated by spaces",
        value=lambda notes: " ".join(dict.fromkeys(note.code for note in notes)), empty="", default=(),
    )  # fmt: skip

    @property
    def limited(self) -> int:
        """Client-limited or link-limited trials of either side."""
        return self.baseline.limited + self.compared.limited


@dataclass(frozen=True, kw_only=True)
class ControlEffects:
    """One A/A control in one metric: `arm` against the first replicate of its environment."""

    scenario: Scenario
    tool: str  # the scenario's
    arm: Arm
    accelerator: Accelerator
    hardware: Hardware
    metric: NamedMetric
    role: Role
    measured_by: str | None  # the tool that measured the figures
    effects: tuple[BlockEffect, ...]


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One scenario on one arm against the baseline: a verdict for each metric, by the metric's name."""

    scenario: Scenario
    tool: str
    baseline: Arm
    arm: Arm
    accelerator: Accelerator
    hardware: Hardware = Hardware.UNKNOWN
    verdicts: Mapping[str, Verdict]
    reliability: Reliability | None = None

    @property
    def arms(self) -> list[Arm]:
        """The baseline and the arm that is compared with it."""
        return [self.baseline, self.arm]


class StepKind(StrEnum):
    """CUMULATIVE: from one profile to the next, better tuned one. SINGLE: from the base to a profile that differs in
    one thing.
    """

    CUMULATIVE = "cumulative"
    SINGLE = "single"


@dataclass(frozen=True, kw_only=True)
class TuningStep(Judged):
    """One step in one scenario and metric. FASTER: the later guest is better. No margin of equivalence applies."""

    step: StepKind
    before: Arm
    after: Arm
    over: tuple[str, ...] = ()  # profiles between `before` and `after` that this run lacks
    # `accelerator`, `hardware`: of `after`
    accelerator: Accelerator
    hardware: Hardware
    # `start`, `end`: levels of the two in the blocks that both have
    start: float | None = None
    end: float | None = None
    # in the metric's unit, above zero when the later guest is better, with the interval that decided
    gain: Estimate | None = None


@dataclass(frozen=True, kw_only=True)
class StepMetric:
    """One metric in one scenario."""

    metric: NamedMetric
    role: Role
    tool: str
    levels: Mapping[str, float]  # environment → mean over its blocks, in the metric's unit
    steps: tuple[TuningStep, ...]


@dataclass(frozen=True, kw_only=True)
class HostView:
    """The KVM host's view of a guest: medians over trials, per request."""

    arm: Arm
    exits: float | None = None
    vcpu_us: float | None = None
    vcpu_wait_us: float | None = None
    qemu_us: float | None = None
    vhost_us: float | None = None
    host_irqs: float | None = None
    guest_irqs: float | None = None
    steal_pct: float | None = None
    exit_kinds: Mapping[str, float] = field(default_factory=dict)  # KVM's name → per request


@dataclass(frozen=True, kw_only=True)
class StepScenario:
    """The steps in one scenario, by the metric's name."""

    scenario: Scenario
    tool: str  # the scenario's
    metrics: Mapping[str, StepMetric]
    host: tuple[HostView, ...] = ()


@dataclass(frozen=True, kw_only=True)
class TuningResult:
    """`profiles`: the measured ones, in the experiment's order; `skipped`: profile → why, empty if the run gives no
    reason.
    """

    base: str | None = None
    profiles: tuple[str, ...]
    skipped: Mapping[str, str]
    scenarios: tuple[StepScenario, ...]


@dataclass(frozen=True, kw_only=True)
class OperationFigure:
    """A figure in the trials with an operation, in those without it, and the difference of the two within a block."""

    with_it: Estimate | None
    without: Estimate | None
    more: Estimate | None


@dataclass(frozen=True, kw_only=True)
class OperationEffect:
    """What clients noticed of an operation."""

    scenario: Scenario
    arm: Arm  # the environment with it,
    without: Arm  # the one that it is made of
    blocks: int
    begin_s: Estimate | None  # from the load's first intended send
    length_s: Estimate | None  # of the operation
    # `blackout_ms`, `brownout_s`, `lost` and `late` (requests), as vmtoll.trial.disruption defines them
    figures: Mapping[str, OperationFigure]
    # what libvirt says of a live migration, by the fields of MigrationFigures
    migration: Mapping[str, Estimate] | None = None
    open_ended: int = 0  # trials whose brownout had not ended when the load did


@dataclass(frozen=True, kw_only=True)
class WaitFigure:
    """A unit that the server waited for: how long that took, in the starts in which it did."""

    unit: str
    length_s: Estimate


@dataclass(frozen=True, kw_only=True)
class StartFigures:
    """The starts of one environment by one way: means over blocks, in s from the start."""

    environment: str
    accelerator: Accelerator
    server: str
    way: Way
    at_once: int
    blocks: int
    failed: int  # starts without figures
    first_s: Estimate | None = None  # until the first of the guests answered,
    all_s: Estimate | None = None  # until all did
    network_s: Estimate | None = None  # until the last one of these answered on its network
    parts: Mapping[str, Estimate]  # those of that last guest, which together are `all_s`
    waits: tuple[WaitFigure, ...]  # what its server waited for, the longest first
    against: str
    # `all_s` above that of `against` in the same block, None for that environment itself
    more_s: Estimate | None = None
    error_s: float  # of the comparison of clocks, at most
    gap_s: float  # the longest time between two requests


class Region(WithText):
    """Position of an interval: above a limit, below it (for a ratio: below its inverse), within both, or across one."""

    ABOVE = "above", "the ratio {ratio} lies above {limit}"
    BELOW = "below", "the ratio {ratio} lies below {limit}"
    WITHIN = "within", "the ratio {ratio} lies within {limit}: equal"
    ACROSS = "across", "the interval of the ratio {ratio} reaches across {limit}"

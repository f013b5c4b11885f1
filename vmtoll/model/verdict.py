"""Result of a comparison: codes and numbers. vmtoll.report.words turns them into sentences."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, PlainSerializer, PlainValidator, TypeAdapter, WrapSerializer

from vmtoll.model.experiment import ClaimSide
from vmtoll.model.finding import Code, Role, Validity
from vmtoll.model.first_answer import Way
from vmtoll.model.hardware import Hardware
from vmtoll.model.limiter import Limiter
from vmtoll.model.metric import METRICS, Metric
from vmtoll.model.note import Note
from vmtoll.model.run import OneBoot
from vmtoll.model.trial import Accelerator, Arm, Scenario

# Significant digits of a number in analysis.json: enough to recompute each log ratio to 1e-11. Further digits differ
# from CPU to CPU.
DIGITS = 12

# In JSON a metric is its name.
NamedMetric = Annotated[
    Metric,
    PlainValidator(lambda value: value if isinstance(value, Metric) else METRICS[value]),
    PlainSerializer(lambda metric: metric.name, return_type=str),
]


class Kind(StrEnum):
    """Result of the compared side against its baseline. SLOWER: fewer requests per second, or a higher time or cost.
    NOT_JUDGED: there is nothing to compare; the verdict names the reason.
    """

    FASTER = "faster"
    SLOWER = "slower"
    EQUIVALENT = "equivalent"
    UNDECIDED = "undecided"
    NOT_JUDGED = "not-judged"


DIFFERENT = frozenset({Kind.FASTER, Kind.SLOWER})
DECIDED = DIFFERENT | {Kind.EQUIVALENT}


class VerdictReason(StrEnum):
    """Reason why a verdict is undecided, or why nothing is judged.

    Undecided. NO_LOOK_YET: a run with `until` has not looked yet. LIMIT: in every block the client or the link, not the
    server, set a figure. FINDINGS: the figures as measured would decide, but not within what the findings allow.

    Not judged. NO_FIGURE: no block has a figure on both sides. NOT_COMPARABLE: the same, because the two sides are not
    the same thing. NOT_MEASURED: the tools of both sides got answers but gave no such figure in any trial.
    HOST_NOT_SEEN: the figure is that of a guest's host, which the inventory does not name. The others: the figure says
    nothing about a server under this kind of load.
    """

    NO_LOOK_YET = "no-look-yet"
    FEW_BLOCKS = "few-blocks"
    LIMIT = "limit"
    FINDINGS = "findings"
    NOISE = "noise"
    NO_FIGURE = "no-figure"
    NOT_COMPARABLE = "not-comparable"
    NOT_MEASURED = "not-measured"
    HOST_NOT_SEEN = "host-not-seen"
    CLOSED_LOOP_HAS_NO_TAIL = "closed-loop-has-no-tail"
    LOAD_SETS_THE_RATE = "load-sets-the-rate"
    OPEN_LOOP_SEE_TAIL = "open-loop-see-tail"


NOT_APPLICABLE = frozenset({
    VerdictReason.NOT_MEASURED, VerdictReason.HOST_NOT_SEEN, VerdictReason.CLOSED_LOOP_HAS_NO_TAIL,
    VerdictReason.LOAD_SETS_THE_RATE, VerdictReason.OPEN_LOOP_SEE_TAIL,
})  # fmt: skip


class Cause(StrEnum):
    """What widens an interval besides the findings of its trials. LOST: trials without a figure, each counted as twice
    as bad as the worst of its side. SECOND_ATTEMPTS: failed attempts before a successful one, counted like lost trials.
    UNEQUAL_REQUESTS: percentiles of unequal numbers of requests, without histograms. CONTROL: the A/A control differs
    from itself.
    """

    LOST = "lost-trials"
    SECOND_ATTEMPTS = "second-attempts"
    UNEQUAL_REQUESTS = "unequal-requests"
    CONTROL = "control-differs"


@dataclass(frozen=True)
class Doubt:
    """One cause of doubt and how much it can explain. `baseline`, `compared`: trials of each side that have it; `size`:
    the factor, 1 or more, by which it alone may have changed the mean ratio in the direction that counts against the
    verdict; `value`: the gate's largest figure, in its unit.
    """

    cause: Annotated[Code | Cause, Field(union_mode="left_to_right")]
    baseline: int
    compared: int
    size: float
    value: float | None = None


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
    share: float
    low: float
    high: float


@dataclass(frozen=True)
class TrialShare:
    """Trials of one side: all, those that gave figures at the first attempt, and those that did so in the end. `low`,
    `high`: the exact 95% interval of the share at the first attempt (Clopper and Pearson).
    """

    trials: int
    at_first: int
    valid: int
    low: float
    high: float


@dataclass(frozen=True)
class Reliability:
    """The trials of both sides; `p`: of McNemar's test that first attempts fail equally often on both."""

    baseline: TrialShare
    compared: TrialShare
    p: float


@dataclass(frozen=True)
class PercentileLevel:
    """A side's percentile in µs: the geometric mean over blocks with its 95% interval; `requests`: of the trial with
    the fewest. `within`: the interval comes from order statistics within trials, which is wider than that over blocks.
    """

    value_us: float
    low: float | None = None
    high: float | None = None
    requests: int = 0
    within: bool = False


@dataclass(frozen=True)
class Tests:
    """p-values, before and after Holm's correction among `family` comparisons; None where no p-value decides.
    `weight`: of this comparison in Holm's correction; `share`: of the 5%, as much as its look may spend.
    """

    family: int = 0
    difference: float | None = None
    difference_holm: float | None = None
    equivalence: float | None = None
    equivalence_holm: float | None = None
    weight: float | None = None
    share: float | None = None


@dataclass(frozen=True)
class SideCounts:
    """The trials of one side, with those of its A/A control, counted by outcome. `used`: with a figure; `suspect`:
    suspect trials among these; `lost`: without a figure, because something of this side failed; `second_attempts`: used
    after a failed attempt; `incomparable`: with a finding that the two sides are not the same thing; `limited`: used,
    but client-limited or link-limited; `findings`: code → used trials with it; `excluded_by`: code → trials without a
    figure that have it; `requests`: of each used trial; `level`: the mean over the blocks in which both sides have a
    figure, in the metric's unit.
    """

    trials: int = 0
    used: int = 0
    suspect: int = 0
    lost: int = 0
    second_attempts: int = 0
    incomparable: int = 0
    limited: int = 0
    findings: Mapping[Code, int] = field(default_factory=dict)
    excluded_by: Mapping[Code, int] = field(default_factory=dict)
    requests: tuple[int, ...] = ()
    level: float | None = None


@dataclass(frozen=True)
class BlockEffect:
    """One block of a comparison as ratios, compared ÷ baseline: `low` and `high` as far as findings and lost trials
    allow, `mid` as measured; None where the block is not in that series. `trials`: of both sides, with a figure or
    lost.

    `first_low`, `first_high`: from the first trial of each side alone, where a side has two and the blocks are skewed.
    With one boot, the interval of a verdict other than EQUIVALENT is then the hull of both.
    """

    block: int
    boot: int
    low: float | None = None
    mid: float | None = None
    high: float | None = None
    trials: int = 0
    first_low: float | None = None
    first_high: float | None = None


@dataclass(frozen=True, kw_only=True)
class Judged:
    """The judgement of one figure of two arms. Ratios are compared ÷ baseline.

    `estimate`: the ratio as measured, with the interval that decided, at the level `confidence`. It has no interval
    with too few blocks, or if `by_every_block`: then every block shows the difference. `blocks_range`: the smallest and
    the largest ratio of a block. `open_low`, `open_high`: that end rests on a natural limit or a lost trial; the true
    end may lie beyond. `also_different`: equivalent, and yet surely different. `half_width`: half of the 95% interval
    by sampling alone, a fraction. `open_in_every_block`: in each of these blocks the client or the link left an end of
    a side open.

    `blocks`: blocks in which both sides have a figure, in `boots` boots; `blocks_needed`: how many more blocks would
    show a difference as large as the margin with 80% power, None where no number helps or the verdict is decided;
    `detectable`: the smallest difference that these blocks show with 80% power, a fraction; `doubts`: the largest
    first; `correlation`: the expected autocorrelation of successive blocks.

    `standard_error`: of the mean log ratio by sampling alone, the geometric mean over the autocorrelations.
    `mean_low`, `mean_high`: the estimate as low and as high as findings and lost trials allow; `widened`: the part of
    either that the A/A control adds, a fraction; `rho_weights`: weights of the autocorrelations 0, 0.1, … 0.9 in this
    interval.
    """

    kind: Kind
    because: VerdictReason | None = None
    by_every_block: bool = False
    also_different: bool = False
    estimate: Ratio | None = None
    confidence: float | None = None
    blocks_range: Ratio | None = None
    open_low: bool = False
    open_high: bool = False
    open_in_every_block: bool = False
    mean_low: float | None = None
    mean_high: float | None = None
    widened: float = 0.0
    half_width: float | None = None
    standard_error: float | None = None
    blocks: int = 0
    boots: int = 1
    blocks_needed: int | None = None
    detectable: float | None = None
    margin: float = 0.02
    noise_floor: float | None = None
    correlation: float = 0.0
    rho_weights: tuple[float, ...] = ()
    tests: Tests = Tests()
    doubts: tuple[Doubt, ...] = ()
    baseline: SideCounts = SideCounts()
    compared: SideCounts = SideCounts()
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


@dataclass(frozen=True, kw_only=True)
class Verdict(Judged):
    """One metric of one comparison. `role`, `tool`: the measurement whose figures were compared; `…_limiter`: what kept
    most trials of a side from answering more; `noise_floor`: the largest difference of two A/A trials of a block, a
    fraction.
    """

    metric: NamedMetric
    role: Role | None = None
    tool: str | None = None
    baseline_available: Share | None = None
    compared_available: Share | None = None
    baseline_percentile: PercentileLevel | None = None
    compared_percentile: PercentileLevel | None = None
    baseline_limiter: Limiter | None = None
    compared_limiter: Limiter | None = None
    notes: tuple[Note, ...] = ()

    @property
    def limited(self) -> int:
        """Client-limited or link-limited trials of either side."""
        return self.baseline.limited + self.compared.limited


@dataclass(frozen=True, kw_only=True)
class ControlEffects:
    """One A/A control in one metric: `arm` against the first replicate of its environment. `tool`: the scenario's;
    `measured_by`: the tool that measured the figures.
    """

    scenario: Scenario
    tool: str
    arm: Arm
    accelerator: Accelerator
    hardware: Hardware
    metric: NamedMetric
    role: Role
    measured_by: str | None
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
    """One step in one scenario and metric. FASTER: the later guest is better. No margin of equivalence applies.

    `over`: profiles between `before` and `after` that this run lacks; `accelerator`, `hardware`: of `after`; `start`,
    `end`: levels of the two in the blocks that both have; `gain`: in the metric's unit, above zero when the later guest
    is better, with the interval that decided.
    """

    step: StepKind
    before: Arm
    after: Arm
    over: tuple[str, ...] = ()
    accelerator: Accelerator
    hardware: Hardware
    start: float | None = None
    end: float | None = None
    gain: Estimate | None = None


@dataclass(frozen=True, kw_only=True)
class StepMetric:
    """One metric in one scenario; `levels`: environment → mean over its blocks, in the metric's unit."""

    metric: NamedMetric
    role: Role
    tool: str
    levels: Mapping[str, float]
    steps: tuple[TuningStep, ...]


@dataclass(frozen=True, kw_only=True)
class HostView:
    """The KVM host's view of a guest: medians over trials, per request; `exit_kinds`: KVM's name → per request."""

    arm: Arm
    exits: float | None = None
    vcpu_us: float | None = None
    vcpu_wait_us: float | None = None
    qemu_us: float | None = None
    vhost_us: float | None = None
    host_irqs: float | None = None
    guest_irqs: float | None = None
    steal_pct: float | None = None
    exit_kinds: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class StepScenario:
    """The steps in one scenario, by the metric's name; `tool`: the scenario's."""

    scenario: Scenario
    tool: str
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
    """What clients noticed of an operation. `arm`: the environment with it, `without`: the one that it is made of;
    `begin_s`: from the load's first intended send; `length_s`: of the operation; `figures`: `blackout_ms`,
    `brownout_s`, `lost` and `late` (requests), as vmtoll.trial.disruption defines them; `migration`: what libvirt says
    of a live migration, by the fields of MigrationFigures; `open_ended`: trials whose brownout had not ended when the
    load did.
    """

    scenario: Scenario
    arm: Arm
    without: Arm
    blocks: int
    begin_s: Estimate | None
    length_s: Estimate | None
    figures: Mapping[str, OperationFigure]
    migration: Mapping[str, Estimate] | None = None
    open_ended: int = 0


@dataclass(frozen=True, kw_only=True)
class WaitFigure:
    """A unit that the server waited for: how long that took, in the starts in which it did."""

    unit: str
    length_s: Estimate


@dataclass(frozen=True, kw_only=True)
class StartFigures:
    """The starts of one environment by one way: means over blocks, in s from the start. `failed`: starts without
    figures.

    `first_s`: until the first of the guests answered, `all_s`: until all did; `network_s`: until the last one of these
    answered on its network; `parts`: those of that last guest, which together are `all_s`; `waits`: what its server
    waited for, the longest first. `more_s`: `all_s` above that of `against` in the same block, None for that
    environment itself. `error_s`: of the comparison of clocks, at most; `gap_s`: the longest time between two requests.
    """

    environment: str
    accelerator: Accelerator
    server: str
    way: Way
    at_once: int
    blocks: int
    failed: int
    first_s: Estimate | None = None
    all_s: Estimate | None = None
    network_s: Estimate | None = None
    parts: Mapping[str, Estimate]
    waits: tuple[WaitFigure, ...]
    against: str
    more_s: Estimate | None = None
    error_s: float
    gap_s: float


class Outcome(StrEnum):
    """Outcome of a published claim in a run."""

    CONFIRMED = "confirmed"
    REFUTED = "refuted"
    INCONCLUSIVE = "inconclusive"


class Region(StrEnum):
    """Position of an interval: above a limit, below it (for a ratio: below its inverse), within both, or across one."""

    ABOVE = "above"
    BELOW = "below"
    WITHIN = "within"
    ACROSS = "across"


class ReasonCode(StrEnum):
    """Reason for the outcome of a claim, or for the shape of a published figure; `Reason` has its numbers and names."""

    INTERVAL = "interval"
    LEVEL = "level"
    FAILURES_IN_A_BLOCK = "failures-in-a-block"
    FEW_BLOCKS = "few-blocks"
    ZERO_HAS_NO_RATIO = "zero-has-no-ratio"
    SOURCE_NOT_AT_HAND = "source-not-at-hand"
    NOT_SHIPPED = "not-shipped"
    NOT_MEASURED = "not-measured"
    EMULATED = "emulated"
    EMULATED_HARDWARE = "emulated-hardware"
    DIFFERENT_REQUESTS = "different-requests"
    TOO_FEW_CORES = "too-few-cores"
    ONE_CORE_FOR_WORKERS = "one-core-for-workers"
    NO_FIGURE = "no-figure"
    NO_COMPLETE_BLOCK = "no-complete-block"
    LIMITED = "limited"
    FULL_LINK = "full-link"
    WITHOUT_SERVERS = "without-servers"
    NOT_COMPARED = "not-compared"
    NO_SUCH_METRIC = "no-such-metric"
    NO_SUCH_SERVER = "no-such-server"
    NO_SUCH_WORKLOAD = "no-such-workload"
    OTHER_TOOL = "other-tool"
    OTHER_LINK = "other-link"
    SET_TO_A_MINUTE = "set-to-a-minute"


@dataclass(frozen=True)
class Reason:
    """`values`: numbers by name; `names`: servers, environments, workloads, a link, or a column; `codes`: findings.

    INTERVAL: `limit` (1: a direction; above 1: equal within this factor). LEVEL: `low`, `high`, `limit`.
    FAILURES_IN_A_BLOCK: `most`, `blocks`. FEW_BLOCKS: `blocks`, `needed`. TOO_FEW_CORES: `about`, `had`. NO_FIGURE:
    `side`, from 0; names: the metric. NOT_SHIPPED: names: the release, then its missing servers. NOT_MEASURED: `side`;
    names: those absent, none where only the combination is. LIMITED: `trials` of `used`. FULL_LINK: `trials`; names:
    the link. OTHER_TOOL: names: the source's tool, then this run's. OTHER_LINK: names: this run's link. NO_SUCH_SERVER:
    names: the source's server. NOT_COMPARED: the experimenter chooses how long a test lasts.
    """

    code: ReasonCode
    values: Mapping[str, float] = field(default_factory=dict)
    names: tuple[str, ...] = ()
    codes: tuple[Code, ...] = ()


class EstimatorUsed(StrEnum):
    """Estimator that condensed the blocks' figures into one; MEAN_FEWER_…: fewer blocks than the estimator needs."""

    NONE = "none"
    MEDIAN = "median"
    MEAN_OF_THREE = "mean-of-three"
    TRIMMED_SIX = "trimmed-six"
    MEAN_FEWER_THAN_THREE = "mean-fewer-than-three"
    MEAN_FEWER_THAN_SIX = "mean-fewer-than-six"
    LOWEST = "lowest"
    HIGHEST = "highest"


@dataclass(frozen=True)
class Level:
    """One figure of a side, condensed from its blocks' figures; `value` is None without figures."""

    value: float | None = None
    estimator: EstimatorUsed = EstimatorUsed.NONE
    blocks: int = 0


@dataclass(frozen=True, kw_only=True)
class ClaimResult:
    """One claim with its outcome. `levels`: of its sides, in `unit`, the unit of the metric's column;
    `published_ratio`, `ratio`: `of` ÷ `over`; `limited`: in every block the client or the link set a figure; `region`:
    where the interval of the ratio or level lies; `level`: the mean, for a claim about one side, in `unit`; `effects`:
    the blocks, as ratios or in `unit`; `rho_weights`: weights of the autocorrelations 0, 0.1, … 0.9; `alpha`: 1 −
    confidence of the interval.
    """

    says: str
    metric: str
    unit: str
    sides: tuple[ClaimSide, ...]
    published: tuple[float, ...]
    levels: tuple[Level, ...]
    published_ratio: float | None = None
    ratio: Ratio | None = None
    limited: bool = False
    blocks: int = 0
    outcome: Outcome
    region: Region | None = None
    reasons: tuple[Reason, ...] = ()
    level: Ratio | None = None
    effects: tuple[BlockEffect, ...] = ()
    rho_weights: tuple[float, ...] = ()
    alpha: float | None = None


class Shape(StrEnum):
    """Whether a published figure compares with the first one of its group as in this run. FIRST: it is the first one;
    ALONE: its group has no other figure.
    """

    SAME = "same"
    NOT_SAME = "not-same"
    INCONCLUSIVE = "inconclusive"
    FIRST = "first"
    ALONE = "alone"


@dataclass(frozen=True, kw_only=True)
class RunAnalysis:
    """The analysis of a run. `counts`: validity → trials; `findings`: code → trials that have it; `noise_floor`: the
    largest of any comparison's throughput, or of its tail in a run without throughput, a fraction; `searches`:
    workloads that search for a rate, which are not compared; `operations`, `first_answers`: None without any;
    `emulated`: a guest ran under software emulation; `kvm_hardware`: what the hosts of the guests under KVM run on;
    `unseen_hosts`: guests whose KVM host the inventory does not name; `one_boot`: why the run has one boot, where that
    is recorded; `restarted`: what the embedded lab restarted between several boots, whose host it did not reboot.
    """

    run_id: str
    comparisons: tuple[Comparison, ...]
    controls: tuple[ControlEffects, ...] = ()
    counts: Mapping[Validity, int]
    attempts: int
    planned: int
    findings: Mapping[Code, int]
    blocks: int
    boots: int = 1
    margin: float
    noise_floor: float | None = None
    undeclared_differences: int
    tuning_steps: TuningResult | None = None
    operations: tuple[OperationEffect, ...] | None = None
    first_answers: tuple[StartFigures, ...] | None = None
    claims: tuple[ClaimResult, ...]
    searches: tuple[str, ...]
    complete: bool
    emulated: bool
    kvm_hardware: tuple[Hardware, ...] = ()
    unseen_hosts: tuple[str, ...] = ()
    one_boot: OneBoot | None = None
    restarted: tuple[str, ...] | None = None

    def comparison(self, scenario: Scenario, arm: Arm) -> Comparison | None:
        """The comparison of one scenario on one arm; None where there is none."""
        return next((c for c in self.comparisons if (c.scenario, c.arm) == (scenario, arm)), None)


_ANALYSIS = TypeAdapter(RunAnalysis)


def to_json(analysis: RunAnalysis) -> bytes:
    """analysis.json; figures are rounded to the digits that every CPU computes alike."""
    exact = _ANALYSIS.dump_json(analysis, exclude_none=True)
    content = json.loads(exact, parse_float=lambda text: float(f"{float(text):.{DIGITS}g}"))
    return json.dumps(content, indent=1, ensure_ascii=False).encode() + b"\n"


def from_json(content: bytes | str) -> RunAnalysis:
    """An analysis from its JSON. Raises pydantic.ValidationError."""
    return _ANALYSIS.validate_json(content)

"""Result of a comparison: an enum and numbers. vmtoll.report.words makes sentences of it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated

from pydantic import Field, PlainSerializer, PlainValidator, TypeAdapter

from vmtoll.model.experiment import ClaimSide
from vmtoll.model.finding import Code, Role, Validity
from vmtoll.model.hardware import Hardware
from vmtoll.model.limiter import Limiter
from vmtoll.model.metric import METRICS, Metric
from vmtoll.model.trial import Accelerator, Arm, Scenario

# Of a figure in analysis.json: further ones differ from CPU to CPU.
DIGITS = 9

# In JSON a metric is its name.
NamedMetric = Annotated[
    Metric,
    PlainValidator(lambda value: value if isinstance(value, Metric) else METRICS[value]),
    PlainSerializer(lambda metric: metric.name, return_type=str),
]


class Kind(StrEnum):
    """Result of the compared side against its baseline. SLOWER: fewer requests per second, or a higher time or cost.
    NOT_JUDGED: there is nothing to compare, and the verdict names the reason.
    """

    FASTER = "faster"
    SLOWER = "slower"
    EQUIVALENT = "equivalent"
    UNDECIDED = "undecided"
    NOT_JUDGED = "not-judged"


DIFFERENT = frozenset({Kind.FASTER, Kind.SLOWER})
DECIDED = DIFFERENT | {Kind.EQUIVALENT}


class Because(StrEnum):
    """Reason why a verdict is undecided, or why nothing is judged.

    Undecided. NO_LOOK_YET: a run that goes on until it knows has not looked. LIMIT: in every block the client or the
    link, not the server, set a figure. FINDINGS: the figures as measured would have decided, and what the findings
    allow would not.

    Not judged. NO_FIGURE: a side has none in any trial. NOT_COMPARABLE: the sides are not the same thing. NOT_MEASURED:
    the tools of both sides answered requests and gave no such figure in any trial. HOST_NOT_SEEN: the figure is
    that of a guest's host, which the inventory does not name. The others: the figure says nothing of a server under
    this kind of load.
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
    Because.NOT_MEASURED, Because.HOST_NOT_SEEN, Because.CLOSED_LOOP_HAS_NO_TAIL, Because.LOAD_SETS_THE_RATE,
    Because.OPEN_LOOP_SEE_TAIL,
})  # fmt: skip


class Cause(StrEnum):
    """What widens a comparison besides the findings of its trials. LOST: trials without a figure, each taken as twice
    as bad as the worst of its side. SECOND_ATTEMPTS: attempts that failed before one that did not, taken alike.
    UNEQUAL_REQUESTS: percentiles of unequally many requests, without their histograms. CONTROL: the A/A control differs
    from itself.
    """

    LOST = "lost-trials"
    SECOND_ATTEMPTS = "second-attempts"
    UNEQUAL_REQUESTS = "unequal-requests"
    CONTROL = "control-differs"


@dataclass(frozen=True)
class Doubt:
    """One cause of doubt and what it can explain. `baseline`, `compared`: trials of each side that have it; `size`: the
    factor by which it alone may have changed the ratio on average, in the direction that counts against the verdict, 1
    or more; `value`: the gate's largest figure, in its unit.
    """

    cause: Annotated[Code | Cause, Field(union_mode="left_to_right")]
    baseline: int
    compared: int
    size: float
    value: float | None = None


class NoteCode(StrEnum):
    """Code of a note that a reader must know with a verdict; `Note` has its numbers."""

    CONTROL_DIFFERS = "control-differs"
    NO_CONTROL = "no-control"
    FEW_BLOCKS = "few-blocks"
    CLIENT_ON_SAME_MACHINE = "client-on-same-machine"
    FAILED_REQUESTS = "failed-requests"
    OWN_RATES = "own-rates"
    ATTAINED = "attained"
    CROSSCHECK_DISAGREES = "crosscheck-disagrees"


@dataclass(frozen=True)
class Note:
    """A note and its numbers by name; `subject`: a tool.

    CONTROL_DIFFERS: `size`, the factor beyond doubt. FEW_BLOCKS: `blocks`: so few assume that the machines' state
    changes in between. OWN_RATES: `baseline`, `compared`, requests per second. ATTAINED: of each side that has a valid
    trial `baseline_offered` and `compared_offered` (requests per second), `baseline_attained` and `compared_attained`
    (fractions of it). CROSSCHECK_DISAGREES: `low` and `high` of its ratio; the subject is its tool. FAILED_REQUESTS:
    the verdict has the numbers.
    """

    code: NoteCode
    values: Mapping[str, float] = field(default_factory=dict)
    subject: str = ""


@dataclass(frozen=True)
class Estimate:
    """A ratio, compared ÷ baseline, with its interval; no interval where n is too small."""

    ratio: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Share:
    """Requests answered with success, of those planned, over the trials of one side; Wilson's 95% interval."""

    successful: int
    requests: int
    share: float
    low: float
    high: float


@dataclass(frozen=True)
class TrialShare:
    """Trials of one side, those that gave figures at the first attempt, and those that did in the end. `low`, `high`:
    the exact 95% interval of the share at the first attempt (Clopper and Pearson).
    """

    trials: int
    at_first: int
    valid: int
    low: float
    high: float


@dataclass(frozen=True)
class Reliability:
    """The trials of both sides; `p`: McNemar's, that their first attempts fail equally often."""

    baseline: TrialShare
    compared: TrialShare
    p: float


@dataclass(frozen=True)
class PercentileLevel:
    """A side's percentile in µs: the geometric mean over trials with its 95% interval; `requests`: of the trial with
    the fewest. `within`: the interval is that of order statistics within trials, which is wider than that over trials.
    """

    value_us: float
    low: float | None = None
    high: float | None = None
    requests: int = 0
    within: bool = False


@dataclass(frozen=True)
class Tests:
    """p-values, as they are and after Holm's correction among `family` comparisons; None where none decides. `weight`:
    of this comparison in Holm; `share`: of the 5% that its look may spend.
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
    """The trials of one side, those of its A/A control among them, by what became of them. `used`: with a figure;
    `suspect`: of these; `lost`: without one, because something of this side failed; `second_attempts`: used ones that
    failed before; `incomparable`: with a finding that the sides are not the same thing; `limited`: used ones that the
    client or the link limited; `findings`: code → trials that were used with it; `excluded_by`: code → trials without a
    figure that have it; `requests`: per used trial; `level`: the mean over the blocks of both sides, in the metric's
    unit.
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
    allow, `mid` as measured; None where the block is not in that series. `trials`: of both sides, those with a figure
    and the lost ones.

    `first_low`, `first_high`: by the first trial of each side alone, where the interval is the hull of both because the
    blocks are skewed.
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
    """What was decided on one figure of two arms. Ratios are compared ÷ baseline.

    `estimate`: the ratio as measured, with the interval that decided, whose level is `confidence`; no interval where
    there are too few blocks, or where `by_every_block`: each of them shows the difference, and `blocks_range` has the
    least and the largest. `open_low`, `open_high`: that end rests on a natural limit, and the true one may lie beyond.
    `also_different`: an equivalent pair that differs for sure. `half_width`: of the 95% interval by sampling alone, a
    fraction.

    `blocks`: pairs, in `boots` boots; `blocks_needed`: how many more show a difference as large as the margin with 80%
    power, None where no number helps or the verdict is decided; `detectable`: the smallest difference that these blocks
    show with 80% power, a fraction; `doubts`: the largest first; `correlation`: the expected one of successive blocks.

    `standard_error`: of the mean log ratio by sampling alone, the geometric mean over the autocorrelations.
    `mean_low`, `mean_high`: the estimate as far as findings and lost trials allow; `widened`: the part of either that
    the A/A control adds, a fraction; `rho_weights`: of the autocorrelations 0, 0.1, … 0.9 in this interval.
    """

    kind: Kind
    because: Because | None = None
    by_every_block: bool = False
    also_different: bool = False
    estimate: Estimate | None = None
    confidence: float | None = None
    blocks_range: Estimate | None = None
    open_low: bool = False
    open_high: bool = False
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
        """Return whether the figure says something under the load, and the tool measures it."""
        return self.because not in NOT_APPLICABLE

    @property
    def is_decided(self) -> bool:
        return self.kind in DECIDED

    @property
    def is_at_least(self) -> bool:
        """Return whether the size is a lower bound: the end of the interval, or the range, that is farther from no
        difference is open.
        """
        ratio = self.estimate.ratio if self.estimate else 1.0
        return self.kind in DIFFERENT and (self.open_high if ratio > 1 else self.open_low)


@dataclass(frozen=True, kw_only=True)
class Verdict(Judged):
    """One metric of one comparison. `role` and `tool`: whose figures were compared; `…_limiter`: what kept most trials
    of a side from answering more; `noise_floor`: the largest difference of two A/A trials of a block, a fraction.
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
    """One A/A control in one metric: `arm` against the first replicate of its environment. `tool`: of the scenario;
    `measured_by`: of the figures.
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
    """CUMULATIVE: from one profile to the next better tuned one. SINGLE: from the base to one that differs in one
    thing.
    """

    CUMULATIVE = "cumulative"
    SINGLE = "single"


@dataclass(frozen=True)
class Gain:
    """Gain of a step in the metric's unit, above zero when the later guest is the better."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, kw_only=True)
class TuningStep(Judged):
    """One step in one scenario and metric. FASTER: the later guest is better. No margin of equivalence applies.

    `over`: profiles between them that this run lacks; `accelerator`, `hardware`: of the later one; `start`, `end`:
    levels of the two in the blocks of both; `gain`: in the metric's unit, with the interval that decided.
    """

    step: StepKind
    before: Arm
    after: Arm
    over: tuple[str, ...] = ()
    accelerator: Accelerator
    hardware: Hardware
    start: float | None = None
    end: float | None = None
    gain: Gain | None = None


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
    qemu_us: float | None = None
    vhost_us: float | None = None
    host_irqs: float | None = None
    guest_irqs: float | None = None
    steal_pct: float | None = None
    exit_kinds: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class StepScenario:
    """The steps in one scenario, by the metric's name; `tool`: of the scenario."""

    scenario: Scenario
    tool: str
    metrics: Mapping[str, StepMetric]
    host: tuple[HostView, ...] = ()


@dataclass(frozen=True, kw_only=True)
class TuningResult:
    """`profiles`: those measured, in the experiment's order; `skipped`: profile → why, empty where nobody knows."""

    base: str | None = None
    profiles: tuple[str, ...]
    skipped: Mapping[str, str]
    scenarios: tuple[StepScenario, ...]


class Outcome(StrEnum):
    """Outcome of a published claim in a run."""

    CONFIRMED = "confirmed"
    REFUTED = "refuted"
    INCONCLUSIVE = "inconclusive"


class Region(StrEnum):
    """Position of an interval: above a limit, below it (for a ratio: below its inverse), within both, across one."""

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

    INTERVAL: `limit` (1: a direction; above 1: equal to so much). LEVEL: `low`, `high`, `limit`. FAILURES_IN_A_BLOCK:
    `most`. FEW_BLOCKS: `blocks`, `needed`. TOO_FEW_CORES: `about`, `had`. NO_FIGURE: `side`, from 0; names: the metric.
    NOT_SHIPPED: the release, then its missing servers. NOT_MEASURED: names, or `side` where only the combination is
    absent. LIMITED: `trials` of `used`. FULL_LINK: `trials`; names: the link. OTHER_TOOL: the source's, then ours.
    OTHER_LINK: ours. NO_SUCH_SERVER: the source's name. NOT_COMPARED: how long a test lasts is set by who makes it.
    """

    code: ReasonCode
    values: Mapping[str, float] = field(default_factory=dict)
    names: tuple[str, ...] = ()
    codes: tuple[Code, ...] = ()


class EstimatorUsed(StrEnum):
    """Estimator that made one figure of those of the blocks; MEAN: of fewer blocks than the estimator wants."""

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
    """One figure of a side, made of its blocks' figures; None without one."""

    value: float | None = None
    estimator: EstimatorUsed = EstimatorUsed.NONE
    blocks: int = 0


@dataclass(frozen=True, kw_only=True)
class ClaimResult:
    """One claim with its outcome. `levels` in `unit`, a column's; `published_ratio`, `ratio`: `of` ÷ `over`; `limited`:
    in every block the client or the link set a figure; `region`: where the interval of the ratio, or of the level,
    lies; `level`: the mean of a claim about one side, in `unit`; `effects`: its blocks, ratios or in `unit`;
    `rho_weights`: of the autocorrelations 0, 0.1, … 0.9; `alpha`: the probability at which the interval was made.
    """

    says: str
    metric: str
    unit: str
    sides: tuple[ClaimSide, ...]
    published: tuple[float, ...]
    levels: tuple[Level, ...]
    published_ratio: float | None = None
    ratio: Estimate | None = None
    limited: bool = False
    blocks: int = 0
    outcome: Outcome
    region: Region | None = None
    reasons: tuple[Reason, ...] = ()
    level: Estimate | None = None
    effects: tuple[BlockEffect, ...] = ()
    rho_weights: tuple[float, ...] = ()
    alpha: float | None = None


class Shape(StrEnum):
    """Relation of a published figure to the first one of its group, there and here. FIRST: it is that one; ALONE: its
    group has no other.
    """

    SAME = "same"
    NOT_SAME = "not-same"
    INCONCLUSIVE = "inconclusive"
    FIRST = "first"
    ALONE = "alone"


@dataclass(frozen=True, kw_only=True)
class RunAnalysis:
    """A run, judged. `counts`: validity → trials; `findings`: code → trials that have it; `noise_floor`: of throughput,
    or of the tail in a run without; the worst server's, a fraction; `searches`: workloads that are not compared;
    `emulated`: software emulated a guest; `kvm_hardware`: what the hosts of the guests under KVM run on;
    `unseen_hosts`: guests whose host was not seen.
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
    claims: tuple[ClaimResult, ...]
    searches: tuple[str, ...]
    complete: bool
    emulated: bool
    kvm_hardware: tuple[Hardware, ...] = ()
    unseen_hosts: tuple[str, ...] = ()

    def comparison(self, scenario: Scenario, arm: Arm) -> Comparison | None:
        """The comparison of one scenario on one arm; None where there is none."""
        return next((c for c in self.comparisons if (c.scenario, c.arm) == (scenario, arm)), None)


_ANALYSIS = TypeAdapter(RunAnalysis)


def to_json(analysis: RunAnalysis) -> bytes:
    """analysis.json, with as many digits of each figure as any CPU gives."""
    exact = _ANALYSIS.dump_json(analysis, exclude_none=True)
    content = json.loads(exact, parse_float=lambda text: float(f"{float(text):.{DIGITS}g}"))
    return json.dumps(content, indent=1, ensure_ascii=False).encode() + b"\n"


def from_json(content: bytes | str) -> RunAnalysis:
    """An analysis from its JSON. Raises pydantic.ValidationError."""
    return _ANALYSIS.validate_json(content)

"""Result of a comparison: an enum and numbers. vmtoll.report.words makes sentences of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated

from pydantic import PlainSerializer, PlainValidator, TypeAdapter

from vmtoll.model.experiment import ClaimSide
from vmtoll.model.finding import Code, Role, Validity
from vmtoll.model.hardware import Hardware
from vmtoll.model.limiter import Limiter
from vmtoll.model.metric import METRICS, Metric
from vmtoll.model.trial import Accelerator, Arm, Scenario

# In JSON a metric is its name.
NamedMetric = Annotated[
    Metric,
    PlainValidator(lambda value: value if isinstance(value, Metric) else METRICS[value]),
    PlainSerializer(lambda metric: metric.name, return_type=str),
]


class Kind(StrEnum):
    """Result of the compared side against its baseline. SLOWER: fewer requests per second, or a higher time or cost."""

    FASTER = "faster"
    SLOWER = "slower"
    EQUIVALENT = "equivalent"
    UNDECIDED = "undecided"
    INVALID = "invalid"


class Bound(StrEnum):
    """The size of an effect is a bound, because the client or the link limited one side."""

    AT_LEAST = "at-least"
    AT_MOST = "at-most"


class Limit(StrEnum):
    """The bottleneck of a side where it was not the server."""

    CLIENT = "client"
    LINK = "link"


class Because(StrEnum):
    """Reason why a verdict is invalid, undecided whatever the figures, or does not apply.

    NOT_MEASURED: the tools of both sides answered requests and gave no such figure in any trial. UNEQUAL_LOSSES: one
    side lost clearly more trials, and the verdict would be in its favour. LOSSES_DECIDE: equivalence would rest on
    trials that one side lost. CONTROL_DIFFERS: the A/A control differs from itself by as much. SKEWED: one of the two
    intervals leaves the margin.
    """

    NO_FIGURES = "no-figures"
    NOT_MEASURED = "not-measured"
    NO_VALID_PAIR = "no-valid-pair"
    LIMITED_ON_BOTH_SIDES = "limited-on-both-sides"
    LIMITED_ON_THE_SLOWER_SIDE = "limited-on-the-slower-side"
    LIMITED_SO_NO_EQUALITY = "limited-so-no-equality"
    LIMITED_TAIL = "limited-tail"
    DISTORTED = "distorted"
    FEW_REQUESTS = "few-requests"
    UNEQUAL_REQUESTS = "unequal-requests"
    UNEQUAL_LOSSES = "unequal-losses"
    LOSSES_DECIDE = "losses-decide"
    CONTROL_DIFFERS = "control-differs"
    TWO_MODES = "two-modes"
    SKEWED = "skewed"
    CLOSED_LOOP_HAS_NO_TAIL = "closed-loop-has-no-tail"
    LOAD_SETS_THE_RATE = "load-sets-the-rate"
    OPEN_LOOP_SEE_TAIL = "open-loop-see-tail"


class NoteCode(StrEnum):
    """Code of a note that a reader must know with a verdict; `Note` has its numbers."""

    INTERVALS_DISAGREE = "intervals-disagree"
    DIFFERENCE_LOST_TO_HOLM = "difference-lost-to-holm"
    EQUIVALENCE_LOST_TO_HOLM = "equivalence-lost-to-holm"
    FEW_BLOCKS = "few-blocks"
    NO_NOISE_FLOOR = "no-noise-floor"
    NOISE_FLOOR_OF_OTHER_SERVER = "noise-floor-of-other-server"
    CONTROL_DIFFERS = "control-differs"
    LIMITED = "limited"
    SUSPECT = "suspect"
    DEPENDS_ON_SUSPECT = "depends-on-suspect"
    EXCLUDED = "excluded"
    RETRIED = "retried"
    TWO_MODES = "two-modes"
    AUTOCORRELATED = "autocorrelated"
    UNEQUAL_REQUESTS = "unequal-requests"
    CLIENT_ON_SAME_MACHINE = "client-on-same-machine"
    FAILED_REQUESTS = "failed-requests"
    OWN_RATES = "own-rates"
    ATTAINED = "attained"
    CROSSCHECK_DISAGREES = "crosscheck-disagrees"


@dataclass(frozen=True)
class Note:
    """A note and its numbers by name; `subject`: a server or a tool.

    DIFFERENCE_LOST_TO_HOLM, EQUIVALENCE_LOST_TO_HOLM: `p`, `holm`, `family`. FEW_BLOCKS: `blocks`, `needed`.
    NOISE_FLOOR_OF_OTHER_SERVER: the subject is that server. CONTROL_DIFFERS: `low`, `high`: its ratio, replicate 2 ÷ 1.
    SUSPECT: `suspect`, `trials`, `distorted` (of the suspect ones). DEPENDS_ON_SUSPECT: `pairs`, those that are
    distorted. EXCLUDED, RETRIED: `baseline`, `compared`, trials. TWO_MODES: `low`, `high`: ratios; `n_low`, `n_high`:
    blocks. AUTOCORRELATED: `r`, `p`, `inflation` (of the variance). UNEQUAL_REQUESTS: `blocks` whose
    pair of unequal requests was left out.
    OWN_RATES: `baseline`, `compared`, requests per second. ATTAINED: of each side that has a valid trial
    `baseline_offered` and `compared_offered` (requests per second), `baseline_attained` and `compared_attained`
    (fractions of it). CROSSCHECK_DISAGREES: `low` and `high` of its ratio; the subject is its tool. LIMITED,
    FAILED_REQUESTS: the verdict has the numbers.
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
class VarianceShares:
    """Components of the variance of a block's log ratio, in fractions of its sum. `boot`: None with a single boot;
    `trial`: what two replicates of a block differ by, None without an A/A control, when it is part of `block`.
    """

    sd: float
    block: float
    boot: float | None = None
    trial: float | None = None


@dataclass(frozen=True)
class Tests:
    """p-values, as they are and after Holm's correction among `family` comparisons; None where none decides."""

    family: int = 0
    difference: float | None = None
    difference_holm: float | None = None
    equivalence: float | None = None
    equivalence_holm: float | None = None


@dataclass(frozen=True)
class SideCounts:
    """The trials of one side, those of its A/A control among them: how many, by what became of them; `few`: with too
    few requests for a percentile; `retried`: more than one attempt; `distorted`: used ones with a finding that distorts
    the figure; `findings`: code → trials that were used with it; `excluded_by`: code → trials that it excluded;
    `requests`: per used trial.
    """

    trials: int = 0
    used: int = 0
    suspect: int = 0
    invalid: int = 0
    empty: int = 0
    few: int = 0
    retried: int = 0
    limited: int = 0
    distorted: int = 0
    findings: Mapping[Code, int] = field(default_factory=dict)
    excluded_by: Mapping[Code, int] = field(default_factory=dict)
    requests: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """One metric of one comparison. Ratios are compared ÷ baseline; `noise_floor` is a fraction.

    `applies`: the metric says something under the load, and the tool measures it. `blocks`: pairs that decided, in
    `boots` boots; `blocks_needed`: how many more show a difference as large as the margin with 80% power, None where no
    number helps or the verdict is decided; `detectable`: the smallest difference that these blocks show with 80% power,
    a fraction; `adjusted`: the estimate with the interval that decided, whose
    level after Holm is `confidence`; `clean`: the estimate over the pairs in which nothing distorts a trial;
    `…_limiter`: what kept most trials of a side from answering more; `role` and `tool`: whose figures were compared;
    `noise_floor_server`: the control's, where it was another one; `noise_floor_arm`: the control that gave the floor.
    """

    metric: NamedMetric
    kind: Kind
    because: Because | None = None
    applies: bool = True
    role: Role | None = None
    tool: str | None = None
    estimate: Estimate | None = None
    hodges_lehmann: Estimate | None = None
    hodges_lehmann_level: float | None = None
    bound: Bound | None = None
    limited_by: tuple[Limit, ...] = ()
    blocks: int = 0
    boots: int = 1
    blocks_needed: int | None = None
    detectable: float | None = None
    adjusted: Estimate | None = None
    confidence: float | None = None
    clean: Estimate | None = None
    margin: float = 0.02
    noise_floor: float | None = None
    noise_floor_server: str | None = None
    noise_floor_arm: Arm | None = None
    tests: Tests = Tests()
    baseline: SideCounts = SideCounts()
    compared: SideCounts = SideCounts()
    baseline_available: Share | None = None
    compared_available: Share | None = None
    baseline_trimmed: float | None = None
    compared_trimmed: float | None = None
    baseline_percentile: PercentileLevel | None = None
    compared_percentile: PercentileLevel | None = None
    variance: VarianceShares | None = None
    baseline_limiter: Limiter | None = None
    compared_limiter: Limiter | None = None
    notes: tuple[Note, ...] = ()

    @property
    def limited(self) -> int:
        """Client-limited or link-limited trials of either side."""
        return self.baseline.limited + self.compared.limited

    @property
    def overhead(self) -> Estimate | None:
        """1 − ratio, what the compared side loses of a rate; None without an estimate."""
        if self.estimate is None:
            return None
        low, high = (None if end is None else 1 - end for end in (self.estimate.high, self.estimate.low))
        return Estimate(1 - self.estimate.ratio, low, high)


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One scenario on one arm against the baseline: a verdict for each metric, by the metric's name."""

    scenario: Scenario
    tool: str
    arm: Arm
    accelerator: Accelerator
    hardware: Hardware = Hardware.UNKNOWN
    verdicts: Mapping[str, Verdict]
    reliability: Reliability | None = None


@dataclass(frozen=True, kw_only=True)
class DisagreementSide:
    """One of two verdicts that disagree. `baseline_rps` and `compared_rps`: what an open loop offered, or a closed loop
    drew from the server, median per arm; None where it is not known.
    """

    scenario: Scenario
    verdict: Verdict
    baseline_rps: float | None = None
    compared_rps: float | None = None


@dataclass(frozen=True, kw_only=True)
class Disagreement:
    """A closed and an open loop on one server that point in different directions, or only one of them in any.

    `stalled`: open-loop trials of both sides in which nothing came for a while.
    """

    server: str
    arm: Arm
    closed: DisagreementSide
    open: DisagreementSide
    stalled: int = 0


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
class TuningStep:
    """One step in one scenario and metric. FASTER: the later guest is better.

    `over`: profiles between them that this run lacks; `start`, `end`: levels of the two in the blocks of both;
    `ratio`: end ÷ start; `noise_floor`: in the metric's unit; `detectable`, `adjusted`, `confidence`: as of a Verdict.
    """

    step: StepKind
    before: Arm
    after: Arm
    over: tuple[str, ...] = ()
    kind: Kind
    because: Because | None = None
    bound: Bound | None = None
    start: float | None = None
    end: float | None = None
    gain: Gain | None = None
    ratio: float | None = None
    blocks: int = 0
    blocks_needed: int | None = None
    detectable: float | None = None
    adjusted: Estimate | None = None
    confidence: float | None = None
    noise_floor: float | None = None
    tests: Tests = Tests()


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
    """The steps in one scenario, by the metric's name."""

    scenario: Scenario
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
    """Position of an interval: above a limit, below it (for a ratio: below its inverse), within both, across one.

    BOUND: it would decide, but the client or the link limited the side that would have to prove it.
    """

    ABOVE = "above"
    BELOW = "below"
    WITHIN = "within"
    ACROSS = "across"
    BOUND = "bound"


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
    """One claim with its outcome. `levels` in `unit`, a column's; `published_ratio`, `ratio`: `of` ÷ `over`.

    `proves_more`, `proves_less`: whether a ratio above, or below, something proves what it shows; `region`: where the
    interval of the ratio, or of the level, lies.
    """

    says: str
    metric: str
    unit: str
    sides: tuple[ClaimSide, ...]
    published: tuple[float, ...]
    levels: tuple[Level, ...]
    published_ratio: float | None = None
    ratio: Estimate | None = None
    proves_more: bool = True
    proves_less: bool = True
    blocks: int = 0
    outcome: Outcome
    region: Region | None = None
    reasons: tuple[Reason, ...] = ()


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
    `emulated`: software emulated a guest; `kvm_hardware`: what the hosts of the guests under KVM run on.
    """

    run_id: str
    comparisons: tuple[Comparison, ...]
    counts: Mapping[Validity, int]
    attempts: int
    planned: int
    findings: Mapping[Code, int]
    blocks: int
    boots: int = 1
    margin: float
    noise_floor: float | None = None
    undeclared_differences: int
    disagreements: tuple[Disagreement, ...]
    tuning_steps: TuningResult | None = None
    claims: tuple[ClaimResult, ...]
    searches: tuple[str, ...]
    complete: bool
    emulated: bool
    kvm_hardware: tuple[Hardware, ...] = ()

    def comparison(self, scenario: Scenario, arm: Arm) -> Comparison | None:
        """The comparison of one scenario on one arm; None where there is none."""
        return next((c for c in self.comparisons if (c.scenario, c.arm) == (scenario, arm)), None)


_ANALYSIS = TypeAdapter(RunAnalysis)


def to_json(analysis: RunAnalysis) -> bytes:
    """analysis.json."""
    return _ANALYSIS.dump_json(analysis, indent=1, exclude_none=True) + b"\n"


def from_json(content: bytes | str) -> RunAnalysis:
    """An analysis from its JSON. Raises pydantic.ValidationError."""
    return _ANALYSIS.validate_json(content)

"""Outcome of published claims in a run: codes with their words, and numbers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from vmtoll.model.experiment import ClaimSide
from vmtoll.model.finding import Code
from vmtoll.model.message import WithText
from vmtoll.model.table import Described, column, columns
from vmtoll.model.verdict import RHO_WEIGHTS, BlockEffect, Estimate, Ratio, Region
from vmtoll.model.workload import listed


class Outcome(WithText):
    """Outcome of a published claim in a run."""

    CONFIRMED = "confirmed"
    REFUTED = "refuted"
    INCONCLUSIVE = "inconclusive", "inconclusive here"


class ReasonCode(WithText):
    """Reason for the outcome of a claim, or for the shape of a published figure; `Reason` has its numbers and names."""

    INTERVAL = "interval", "{where}, {blocks:plural block}"
    LEVEL = "level", "the interval of the mean ({low:number} to {high:number}) {where}"
    FAILURES_IN_A_BLOCK = "failures-in-a-block", "{most:g} in one of {blocks:plural block}"
    FEW_BLOCKS = "few-blocks", "{blocks:plural block}; an interval needs {needed:.0f}"
    ZERO_HAS_NO_RATIO = "zero-has-no-ratio", "a value of zero has no ratio"
    SOURCE_NOT_AT_HAND = "source-not-at-hand", "the source of {names} is not available"
    NOT_SHIPPED = "not-shipped", "{first} does not have {others}"
    NOT_MEASURED = "not-measured", "this run did not measure {side}"
    EMULATED = "emulated", "the guest was emulated (TCG), so its values say nothing about KVM"
    EMULATED_HARDWARE = (
        "emulated-hardware",
        "the hardware was emulated, so its values show that everything runs, not what it costs",
    )
    DIFFERENT_REQUESTS = "different-requests", "the two sides spent their CPU time on different numbers of requests"
    TOO_FEW_CORES = (
        "too-few-cores",
        "the claim is about more than {about:plural core}, and the machine has {had:plural core}",
    )
    ONE_CORE_FOR_WORKERS = (
        "one-core-for-workers",
        "the claim is about more workers at once, and the machine has one core",
    )
    NO_FIGURE = "no-figure", "no usable value[ of {claim_side}]: {why}"
    NO_COMPLETE_BLOCK = "no-complete-block", "no block has a usable value of every server and load"
    LIMITED = "limited", "{trials:.0f} of {used:.0f} trials are client-limited or link-limited ({codes})"
    FULL_LINK = "full-link", "the link of {names}, as published, was full in {trials:plural trial}"
    WITHOUT_SERVERS = "without-servers", "without {names}, which this run skipped"
    NOT_COMPARED = "not-compared", "the experimenter chooses how long a test lasts"
    NO_SUCH_METRIC = "no-such-metric", "not measured here"
    NO_SUCH_SERVER = "no-such-server", "this run has no {names}"
    NO_SUCH_WORKLOAD = "no-such-workload", "no workload of this run sends that"
    OTHER_TOOL = "other-tool", "the source used {first}, this run {others}"
    OTHER_LINK = "other-link", "link {names} here"
    SET_TO_A_MINUTE = "set-to-a-minute", "ours converted to one minute"


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


class EstimatorUsed(WithText):
    """Estimator that condensed the blocks' figures into one; MEAN_FEWER_…: fewer blocks than the estimator needs."""

    NONE = "none", "no value"
    MEDIAN = "median", "median of {blocks}"
    MEAN_OF_THREE = "mean-of-three"
    TRIMMED_SIX = "trimmed-six", "six runs, best and worst dropped"
    MEAN_FEWER_THAN_THREE = "mean-fewer-than-three", "mean of {blocks}, fewer than three"
    MEAN_FEWER_THAN_SIX = "mean-fewer-than-six", "mean of {blocks}, fewer than six"
    LOWEST = "lowest", "lowest of {blocks}"
    HIGHEST = "highest", "highest of {blocks}"


@dataclass(frozen=True)
class Level:
    """One figure of a side, condensed from its blocks' figures; `value` is None without figures."""

    value: float | None = None
    estimator: EstimatorUsed = EstimatorUsed.NONE
    blocks: int = 0


def _side(index: int) -> Callable[[tuple[ClaimSide, ...]], str | None]:
    """A function that writes the names of one side of a claim as key=name, with + between several; None without that
    side.
    """

    def names(sides: tuple[ClaimSide, ...]) -> str | None:
        if index >= len(sides):
            return None
        names_by_key = sides[index].model_dump(exclude_none=True)
        return " ".join(f"{key}={'+'.join(map(str, listed(names)))}" for key, names in names_by_key.items())

    return names


def _blocks_text(effects: tuple[BlockEffect, ...]) -> str:
    ends = ((effect.block, effect.low, effect.mid, effect.high) for effect in effects)
    return " ".join(":".join("" if value is None else f"{value!r}" for value in values) for values in ends)


@dataclass(frozen=True, kw_only=True)
class ClaimResult:
    """One claim with its outcome."""

    says: str = column("the claim in one sentence")
    metric: str = column("column of trials, or value of a rate sweep")
    unit: str = column("of a claim about one side: of the level", required=False)
    sides: tuple[ClaimSide, ...] = columns(
        Described(
            doc="whose values: server, environment, workload, users; + between several", name="of", value=_side(0)
        ),
        Described(
            doc="the side that it is compared with; empty of a claim about one side", name="over", value=_side(1)
        ),
    )
    published: tuple[float, ...] = column(
        "values that the source printed, separated by spaces",
        value=lambda published: " ".join(f"{value:g}" for value in published),
    )
    levels: tuple[Level, ...]  # of its sides, in `unit`, the unit of the metric's column
    published_ratio: float | None = column("their ratio", default=None)
    ratio: Ratio | None = columns(  # `of` ÷ `over`
        Described(doc="ratio as measured, or level", name="value", source="estimate.value"),
        Described(doc="lower end of the interval of that", name="low", source="estimate.low"),
        Described(doc="its upper end", name="high", source="estimate.high"),
        default=None,
    )
    limited: bool = column("in every block the client or the link set a value", required=False, default=False)
    blocks: int = column("blocks in which every side has a value", default=0)
    outcome: Outcome = column("confirmed, refuted or inconclusive here", before="published")
    region: Region | None = None  # where the interval of the ratio or level lies
    reasons: tuple[Reason, ...] = column(
        "codes of why, the one that decided first, separated by spaces", before="published", default=(),
        value=lambda reasons: " ".join(dict.fromkeys(reason.code.value for reason in reasons)),
    )  # fmt: skip
    level: Ratio | None = None  # the mean, for a claim about one side, in `unit`
    effects: tuple[BlockEffect, ...] = column(
        "of each block its number, the value as low as findings and lost trials allow, as measured, and as high, with "
        "colons; separated by spaces", value=_blocks_text, default=(),
    )  # fmt: skip
    rho_weights: tuple[float, ...] = columns(*RHO_WEIGHTS, default=())
    alpha: float | None = column(
        "probability at which the interval was made: 0.05, or what a look may spend", name="level", most=1,
        before="limited", default=None,
    )  # fmt: skip

    @property
    def estimate(self) -> Estimate | None:
        """The ratio of its two sides, or the level of its only one."""
        return self.ratio or self.level


class Shape(WithText):
    """Whether a published figure compares with the first one of its group as in this run. FIRST: it is the first one;
    ALONE: its group has no other figure.
    """

    SAME = "same", "same shape"
    NOT_SAME = "not-same", "different shape"
    INCONCLUSIVE = "inconclusive", "inconclusive here"
    FIRST = "first", "the measure"
    ALONE = "alone", ""

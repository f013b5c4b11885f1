"""Published claims in words: their outcomes, the reasons, and how figures were made."""

from collections.abc import Callable, Sequence

from vmtoll.analysis.published import Point, PublishedFigure
from vmtoll.model.experiment import ClaimSide
from vmtoll.model.message import percent, plural, ratio
from vmtoll.model.verdict import ClaimResult, Estimate, EstimatorUsed, Outcome, Reason, ReasonCode, Region, Shape
from vmtoll.report.words.terms import amount_text

OUTCOMES = {Outcome.CONFIRMED: "confirmed", Outcome.REFUTED: "refuted", Outcome.INCONCLUSIVE: "inconclusive here"}
SHAPES = {
    Shape.SAME: "same shape",
    Shape.NOT_SAME: "not the same shape",
    Shape.INCONCLUSIVE: "inconclusive here",
    Shape.FIRST: "the measure",
    Shape.ALONE: "",
}
ReasonedResult = ClaimResult | Point  # the results that have reasons


def ratio_text(estimate: Estimate) -> str:
    """`1.55 (1.41 to 1.70)`."""
    return amount_text(estimate, text=ratio)


def published_text(result: ClaimResult) -> str:
    """`1.55 published, 1.42 (1.30 to 1.55) here`."""
    published = [f"{ratio(result.published_ratio)} published"] if result.published_ratio is not None else []
    return ", ".join(published + ([f"{ratio_text(result.ratio)} here"] if result.ratio else []))


def side_text(side: ClaimSide, sides: Sequence[ClaimSide]) -> str:
    """Text that distinguishes this side from the others: `lighttz`, or `nginx on metal, page-4k, 100 users`."""
    keys = ("server", "environment", "workload", "users")
    differing = [key for key in keys if len({str(getattr(other, key)) for other in sides}) > 1]
    texts = [(key, _names(getattr(side, key))) for key in differing or ("server", "environment")]
    return ", ".join(f"{text} users" if key == "users" else text for key, text in texts if text)


def _names(value: str | int | Sequence[str] | Sequence[int] | None) -> str:
    if value is None:
        return ""
    return str(value) if isinstance(value, str | int) else " and ".join(map(str, value))


def estimator_text(used: EstimatorUsed, blocks: int) -> str:
    """The estimator that combined the blocks' figures: `median of 6`."""
    return {
        EstimatorUsed.NONE: "no value",
        EstimatorUsed.MEDIAN: f"median of {blocks}",
        EstimatorUsed.MEAN_OF_THREE: "mean of three",
        EstimatorUsed.TRIMMED_SIX: "six runs, best and worst dropped",
        EstimatorUsed.MEAN_FEWER_THAN_THREE: f"mean of {blocks}, fewer than three",
        EstimatorUsed.MEAN_FEWER_THAN_SIX: f"mean of {blocks}, fewer than six",
        EstimatorUsed.LOWEST: f"lowest of {blocks}",
        EstimatorUsed.HIGHEST: f"highest of {blocks}",
    }[used]


def reasons_text(result: ClaimResult) -> str:
    """Reasons for a claim's outcome."""
    return "; ".join(dict.fromkeys(reason_text(reason, result) for reason in result.reasons))


def heading_text(figure: PublishedFigure) -> str:
    """Heading of the published figures of one metric and load."""
    command = f"{figure.tool} {figure.load}{' -k' if figure.keep_alive == 'yes' else ''}".strip()
    size = figure.payload_bytes + (" bytes" if figure.payload_bytes.isdigit() else "")
    local = ", client on the same machine" if figure.environment == "localhost" else ""
    return f"{figure.metric.replace('_', ' ')}: {command}, {size}{local}"


def point_text(point: Point) -> str:
    """The reason for a published figure's shape, our estimator, and all other differences from the source."""
    reasons = [reason_text(reason, point) for reason in point.reasons]
    published = point.published_ratio
    parts = [f"published {published:.3g}; here {reasons.pop(0)}"] if published is not None and reasons else []
    if point.shape is Shape.ALONE:
        parts.append("no other value to compare it with")
    if point.measured_level.value is not None:
        parts.append(estimator_text(point.measured_level.estimator, point.measured_level.blocks))
    return "; ".join(parts + reasons)


def reason_text(reason: Reason, result: ReasonedResult) -> str:
    """One reason for the outcome of a claim, or for the shape of a published figure."""
    return _REASONS[reason.code](reason, result)


def _names_text(reason: Reason) -> str:
    return ", ".join(reason.names)


def _side_or_names(reason: Reason, result: ReasonedResult) -> str:
    """The side of a claim that a reason concerns, else the names of the reason."""
    if "side" not in reason.values or not isinstance(result, ClaimResult):
        return _names_text(reason)
    return side_text(result.sides[int(reason.values["side"])], result.sides)


def _interval(reason: Reason, result: ReasonedResult) -> str:
    estimate = result.ratio if isinstance(result, ClaimResult) else result.measured_ratio
    measured = ratio_text(estimate) if estimate else "unknown"
    limit = reason.values["limit"]
    limit_text = "1" if limit == 1 else f"±{percent(limit - 1)}"
    text = {
        Region.ABOVE: f"the ratio {measured} lies above {limit_text}",
        Region.BELOW: f"the ratio {measured} lies below {limit_text}",
        Region.WITHIN: f"the ratio {measured} lies within {limit_text}: equal",
        Region.ACROSS: f"the interval of the ratio {measured} reaches across {limit_text}",
    }[result.region or Region.ACROSS]
    return f"{text}, {plural(result.blocks, 'block')}"


def _level(reason: Reason, result: ReasonedResult) -> str:
    low, high, limit = (reason.values[key] for key in ("low", "high", "limit"))
    interval = f"the interval of the mean ({low:.4g} to {high:.4g})"
    if result.region not in (Region.ABOVE, Region.BELOW):
        return f"{interval} does not decide about {limit:g}"
    return f"{interval} lies at or {result.region} {limit:g}, {plural(result.blocks, 'block')}"


def _no_figure(reason: Reason, result: ReasonedResult) -> str:
    why = ", ".join(reason.codes) or f"no trial has {_names_text(reason)}"
    side = _side_or_names(reason, result) if isinstance(result, ClaimResult) else ""
    return f"no usable value{f' of {side}' if side else ''}: {why}"


def _cores(number: float) -> str:
    return "one core" if number == 1 else f"{number:.0f} cores"


_REASONS: dict[ReasonCode, Callable[[Reason, ReasonedResult], str]] = {
    ReasonCode.INTERVAL: _interval,
    ReasonCode.LEVEL: _level,
    ReasonCode.FAILURES_IN_A_BLOCK: lambda r, c: f"{r.values['most']:g} in one of {plural(c.blocks, 'block')}",
    ReasonCode.FEW_BLOCKS: lambda r, c: (
        f"{plural(int(r.values['blocks']), 'block')}; an interval needs {r.values['needed']:.0f}"
    ),
    ReasonCode.ZERO_HAS_NO_RATIO: lambda r, c: "a value of zero has no ratio",
    ReasonCode.SOURCE_NOT_AT_HAND: lambda r, c: f"source of {_names_text(r)} not available",
    ReasonCode.NOT_SHIPPED: lambda r, c: f"{', '.join(r.names[1:])} not in {r.names[0]}",
    ReasonCode.NOT_MEASURED: lambda r, c: f"this run did not measure {_side_or_names(r, c)}",
    ReasonCode.EMULATED: lambda r, c: "the guest was emulated (TCG), so its values say nothing about KVM",
    ReasonCode.EMULATED_HARDWARE: lambda r, c: (
        "the hardware was emulated, so its values show that the path works, not what it costs"
    ),
    ReasonCode.DIFFERENT_REQUESTS: lambda r, c: "the seconds of CPU are of different numbers of requests",
    ReasonCode.TOO_FEW_CORES: lambda r, c: (
        f"the claim is about more than {_cores(r.values['about'])}, and the machine has {_cores(r.values['had'])}"
    ),
    ReasonCode.ONE_CORE_FOR_WORKERS: lambda r, c: (
        "the claim is about more workers at once, and the machine has one core"
    ),
    ReasonCode.NO_FIGURE: _no_figure,
    ReasonCode.NO_COMPLETE_BLOCK: lambda r, c: "no block has a usable value of every server and load",
    ReasonCode.LIMITED: lambda r, c: (
        f"{r.values['trials']:.0f} of {r.values['used']:.0f} trials are client-limited or link-limited"
        f" ({', '.join(r.codes)})"
    ),
    ReasonCode.FULL_LINK: lambda r, c: (
        f"the link of {_names_text(r)}, as published, was full in {plural(int(r.values['trials']), 'trial')}"
    ),
    ReasonCode.NOT_COMPARED: lambda r, c: "the experimenter chooses how long a test lasts",
    ReasonCode.NO_SUCH_METRIC: lambda r, c: "not measured here",
    ReasonCode.NO_SUCH_SERVER: lambda r, c: f"this run has no {_names_text(r)}",
    ReasonCode.NO_SUCH_WORKLOAD: lambda r, c: "no workload of this run sends that",
    ReasonCode.OTHER_TOOL: lambda r, c: f"the source used {r.names[0]}, this run {', '.join(r.names[1:])}",
    ReasonCode.OTHER_LINK: lambda r, c: f"link {_names_text(r)} here",
    ReasonCode.SET_TO_A_MINUTE: lambda r, c: "ours converted to one minute",
    ReasonCode.WITHOUT_SERVERS: lambda r, c: f"without {_names_text(r)}, which this run skipped",
}

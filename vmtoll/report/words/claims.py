"""Published claims in words: their outcomes, the reasons, and how figures were made."""

from collections.abc import Sequence

from vmtoll.analysis.published import Point, PublishedFigure
from vmtoll.model.claim import ClaimResult, EstimatorUsed, Reason, ReasonCode, Shape
from vmtoll.model.experiment import ClaimSide
from vmtoll.model.message import message, percent, plural, ratio
from vmtoll.model.verdict import Region
from vmtoll.report.words.terms import ratio_text

ReasonedResult = ClaimResult | Point  # the results that have reasons


def published_text(result: ClaimResult) -> str:
    """`1.55 published, 1.42 (1.30 to 1.55) here`."""
    published = [f"{ratio(result.published_ratio)}× published"] if result.published_ratio is not None else []
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
    return message(used.text, {"blocks": blocks})


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
    parts = [f"published {ratio(published)}×; here {reasons.pop(0)}"] if published is not None and reasons else []
    if point.shape is Shape.ALONE:
        parts.append("no other value to compare it with")
    if point.measured_level.value is not None:
        parts.append(estimator_text(point.measured_level.estimator, point.measured_level.blocks))
    return "; ".join(parts + reasons)


def reason_text(reason: Reason, result: ReasonedResult) -> str:
    """One reason for the outcome of a claim, or for the shape of a published figure."""
    names = ", ".join(reason.names)
    side = names
    if isinstance(result, ClaimResult) and "side" in reason.values:
        side = side_text(result.sides[int(reason.values["side"])], result.sides)
    codes = ", ".join(reason.codes)
    values = {
        "names": names, "first": "".join(reason.names[:1]), "others": ", ".join(reason.names[1:]), "codes": codes,
        "claim_side": side if isinstance(result, ClaimResult) else "", "why": codes or f"no trial has {names}",
        "blocks": result.blocks, "where": _where(reason, result), **reason.values,
    }  # fmt: skip
    return message(reason.code.text, values | {"side": side})


def _where(reason: Reason, result: ReasonedResult) -> str:
    """Where the interval of a ratio, or of a level, lies."""
    limit, region = reason.values.get("limit", 1.0), result.region or Region.ACROSS
    if reason.code is ReasonCode.LEVEL:
        if region not in (Region.ABOVE, Region.BELOW):
            return f"does not decide about {limit:g}"
        return f"lies at or {region} {limit:g}, {plural(result.blocks, 'block')}"
    estimate = result.ratio if isinstance(result, ClaimResult) else result.measured_ratio
    measured = ratio_text(estimate) if estimate else "unknown"
    return message(region.text, {"ratio": measured, "limit": "1" if limit == 1 else f"±{percent(limit - 1)}"})

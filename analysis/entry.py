"""One metric of one comparison as the verdict's JSON says it: kind, text, figures, tests, both sides."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from analysis.compare import Comparison
from analysis.family import Tested
from analysis.judge import INVALID, Judgement, percent
from analysis.load import BASELINE
from analysis.metrics import Metric
from analysis.stats import Interval, noise_floor, signed_rank_level

REACHED = 0.98  # of the offered rate, as the gate has it


def as_dict(
    comparison: Comparison, judgement: Judgement, tested: Tested | None, family: int, source: str, guest: str
) -> dict[str, Any]:
    """JSON-serialisable. `ratio` is guest/metal; `effect` the overhead (throughput) or the cost ratio.

    `family` is the number of comparisons that Holm corrects for; the adjusted p-values are null where no
    test decides. `source` is the tool that measured, `guest` what the text calls the guest.
    """
    metric, effect = comparison.metric, comparison.effect
    floor = noise_floor(comparison.same)
    result = _empty(metric) | {
        "kind": judgement.kind,
        "text": judgement.text(guest),
        "source": source,
        "bound": judgement.bound or None,
        "more_blocks": judgement.more_blocks,
        "blocks": comparison.pairs,
        "noise_floor": None if floor is None else math.expm1(floor),
        "noise_floor_from": comparison.same_server or None,
        "limited": comparison.limited,
        "suspect": comparison.suspect,
        "excluded": comparison.excluded,
        "notes": judgement.notes,
        "family": family,
        "p_value": effect.p_difference if effect else None,
        "p_holm": tested.difference.holm if tested else None,
        "p_equivalence": tested.equivalence.p if tested else None,
        "p_equivalence_holm": tested.equivalence.holm if tested else None,
    }
    sign = -1.0 if metric.higher_is_better else 1.0
    if effect is not None:
        t, rank = flip(effect.t, sign), flip(effect.signed_rank, sign)
        result |= in_units("", sign * effect.mean, t, metric.higher_is_better)
        result |= in_units("hodges_lehmann_", sign * effect.median, rank, metric.higher_is_better)
        result |= {"hodges_lehmann_level": signed_rank_level(effect.n), "intervals_disagree": effect.disagree}
    return result


def not_applicable(metric: Metric, reason: str) -> dict[str, Any]:
    """The entry of a metric that says nothing of a server under this kind of load."""
    return _empty(metric) | {"kind": INVALID, "text": f"{INVALID} {reason}", "applies": False}


def _empty(metric: Metric) -> dict[str, Any]:
    return {
        "kind": None, "text": None, "applies": True, "bound": None, "more_blocks": None, "label": metric.label,
        "source": None, "effect_is": "overhead" if metric.higher_is_better else "cost ratio", "blocks": 0,
        "noise_floor": None, "noise_floor_from": None, "limited": 0, "suspect": 0, "excluded": 0, "notes": [],
        "family": 0, "p_value": None, "p_holm": None, "p_equivalence": None, "p_equivalence_holm": None,
        "availability": None, "trimmed_2009": None,
    }  # fmt: skip


def flip(interval: Interval | None, sign: float) -> Interval | None:
    """The interval of the negated figure where `sign` is negative."""
    if interval is None or sign > 0:
        return interval
    return Interval(-interval.high, -interval.low)


def in_units(prefix: str, mean: float, interval: Interval | None, overhead: bool) -> dict[str, float | None]:
    """log(guest/metal) → `ratio`, and `effect`: 1 − ratio for throughput, the ratio itself for costs."""
    low = high = None
    if interval is not None:
        low, high = math.exp(interval.low), math.exp(interval.high)
    ratio = math.exp(mean)
    effect = (1 - ratio, _less(high), _less(low)) if overhead else (ratio, low, high)
    return {
        f"{prefix}ratio": ratio, f"{prefix}ratio_low": low, f"{prefix}ratio_high": high,
        f"{prefix}effect": effect[0], f"{prefix}effect_low": effect[1], f"{prefix}effect_high": effect[2],
    }  # fmt: skip


def _less(ratio: float | None) -> float | None:
    return None if ratio is None else 1 - ratio


def failure_note(sides: dict[str, dict[str, Any] | None], guest: str) -> list[str]:
    """What a percentile must be shown with when requests failed; the sides as `availability` gives them."""
    parts = []
    for name, side in (("metal", sides["metal"]), (guest, sides["guest"])):
        if side and side["successful"] < side["requests"]:
            rate, low, high = (f"{100 * (1 - side[key]):.2g}" for key in ("share", "high", "low"))
            parts.append(f"{rate}% [{low}, {high}] on {name}")
    return [f"failed requests: {' and '.join(parts)}"] if parts else []


def attained_words(cell: pd.DataFrame, guest: str) -> str:
    """How much of an open loop's rate each side answered: medians over the trials that are not invalid."""
    short = []
    for environment in (BASELINE, guest):
        rows = cell[(cell["environment"] == environment) & (cell["verdict"] != "invalid")]
        offered, answered = rows["offered_rps"].median(), (rows["throughput_rps"] / rows["offered_rps"]).median()
        if pd.isna(answered):
            short.append(f"{environment} has no valid trial")
        elif answered < REACHED:
            short.append(f"{environment} answered {percent(answered)} of {offered:,.0f}/s")
    return " and ".join(short) or "offered load reached on both sides"


def rates_note(cell: pd.DataFrame, guest: str) -> list[str]:
    """Of a load that is a share of each side's own capacity: what that came to, median per side."""
    if not cell["offered_load"].str.startswith("share:").all():
        return []
    rates = [(e, cell.loc[cell["environment"] == e, "offered_rps"].median()) for e in (BASELINE, guest)]
    return ["each side at its own rate: " + ", ".join(f"{rate:,.0f}/s on {name}" for name, rate in rates)]


def client_note(cell: pd.DataFrame) -> list[str]:
    """Of a load that came from the machine under test itself."""
    if not (cell["client"] == "localhost").any():
        return []
    return ["client on the same machine: it took its part of the CPUs that the server had"]


def cross_check_note(own: Comparison, other: Comparison, name: str) -> list[str]:
    """What the independent tool says, where its interval and the tool's do not even touch."""
    one, two = (side.effect.t if side.effect else None for side in (own, other))
    if one is None or two is None or (one.low <= two.high and two.low <= one.high):
        return []
    low, high = math.exp(two.low), math.exp(two.high)
    return [f"the cross-check by {name} disagrees: guest ÷ metal {low:.2f} to {high:.2f}"]

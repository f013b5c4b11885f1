"""The claims of a published experiment, each judged by one run: held, did not hold, or cannot be told here.

A claim says that one side is above or below another (`over`, in the direction of the published figures), that both
are equal within so many percent (`within_pct`), or that one side reaches a level (`at_least`, `at_most`). What
decides is the 95% interval over blocks (paired t of log ratios, or Student's of a level; Student 1908), each claim on
its own: no correction for how many there are. An interval that leaves both answers open decides nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from analysis.evidence import (
    MIN_CLAIM_BLOCKS,
    OF_FAILURES,
    Ratio,
    Side,
    column_side,
    estimate,
    level,
    proves,
    ratio,
)
from analysis.load import FIELDS, Run
from analysis.reasons import bounds, full_link, refused, side_words, without
from analysis.stats import Interval
from analysis.verdict import margin_of

HELD, NOT_HELD, UNKNOWN = "held", "did not hold", "cannot be told here"
OUTCOMES = (HELD, NOT_HELD, UNKNOWN)
UNITS = {str(field["name"]): str(field.get("unit") or "") for field in FIELDS} | {"peak_goodput_rps": "1/s"}


@dataclass(frozen=True)
class Judged:
    """One claim with its outcome. Figures of `of` and `over`, in `unit`; an entry is None where there is no figure.

    `how`: which estimator made our figures. `published_ratio` and `ratio` are `of` ÷ `over`, None for a level.
    """

    says: str
    metric: str
    unit: str
    sides: tuple[str, ...]
    published: tuple[float, ...]
    ours: tuple[float | None, ...]
    how: str
    published_ratio: float | None
    ratio: Ratio | None
    outcome: str
    why: str


def judge_claims(run: Run) -> list[Judged]:
    """The claims of the run's experiment, in its order; none for an experiment that has none."""
    return [_judged(run, claim) for claim in run.meta["experiment"].get("claims") or []]


def counts(judged: list[Judged]) -> dict[str, int]:
    """Outcome → how many claims have it."""
    return {outcome: sum(one.outcome == outcome for one in judged) for outcome in OUTCOMES}


def _judged(run: Run, claim: dict[str, Any]) -> Judged:
    metric, of = str(claim["metric"]), dict(claim["of"])
    names = [of] if not claim.get("over") else [of, of | {k: v for k, v in claim["over"].items() if v}]
    sides = [column_side(run, one, metric) for one in names]
    estimator = str(run.meta["experiment"].get("published_estimator") or "median")
    figures = [estimate(list(one.figures), estimator) for one in sides]
    published = tuple(float(figure) for figure in claim.get("published") or [])
    found = ratio(sides[0], sides[1], metric) if len(sides) == 2 else None
    reasons = "; ".join(dict.fromkeys(refused(run, names, sides, metric)))
    if reasons:
        outcome, why = UNKNOWN, reasons
    elif len(sides) == 1:
        outcome, why = _level(sides[0], metric, claim)
    elif found is None:
        outcome, why = UNKNOWN, "a figure of zero has no ratio"
    else:
        there = _published_ratio(published)
        outcome, why = decide(found, there, claim.get("within_pct"), margin_of(run))
        why = "; ".join([why, *bounds(sides), *full_link(run, sides), *without(run, names)])
    return Judged(
        says=str(claim["says"]),
        metric=metric,
        unit=UNITS.get(metric, ""),
        sides=tuple(side_words(one, names) for one in names),
        published=published,
        ours=tuple(figure for figure, _ in figures),
        how=figures[0][1],
        published_ratio=published[0] / published[1] if len(published) == 2 and min(published) > 0 else None,
        ratio=found,
        outcome=outcome,
        why=why,
    )


def decide(found: Ratio, published: float, within_pct: float | None, margin: float) -> tuple[str, str]:
    """(outcome, why) of a ratio against the published one; `margin` a fraction below which a difference is none.

    Direction: held when the whole interval lies on the published side of 1; did not hold when it lies on the other,
    or within the margin where the published one does not. Equality: held when the whole interval lies within
    ±`within_pct`, did not hold when it lies outside. A bound (see Ratio) decides only in the direction it proves.
    """
    interval = found.interval
    if interval is None:
        return UNKNOWN, _too_few(found.blocks)
    if within_pct is not None:
        limit = 1 + within_pct / 100
        kind = _place(found, interval, limit)
        outcome = {"within": HELD, "above": NOT_HELD, "below": NOT_HELD}.get(kind, UNKNOWN)
        return outcome, _why(kind, found, f"±{within_pct:g}%")
    kind = _place(found, interval, 1.0)
    if kind == "open" and abs(math.log(published)) > math.log1p(margin):
        kind = "within" if _place(found, interval, 1 + margin) == "within" else "open"
    claimed = "above" if published > 1 else "below"
    outcome = {claimed: HELD, "open": UNKNOWN, "bound": UNKNOWN}.get(kind, NOT_HELD)
    return outcome, _why(kind, found, f"±{100 * margin:g}%" if kind == "within" else "1")


def _too_few(blocks: int) -> str:
    return f"{blocks} block{'' if blocks == 1 else 's'}, {MIN_CLAIM_BLOCKS} are the fewest that have an interval"


def _place(found: Ratio, interval: Interval, limit: float) -> str:
    """Where the interval lies: `above` limit, `below` 1/limit, `within` both, `open` across one of them; `bound`
    where it would lie so, but only bounds that client or link set.
    """
    if interval.low > limit:
        return "above" if found.up else "bound"
    if interval.high < 1 / limit:
        return "below" if found.down else "bound"
    if 1 / limit <= interval.low and interval.high <= limit:
        return "within" if found.up and found.down else "bound"
    return "open"


def _why(kind: str, found: Ratio, limit: str) -> str:
    words = {
        "above": f"the ratio {found.words} lies above {limit}",
        "below": f"the ratio {found.words} lies below {limit}",
        "within": f"the ratio {found.words} lies within {limit}: equal",
        "bound": f"the ratio {found.words} is only a bound, in the direction that decides nothing",
        "open": f"the interval of the ratio {found.words} reaches across {limit}",
    }
    return f"{words[kind]}, {found.blocks} blocks"


def _level(one: Side, metric: str, claim: dict[str, Any]) -> tuple[str, str]:
    """(outcome, why) of one side against a level: the 95% interval of its mean decides.

    Of what counts failures, at most so many: one block with more refutes it, whatever the mean.
    """
    if claim.get("at_most") is not None and OF_FAILURES.get(metric) == "sum":
        beyond = one.figures[one.figures > float(claim["at_most"])]
        if len(beyond):
            return NOT_HELD, f"{beyond.max():g} in one of {len(one.figures)} blocks"
    interval, (up, down) = level(one), proves(one, metric)
    if interval is None:
        return UNKNOWN, _too_few(len(one.figures))
    least, most = claim.get("at_least"), claim.get("at_most", math.nan)
    words = f"the interval of the mean [{interval.low:.4g}, {interval.high:.4g}]"
    limit = float(most if least is None else least)
    above, below = interval.low >= limit and up, interval.high <= limit and down
    if least is not None:
        below = interval.high < limit and down
    else:
        above = interval.low > limit and up
    if not above and not below:
        bound = "; ".join(bounds([one]))
        return UNKNOWN, f"{words} does not decide about {limit:g}{'; ' + bound if bound else ''}"
    outcome = HELD if above == (least is not None) else NOT_HELD
    return outcome, f"{words} lies at or {'above' if above else 'below'} {limit:g}, {len(one.figures)} blocks"


def _published_ratio(published: tuple[float, ...]) -> float:
    """`of` ÷ `over`; without figures `of` is claimed to be the larger."""
    if len(published) != 2:
        return math.inf
    return published[0] / published[1] if min(published) > 0 else (math.inf if published[0] else 5e-324)

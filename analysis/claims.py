"""The claims of a published experiment, each judged by one run: held, did not hold, or cannot be told here.

A claim says that one side is above or below another (`over`, in the direction of the published figures), that both
are equal within so many percent (`within_pct`), or that one side reaches a level (`at_least`, `at_most`). What
decides is the 95% interval over blocks (paired t of log ratios, or Student's of a level; Student 1908), each claim on
its own: no correction for how many there are. An interval that leaves both answers open decides nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from analysis.evidence import (
    MIN_CLAIM_BLOCKS,
    Ratio,
    Side,
    column_side,
    emulated,
    estimate,
    level,
    listed,
    prescribes_link,
    proves,
    ratio,
)
from analysis.load import FIELDS, Run
from analysis.stats import Interval
from analysis.verdict import margin_of

HELD, NOT_HELD, UNKNOWN = "held", "did not hold", "cannot be told here"
OUTCOMES = (HELD, NOT_HELD, UNKNOWN)
# What counts messages and bytes, not time: emulation makes it slow, not wrong.
TOLD_UNDER_EMULATION = frozenset({"messages_lost", "messages_doubled", "bodies_wrong"})
PER_RUN = frozenset({"server_cpu_user_s", "server_cpu_system_s"})  # seconds over all requests of a trial
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
    refused = "; ".join(dict.fromkeys(_refused(run, names, sides, metric)))
    if refused:
        outcome, why = UNKNOWN, refused
    elif len(sides) == 1:
        outcome, why = _level(sides[0], metric, claim)
    elif found is None:
        outcome, why = UNKNOWN, "a figure of zero has no ratio"
    else:
        there = _published_ratio(published)
        outcome, why = decide(found, there, claim.get("within_pct"), margin_of(run))
        why = "; ".join([why, *_bounds(sides), *_link(run, sides), *_without(run, names)])
    return Judged(
        says=str(claim["says"]),
        metric=metric,
        unit=UNITS.get(metric, ""),
        sides=tuple(_words(one, names) for one in names),
        published=published,
        ours=tuple(figure for figure, _ in figures),
        how=figures[0][1],
        published_ratio=_published_ratio(published) if len(published) == 2 else None,
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
        return UNKNOWN, f"{found.blocks} blocks, {MIN_CLAIM_BLOCKS} are the fewest that have an interval"
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
    """(outcome, why) of one side against a level: the 95% interval of its mean decides."""
    interval, (up, down) = level(one), proves(one, metric)
    if interval is None:
        return UNKNOWN, f"{len(one.figures)} blocks, {MIN_CLAIM_BLOCKS} are the fewest that have an interval"
    least, most = claim.get("at_least"), claim.get("at_most", math.nan)
    words = f"the interval of the mean [{interval.low:.4g}, {interval.high:.4g}]"
    limit = float(most if least is None else least)
    above, below = interval.low >= limit and up, interval.high <= limit and down
    if least is not None:
        below = interval.high < limit and down
    else:
        above = interval.low > limit and up
    if not above and not below:
        bound = "; ".join(_bounds([one]))
        return UNKNOWN, f"{words} does not decide about {limit:g}{'; ' + bound if bound else ''}"
    outcome = HELD if above == (least is not None) else NOT_HELD
    return outcome, f"{words} lies at or {'above' if above else 'below'} {limit:g}, {len(one.figures)} blocks"


def _refused(run: Run, names: list[dict[str, Any]], sides: list[Side], metric: str) -> Iterator[str]:
    """Why these figures decide nothing, whatever they say."""
    skipped = {str(one["server"]) for one in run.meta.get("skipped") or []}
    for name, one in zip(names, sides, strict=True):
        if one.trials.empty:
            absent = _absent(run, name)
            lacking = ", ".join(server for server in absent if server in skipped)
            yield f"source of {lacking} not at hand" if lacking else f"this run did not measure {', '.join(absent)}"
    if any(one.trials.empty for one in sides):
        return
    if emulated(run, sides) and metric not in TOLD_UNDER_EMULATION:
        yield "the guest was emulated (TCG): no figure of it is a KVM figure"
    if metric in PER_RUN and len({_requests(one) for one in sides}) > 1:
        yield "seconds of CPU for different numbers of requests"
    yield from _cores(run, names, sides)
    if any(one.used == 0 for one in sides):
        for name, one in zip(names, sides, strict=True):
            if one.used == 0:
                codes = ", ".join(sorted(one.refused)) or f"no trial has {metric}"
                yield f"no usable figure of {_words(name, names)}: {codes}"
    elif min(len(one.figures) for one in sides) == 0:
        yield "no block has a usable figure of every cell"


def _absent(run: Run, name: dict[str, Any]) -> list[str]:
    """The names of a side that no trial has; the side itself when only their combination is absent."""
    keys = ("server", "environment", "workload")
    found = [one for key in keys for one in listed(name.get(key)) if one not in set(run.trials[key])]
    return found or [_words(name, [name])]


def _requests(one: Side) -> float:
    """Requests of a trial, to two digits."""
    return float(f"{one.trials['transactions'].median():.2g}")


def _cores(run: Run, names: list[dict[str, Any]], sides: list[Side]) -> Iterator[str]:
    """A claim about more cores, or more workers, where the server had no more of them.

    An experiment that limits the cores of one workload means more cores by its others; sides whose servers have
    different numbers of workers mean what these do side by side.
    """
    had = [max(one.cores, default=0) for one in sides]
    if not all(had):
        return
    workloads = run.meta["experiment"].get("resolved", {}).get("workloads", {})
    limits = {name: one.get("cores") for name, one in workloads.items()}
    fewest = min((n for n in limits.values() if n), default=0)
    unlimited = [any(not limits.get(w) for w in listed(one.get("workload"))) for one in names]
    if fewest and any(free and cores <= fewest for free, cores in zip(unlimited, had, strict=True)):
        yield f"it is about more than {_cores_words(fewest)}, and the machine has {_cores_words(min(had))}"
        return
    workers = [{_workers(run, server) for server in listed(one.get("server"))} - {0} for one in names]
    if max(had) == 1 and len(workers) == 2 and all(workers) and max(workers[0]) != max(workers[1]):
        yield "it is about more workers at once, and the machine has one core"


def _cores_words(n: int) -> str:
    return "one core" if n == 1 else f"{n} cores"


def _workers(run: Run, server: str) -> int:
    facts = (host.get("servers") or {} for host in run.hosts.values() if isinstance(host, dict))
    return max((int((one.get(server) or {}).get("workers") or 0) for one in facts), default=0)


def _bounds(sides: list[Side]) -> Iterator[str]:
    limited = sum(one.limited for one in sides)
    if limited:
        codes = ", ".join(sorted({code for one in sides for code in one.limits}))
        yield f"in {limited} of {sum(one.used for one in sides)} trials client or link set the pace ({codes})"


def _link(run: Run, sides: list[Side]) -> Iterator[str]:
    """The experiment's own link was full: that is part of the claim, and said."""
    full = sum("link-bound" in codes for one in sides for codes in one.trials["codes"])
    if full and prescribes_link(run):
        yield f"the link of {run.meta['experiment']['link']}, as published, was full in {full} trials"


def _without(run: Run, names: list[dict[str, Any]]) -> Iterator[str]:
    """Servers of a side of several whose source was not at hand."""
    named = {server for one in names for server in listed(one.get("server"))}
    lacking = [str(one["server"]) for one in run.meta.get("skipped") or [] if one["server"] in named]
    if lacking:
        yield f"without {', '.join(lacking)}, whose source is not at hand"


def _published_ratio(published: tuple[float, ...]) -> float:
    """`of` ÷ `over`; without figures `of` is claimed to be the larger."""
    if len(published) != 2:
        return math.inf
    return published[0] / published[1] if min(published) > 0 else (math.inf if published[0] else 5e-324)


def _words(one: dict[str, Any], all_sides: list[dict[str, Any]]) -> str:
    """What tells this side from the other: `lighttz`, or `nginx on metal, page-4k-100`."""
    keys = [key for key in ("server", "environment", "workload") if len({str(side.get(key)) for side in all_sides}) > 1]
    return ", ".join(" and ".join(listed(one.get(key))) for key in keys or ("server", "environment"))

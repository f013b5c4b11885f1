"""The capacity of one machine: how far up the ladder it meets the objective, and what it runs into there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from analysis.capacity.resources import Ends, as_dict
from analysis.capacity.rungs import ENDS, HIGH, LOW, MID, P99, Rung, geometric
from analysis.capacity.slo import Slo
from analysis.stats import MIN_BLOCKS

BUSY = 0.85  # of a resource: above it the queue for it, not chance, makes the tail


@dataclass(frozen=True)
class One:
    """One machine (or guest) with one server. Rates in requests per second.

    `rates`: end of the interval (`low`, `mid`, `high`) → the highest rate of the ladder up to which the objective
    is met, judged by that end (see `Rung.misses`); None where it is missed at the lowest rate already. `open_end`:
    the ends at which even the highest rate meets it: there the true capacity is more, by how much was not measured.
    `broken`: the rung above the low rate, where something gives way; None with an open end.
    """

    rungs: list[Rung]
    rates: dict[str, float | None]
    open_end: tuple[str, ...]
    at: Rung
    broken: Rung | None


def capacity_of_one(rungs: Sequence[Rung], slo: Slo, *, searched: bool = False) -> One:
    """Climb until the objective is missed for the first time; what is met above that counts as chance.

    `searched`: the rungs are those of a search, which tries what lies far below its end less often.
    """
    steps = {end: _steps(rungs, slo, end) for end in ENDS}
    if searched:
        steps[LOW] = _shown(rungs[: steps[MID]], slo)
    low = steps[LOW]
    return One(
        rungs=list(rungs),
        rates={end: rungs[count - 1].rate_rps if count else None for end, count in steps.items()},
        open_end=tuple(end for end in ENDS if steps[end] == len(rungs)),
        at=rungs[max(low - 1, 0)],
        broken=rungs[low] if low < len(rungs) else None,
    )


def _steps(rungs: Sequence[Rung], slo: Slo, end: str) -> int:
    missed = (place for place, rung in enumerate(rungs) if rung.misses(slo, end))
    return next(missed, len(rungs))


def _shown(rungs: Sequence[Rung], slo: Slo) -> int:
    """Up to the highest that is shown to meet the objective: what holds there holds at a lower rate."""
    return max((place for place, rung in enumerate(rungs, start=1) if not rung.misses(slo, LOW)), default=0)


def binds(one: One, shares: dict[str, float | None], slo: Slo) -> str:
    """What keeps one machine from more, by the rung that broke; `shares` is what that rung used."""
    if one.broken is None:
        return "nothing yet: the highest rate that was measured meets the objective"
    link = "link-bound" in one.broken.limits
    if one.broken.limits and not link:
        return f"the client ({', '.join(one.broken.limits)})"
    if link or (shares["link"] or 0) >= BUSY:
        return "link"
    for resource, word in (("cpu", "CPU"), ("memory", "memory")):
        if (shares[resource] or 0) >= BUSY:
            return word
    missed = one.broken.misses(slo, LOW)
    if not one.broken.misses(slo, MID):
        return f"too few {'requests' if one.broken.too_few(slo) else 'blocks'} to be sure of the {missed}"
    return f"SLO ({missed})"


def notes(one: One, slo: Slo, bound: dict[str, Any] | None, search: dict[str, Any] | None = None) -> list[str]:
    """What a reader has to know before these figures are used; empty when there is nothing.

    `search`: the keys of the workload, where the rates were chosen by a search.
    """
    said = _search_notes(one, slo, search) if search else []
    decisive = [one.at, one.broken or one.at] if search else one.rungs
    fewest = min(rung.blocks for rung in decisive if rung.rate_rps <= (one.broken or one.rungs[-1]).rate_rps)
    if fewest < MIN_BLOCKS:
        said.append(f"{fewest} of at least {MIN_BLOCKS} blocks")
    if (one.at.trials["client"] == "localhost").any():
        said.append("the load came from the machine itself, and took CPU from the server")
    if LOW in one.open_end:
        end = "the search tried nothing above" if search else "the ladder ends at"
        said.append(f"{end} {one.rungs[-1].rate_rps:,.0f}/s; what lies above was not measured")
    elif one.rates[HIGH] is None:
        said.append(f"not even {one.rungs[0].rate_rps:,.0f}/s meets it, and nothing below was measured")
    elif one.rates[LOW] is None:
        said.append("no rate is shown to meet it; more blocks may")
    if one.broken and one.broken.too_few(slo):
        said.append(
            f"none of {one.broken.requests:,} requests at {one.broken.rate_rps:,.0f}/s failed, but so few cannot show"
            f" {slo.availability_pct:.6g}%"
        )
    above = [r for r in one.rungs if r.rate_rps > (one.rates[LOW] or 0) and r is not one.broken]
    if any(not rung.misses(slo, LOW) for rung in above):
        said.append("a higher rate met it after a lower one had missed it; it is not counted")
    if bound and (one.rates[LOW] or 0) > bound["rate_rps"]:
        said.append(
            f"more than the {bound['rate_rps']:,.0f}/s at which Erlang C holds this p99: arrivals were smoother than"
            " chance, or not all CPU was counted"
        )
    return said


def _search_notes(one: One, slo: Slo, search: dict[str, Any]) -> list[str]:
    said = []
    sought = Slo(search["deadline_ms"], search["availability_pct"])
    if sought != slo:
        said.append(f"the search was for {sought.words}: its rates may lie far apart for another")
    low, broken = one.rates[LOW], one.broken
    if low and broken and broken.rate_rps > low * (1 + search["resolution_pct"] / 100) * 1.005:  # rungs are rounded
        said.append(
            f"between {low:,.0f} and {broken.rate_rps:,.0f}/s, which are further apart than"
            f" {search['resolution_pct']:g}%, nothing was measured: more blocks go on"
        )
    return said


def p99_ms(rung: Rung) -> Ends | None:
    """The p99 at a rung, in milliseconds, with its interval over blocks."""
    return as_dict(geometric(rung.trials[P99] / 1e3))

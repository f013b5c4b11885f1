"""Limits that keep one machine from carrying more, and notes to read before its capacity is used."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from vmtoll.capacity.estimate import End, Ends
from vmtoll.capacity.objective import Part, Slo
from vmtoll.capacity.rate_sweep import Step, UnitCapacity, requests_to_show
from vmtoll.capacity.resources import ErlangBound, Usage
from vmtoll.model.finding import Code
from vmtoll.model.trial import ClientPlace
from vmtoll.model.workload import SearchWorkload
from vmtoll.statistics.thresholds import BUSY, MIN_EQUIVALENT_BLOCKS


class Binds(StrEnum):
    """Limit that keeps one machine from carrying more. NOTHING: the highest measured rate meets the objective."""

    NOTHING = "nothing"
    CLIENT = "client"
    LINK = "link"
    CPU = "cpu"
    MEMORY = "memory"
    OBJECTIVE = "objective"
    TOO_FEW_REQUESTS = "too-few-requests"
    TOO_FEW_BLOCKS = "too-few-blocks"


@dataclass(frozen=True)
class Binding:
    """The limit that binds. `missed`: part of the objective, for the last three; `codes`: findings, for CLIENT."""

    kind: Binds
    missed: Part | None = None
    codes: tuple[Code, ...] = ()


def binds(unit: UnitCapacity, usage: Usage, slo: Slo) -> Binding:
    """Return the limit that keeps one machine from carrying more, by the step that missed the objective; `usage`: of
    that step.
    """
    step = unit.broken
    if step is None:
        return Binding(Binds.NOTHING)
    if not unit.broken_by.mid and step.too_few(slo):
        return Binding(Binds.TOO_FEW_REQUESTS, unit.broken_by.low)
    is_link_bound = Code.LINK_BOUND in step.limits
    limits = _explaining(step, unit.broken_by, slo)
    if limits and not is_link_bound:
        return Binding(Binds.CLIENT, codes=limits)
    full = (
        (1.0 if is_link_bound else usage.link, Binds.LINK), (usage.cpu, Binds.CPU), (usage.memory, Binds.MEMORY)
    )  # fmt: skip
    for share, kind in full:
        if (share or 0) >= BUSY:
            return Binding(kind)
    return Binding(Binds.OBJECTIVE if unit.broken_by.mid else Binds.TOO_FEW_BLOCKS, unit.broken_by.low)


def _explaining(step: Step, broken_by: Ends[Part | None], slo: Slo) -> tuple[Code, ...]:
    """Findings that may explain why a step missed. A late client adds at most its own delay to a response time."""
    late_us, p99_us = step.trials["lateness_p99_us"].dropna(), step.p99_us
    if Code.CLIENT_LATE not in step.limits or p99_us is None or late_us.empty:
        return step.limits
    without_us = (p99_us.mid if broken_by.mid else p99_us.high) - late_us.median()
    if broken_by.low is Part.P99 and without_us <= 1000 * slo.p99_ms:
        return step.limits
    return tuple(code for code in step.limits if code is not Code.CLIENT_LATE)


class NoteCode(StrEnum):
    """Note to read before a capacity is used."""

    OTHER_OBJECTIVE_SEARCHED = "other-objective-searched"
    GAP_IN_SEARCH = "gap-in-search"
    FEW_BLOCKS = "few-blocks"
    CLIENT_ON_SAME_MACHINE = "client-on-same-machine"
    SWEEP_ENDS = "sweep-ends"
    SEARCH_ENDS = "search-ends"
    LOWEST_MISSES = "lowest-misses"
    NONE_SHOWN = "none-shown"
    TOO_FEW_REQUESTS = "too-few-requests"
    MET_ABOVE_A_MISS = "met-above-a-miss"
    ABOVE_ERLANG = "above-erlang"
    SHARED_POWER_UNKNOWN = "shared-power-unknown"
    ENERGY_OF_CLIENT_TOO = "energy-of-client-too"


@dataclass(frozen=True)
class Note:
    """A note and its numbers by name, with their units."""

    code: NoteCode
    values: Mapping[str, float] = field(default_factory=dict)


def notes(unit: UnitCapacity, slo: Slo, bound: ErlangBound | None, search: SearchWorkload | None) -> Iterator[Note]:
    """Yield the notes on the rates; `search`: the workload, where a search chose them."""
    low, broken, first, last = unit.rates.low, unit.broken, unit.steps[0], unit.steps[-1]
    if search:
        yield from _search_notes(unit, slo, search)
    decisive = [unit.at, broken or unit.at] if search else unit.steps
    fewest = min(step.blocks for step in decisive if step.rate_rps <= (broken or last).rate_rps)
    if fewest < MIN_EQUIVALENT_BLOCKS:
        yield Note(NoteCode.FEW_BLOCKS, {"blocks": fewest, "needed": MIN_EQUIVALENT_BLOCKS})
    if (unit.at.trials["client"] == ClientPlace.LOCALHOST).any():
        yield Note(NoteCode.CLIENT_ON_SAME_MACHINE)
    if End.LOW in unit.open_ends:
        yield Note(NoteCode.SEARCH_ENDS if search else NoteCode.SWEEP_ENDS, {"rate_rps": last.rate_rps})
    elif unit.rates.high is None:
        yield Note(NoteCode.LOWEST_MISSES, {"rate_rps": first.rate_rps})
    elif low is None:
        yield Note(NoteCode.NONE_SHOWN)
    if broken and broken.too_few(slo):
        needed = requests_to_show(slo.availability_pct)
        values = {
            "requests": broken.requests, "rate_rps": broken.rate_rps, "availability_pct": slo.availability_pct,
            "more_s": math.ceil((needed - broken.requests) / broken.rate_rps),
            "shown_pct": math.floor(1e4 * broken.available.low) / 100 if broken.available else 0.0,
        }  # fmt: skip
        yield Note(NoteCode.TOO_FEW_REQUESTS, values)
    above = [step for step in unit.steps if step.rate_rps > (low or 0) and step is not broken]
    if any(not step.misses(slo, End.LOW) for step in above):
        yield Note(NoteCode.MET_ABOVE_A_MISS)
    if bound and (low or 0) > bound.rate_rps:
        yield Note(NoteCode.ABOVE_ERLANG, {"rate_rps": bound.rate_rps})


def _search_notes(unit: UnitCapacity, slo: Slo, search: SearchWorkload) -> Iterator[Note]:
    sought = Slo(search.deadline_ms, search.availability_pct)
    if sought != slo:
        values = {"p99_ms": sought.p99_ms, "availability_pct": sought.availability_pct}
        yield Note(NoteCode.OTHER_OBJECTIVE_SEARCHED, values)
    low, broken = unit.rates.low, unit.broken
    if low and broken and broken.rate_rps > low * (1 + search.resolution_pct / 100) * 1.005:  # steps are rounded
        values = {"low_rps": low, "high_rps": broken.rate_rps, "resolution_pct": search.resolution_pct}
        yield Note(NoteCode.GAP_IN_SEARCH, values)

"""Limits that keep one machine from carrying more, and notes to read before its capacity is used."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from vmtoll.capacity.estimate import ByEnd, End
from vmtoll.capacity.notes import CapacityNote, NoteCode, note
from vmtoll.capacity.objective import Slo, SloPart
from vmtoll.capacity.rate_sweep import RateStep, UnitCapacity, requests_to_show
from vmtoll.capacity.resources import ErlangBound, MachineUsage
from vmtoll.model.finding import Code
from vmtoll.model.message import WithText
from vmtoll.model.trial import ClientPlace
from vmtoll.model.workload import SearchWorkload
from vmtoll.statistics.thresholds import BUSY, MIN_EQUIVALENT_BLOCKS


class Limit(WithText):
    """Limit that keeps one machine from carrying more. NOTHING: the highest measured rate meets the objective."""

    NOTHING = "nothing", "nothing yet: the highest rate that was measured meets the objective"
    CLIENT = "client", "the client ({codes})"
    LINK = "link"
    CPU = "cpu", "CPU"
    MEMORY = "memory"
    OBJECTIVE = "objective", "SLO ({missed})"
    TOO_FEW_REQUESTS = "too-few-requests", "too few requests to be sure of the {missed}"
    TOO_FEW_BLOCKS = "too-few-blocks", "too few blocks to be sure of the {missed}"


@dataclass(frozen=True)
class BindingLimit:
    """The limit that binds."""

    kind: Limit
    missed: SloPart | None = None  # part of the objective, for the last three
    codes: tuple[Code, ...] = ()  # findings, for CLIENT


def binding_limit(unit: UnitCapacity, usage: MachineUsage, slo: Slo) -> BindingLimit:
    """Return the limit that keeps one machine from carrying more, by the step that missed the objective; `usage`: of
    that step.
    """
    step = unit.missed_step
    if step is None:
        return BindingLimit(Limit.NOTHING)
    if not unit.missed_parts.mid and step.has_too_few_requests(slo):
        return BindingLimit(Limit.TOO_FEW_REQUESTS, unit.missed_parts.low)
    is_link_bound = Code.LINK_BOUND in step.limits
    limits = _explaining_findings(step, unit.missed_parts, slo)
    if limits and not is_link_bound:
        return BindingLimit(Limit.CLIENT, codes=limits)
    shares = (
        (1.0 if is_link_bound else usage.link, Limit.LINK), (usage.cpu, Limit.CPU), (usage.memory, Limit.MEMORY)
    )  # fmt: skip
    for share, kind in shares:
        if (share or 0) >= BUSY:
            return BindingLimit(kind)
    return BindingLimit(Limit.OBJECTIVE if unit.missed_parts.mid else Limit.TOO_FEW_BLOCKS, unit.missed_parts.low)


def _explaining_findings(step: RateStep, missed_parts: ByEnd[SloPart | None], slo: Slo) -> tuple[Code, ...]:
    """Findings that may explain why a step missed. A late client adds at most its own delay to a response time."""
    late_us, p99_us = step.trials["lateness_p99_us"].dropna(), step.p99_us
    if Code.CLIENT_LATE not in step.limits or p99_us is None or late_us.empty:
        return step.limits
    without_us = (p99_us.mid if missed_parts.mid else p99_us.high) - late_us.median()
    if missed_parts.low is SloPart.P99 and without_us <= 1000 * slo.p99_ms:
        return step.limits
    return tuple(code for code in step.limits if code is not Code.CLIENT_LATE)


def notes(
    unit: UnitCapacity, slo: Slo, bound: ErlangBound | None, search: SearchWorkload | None
) -> Iterator[CapacityNote]:
    """Yield the notes on the rates; `search`: the workload, where a search chose them."""
    low, missed_step, first, last = unit.rates.low, unit.missed_step, unit.steps[0], unit.steps[-1]
    if search:
        yield from _search_notes(unit, slo, search)
    decisive = [unit.low_step, missed_step or unit.low_step] if search else unit.steps
    fewest = min(step.blocks for step in decisive if step.rate_rps <= (missed_step or last).rate_rps)
    if fewest < MIN_EQUIVALENT_BLOCKS:
        yield note(NoteCode.FEW_BLOCKS, blocks=fewest, needed=MIN_EQUIVALENT_BLOCKS)
    if (unit.low_step.trials["client"] == ClientPlace.LOCALHOST).any():
        yield note(NoteCode.CLIENT_ON_SAME_MACHINE)
    if End.LOW in unit.open_ends:
        yield note(NoteCode.SEARCH_ENDS if search else NoteCode.SWEEP_ENDS, rate_rps=last.rate_rps)
    elif unit.rates.high is None:
        yield note(NoteCode.LOWEST_MISSES, rate_rps=first.rate_rps)
    elif low is None:
        yield note(NoteCode.NONE_SHOWN)
    if missed_step and missed_step.has_too_few_requests(slo):
        needed = requests_to_show(slo.availability_pct)
        yield note(
            NoteCode.TOO_FEW_REQUESTS,
            requests=missed_step.requests,
            rate_rps=missed_step.rate_rps,
            availability_pct=slo.availability_pct,
            more_s=math.ceil((needed - missed_step.requests) / missed_step.rate_rps),
            shown_pct=math.floor(1e4 * missed_step.available.low) / 100 if missed_step.available else 0.0,
        )
    steps_above = [step for step in unit.steps if step.rate_rps > (low or 0) and step is not missed_step]
    if any(not step.misses(slo, End.LOW) for step in steps_above):
        yield note(NoteCode.MET_ABOVE_A_MISS)
    if bound and (low or 0) > bound.rate_rps:
        yield note(NoteCode.ABOVE_ERLANG, rate_rps=bound.rate_rps)


def _search_notes(unit: UnitCapacity, slo: Slo, search: SearchWorkload) -> Iterator[CapacityNote]:
    searched_slo = Slo(search.deadline_ms, search.availability_pct)
    if searched_slo != slo:
        yield note(
            NoteCode.OTHER_OBJECTIVE_SEARCHED,
            p99_ms=searched_slo.p99_ms,
            availability_pct=searched_slo.availability_pct,
        )
    low, missed_step = unit.rates.low, unit.missed_step
    if (
        low and missed_step and missed_step.rate_rps > low * (1 + search.resolution_pct / 100) * 1.005
    ):  # steps are rounded
        yield note(
            NoteCode.GAP_IN_SEARCH, low_rps=low, high_rps=missed_step.rate_rps, resolution_pct=search.resolution_pct
        )

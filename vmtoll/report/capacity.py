"""Capacity in words: the answer in a sentence, the lines behind it, the section of the report, and the JSON."""

import json
import math
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any

from pydantic import TypeAdapter

from vmtoll.analysis.run import Run
from vmtoll.capacity.consolidation import Consolidation, SharedCapacity, SharedRate
from vmtoll.capacity.estimate import ByEnd, End, Estimate
from vmtoll.capacity.fleet import FleetPlan
from vmtoll.capacity.limits import BindingLimit
from vmtoll.capacity.objective import Slo
from vmtoll.capacity.planner import CapacityAssessment, CapacityResult, assess_capacity, default_slo
from vmtoll.capacity.resources import Size
from vmtoll.capacity.scaling import LevelKind, Scaling
from vmtoll.model.finding import Code
from vmtoll.model.hardware import Hardware
from vmtoll.model.message import message, number, several, spread
from vmtoll.model.trial import METAL, Accelerator, MachineKind, is_shape_only
from vmtoll.report.words import DASH, KVM_HARDWARE, percent, platform_text, plural
from vmtoll.statistics.student import Interval

NO_SWEEP = (
    "the run has no rate sweep of a single machine, so it gives no number of machines; measure one with vmtoll run"
    " tails, vmtoll run capacity, or vmtoll run capacity-search"
)
NO_CAPACITY = (
    "no rate was measured, because the rates are shares of a capacity that stayed unknown ({cause}): remove this"
    " cause, for client-saturated with a faster client or several, and run it again"
)
HEADINGS = (
    "capacity", "what binds", "p99 at that rate", "availability at that rate", "utilization at that rate",
    "cost per request", "notes",
)  # fmt: skip
Facts = Iterator[tuple[str, str]]


def no_capacity_text(run: Run) -> str:
    """The reason why a run gives no number of machines."""
    findings = [finding for trial in run.trials for finding in trial.findings]
    unknown = next((finding for finding in findings if finding.code is Code.CAPACITY_UNKNOWN), None)
    return NO_CAPACITY.format(cause=unknown.detail) if unknown else NO_SWEEP


def section(run: Run) -> dict[str, Any] | None:
    """The report's section on capacity, for the objective of the run's own sweep or search; None if it has no content.

    `objective` in words, `rows` (`server`, `environment`, `size`, and `cells` under `headings`), `more` (sentences on
    guests per host and on scaling), `assumptions`.
    """
    assessment = assess_capacity(run, default_slo(run))
    has_several_workloads = len({result.workload for result in assessment.results}) > 1
    rows = [
        {
            "server": f"{result.server} · {result.workload}" if has_several_workloads else result.server,
            "environment": environment_text(result, ", {}"),
            "size": size_text(result.size),
            "cells": [
                f"{carried_text(result)}; of random arrivals {arrivals_text(result)}", binding_text(result.binds),
                p99_text(result.p99_ms) if result.p99_ms else DASH, available_text(result), used_text(result),
                request_text(result),
                "; ".join(note.text for note in result.notes) or DASH,
            ],
        }
        for result in assessment.results
    ]  # fmt: skip
    extra_sentences = list(sharing_and_scaling_sentences(assessment))
    assumptions = [assumption.text for assumption in assessment.assumptions]
    objective = slo_text(assessment.slo) if assessment.slo else ""
    content = {
        "objective": objective,
        "rows": rows,
        "headings": HEADINGS,
        "more": extra_sentences,
        "assumptions": assumptions,
    }
    return content if rows or extra_sentences else None


def document(assessment: CapacityAssessment) -> dict[str, Any]:
    """The document for `--json`: codes, numbers and the answers as sentences; the open end of an interval is null."""
    content: dict[str, Any] = json.loads(TypeAdapter(CapacityAssessment).dump_json(assessment))
    return content | {"sentences": list(sentences(assessment))}


def lines(assessment: CapacityAssessment) -> Iterator[str]:
    """Lines for a terminal, sentences first."""
    yield from sentences(assessment)
    for result in assessment.results:
        yield f"\n{result.server} on {result.environment}, {result.workload} ({size_text(result.size)} each)"
        yield from (f"    {name}: {text}" for name, text in facts(result))
    assumed = [f"assumed: {assumption.text}" for assumption in assessment.assumptions]
    for extra_lines in (list(sharing_and_scaling_sentences(assessment)), assumed):
        if extra_lines:
            yield "\n" + "\n".join(extra_lines)


def sentences(assessment: CapacityAssessment) -> Iterator[str]:
    """One answer per server and sweep: `nginx, 2,000/s at p99 ≤ 50 ms …: you need 3 metal hosts …`; needs a demand."""
    demand, has_several_workloads = assessment.demand, len({result.workload for result in assessment.results}) > 1
    if demand and not assessment.results:
        yield NO_SWEEP
    for (server, workload), group in groupby(assessment.results, key=lambda r: (r.server, r.workload)):
        if not demand or not assessment.slo:
            return
        results = list(group)
        needs = [_need(result, plan) for result in results if (plan := _plan(result))]
        parts = [f"you need {' or '.join(needs)}"] if needs else []
        parts += [_why_no_number(result) for result in results if not _plan(result)]
        at_risk = [r.environment for r in results if (p := _plan(r)) and (p.load_after_host_failure or math.inf) > 1]
        warning = f" Warning: if one host fails, the rest of {' and '.join(at_risk)} is overloaded." if at_risk else ""
        yield (
            f"{server}{f' ({workload})' if has_several_workloads else ''}, {demand.rate_rps:,.0f}/s at"
            f" {slo_text(assessment.slo)}, {demand.headroom_pct:g}% headroom, {demand.spare} spare:"
            f" {'; '.join(parts)}.{warning}{_arrivals_sentence(results) if needs else ''}"
        )


def _arrivals_sentence(results: Sequence[CapacityResult]) -> str:
    """How requests arrived, and what random arrivals need; part of every sentence that names a number of machines."""
    results = [result for result in results if result.arrivals == "constant"]
    if not results:
        return " Requests came at random (Poisson)."
    factors = sorted(factor for result in results if _plan(result) for factor in _random_factors(result))
    if not factors:
        carries_less = "With random arrivals (Poisson) a machine carries less; by how much is unknown."
        return f" Requests came at even intervals. {carries_less}"
    times = dict.fromkeys(f"{factor:.3g}" for factor in (factors[0], factors[-1]))
    factor = " to ".join(times)
    if factor == "1":
        return " Requests came at even intervals. With random arrivals (Poisson) plan for the same rate."
    return (
        f" Requests came at even intervals. With random arrivals (Poisson) plan for at least {factor} times the rate."
    )


def _random_factors(result: CapacityResult) -> list[float]:
    """Factors by which even arrivals overstate what a machine carries, with equal and with exponential work."""
    random = result.erlang_c.random if result.erlang_c else None
    shares = (random.fixed_work, random.exponential_work) if random else ()
    return [1 / share for share in shares if share]


def arrivals_text(result: CapacityResult) -> str:
    """`at most 77% (the same work each, M/D/1) or 72% (exponential work, M/M/1) of that`."""
    if result.arrivals == "poisson":
        return "the same: requests came at random"
    random, cpus = (result.erlang_c.random, result.erlang_c.cpus) if result.erlang_c else (None, 0)
    if random is None:
        return "less than that; by how much is unknown"
    kinds = ((random.fixed_work, "the same work each", "D"), (random.exponential_work, "exponential work", "M"))
    texts = [f"{share:.0%} ({work}, M/{letter}/{cpus})" for share, work, letter in kinds if share]
    return f"at most {' or '.join(texts)} of that" if texts else "nothing within this p99"


def _plan(result: CapacityResult) -> FleetPlan | None:
    """The recommended plan: the one for the low rate."""
    return result.plan.low if result.plan else None


def _need(result: CapacityResult, plan: FleetPlan) -> str:
    at_most = "at most " if result.at_least else ""
    size = f"of {plural(result.size.cpus, 'CPU')}" if result.size.cpus else "of unknown size"
    if result.kind is MachineKind.METAL:
        name = "" if result.environment == METAL else f" ({result.environment})"
        return f"{at_most}{plural(plan.units, 'metal host')}{name} {size}"
    hosts = f"{plural(plan.hosts, 'host')}{_host_size_text(result)}"
    return f"{at_most}{plural(plan.units, _unit(result.kind))} ({result.environment}) {size} on {hosts}"


def _unit(kind: MachineKind) -> str:
    """What a fleet has many of."""
    return "host" if kind is MachineKind.METAL else kind.value


def _host_size_text(result: CapacityResult) -> str:
    return f" of {plural(result.host_cpus, 'CPU')}" if result.host_cpus else ""


def _why_no_number(result: CapacityResult) -> str:
    name, first = result.environment, f"{result.measured_rps[0]:,.0f}/s, the lowest rate measured"
    if result.accelerator is Accelerator.TCG:
        return f"{name} ran under emulation (TCG), so vmtoll gives no number of guests"
    if result.hardware is Hardware.EMULATED:
        return f"{name} ran on emulated hardware, so vmtoll gives no number of {several(_unit(result.kind))}"
    if result.carries_rps.high is None:
        return f"{name} misses it at {first}, so vmtoll gives no number"
    return f"{name} is not shown to meet it at {first}; the limit is {binding_text(result.binds)}"


def sharing_and_scaling_sentences(assessment: CapacityAssessment) -> Iterator[str]:
    """Sentences on the number of guests that can share a host, and on the scaling of throughput."""
    for shared in assessment.consolidations:
        if shared.kind is MachineKind.GUEST and shared.rates and assessment.slo:
            environment = environment_text(shared)
            rates = ", ".join(map(_shared_text, shared.rates))
            yield (
                f"{shared.server} on {environment}, {shared.workload}: guests per host at {slo_text(assessment.slo)}:"
                f" {rates} (the load of all of them together)"
            )
    for scaling in assessment.scaling:
        environment = environment_text(scaling)
        law = "Universal Scalability Law"
        yield f"scaling of {scaling.server} on {environment} over {scaling.over} ({law}): {scaling_text(scaling)}"


def _shared_text(shared: SharedRate) -> str:
    """`at least 4 at 200/s`, `2 to 3 at 700/s`, `1 at 800/s (by the estimate 2, at best 2)`, `none at 900/s`."""
    low, mid, high = (str(max(guest_counts)) if guest_counts else "none" for guest_counts in shared.guests.all)
    guest_counts, measured_counts = shared.guests.low, list(shared.p99_us)
    fewest = (
        f"{guest_counts[0]} to "
        if guest_counts and guest_counts[0] not in (measured_counts[0], guest_counts[-1])
        else ""
    )
    text = f"{fewest}{'at least ' if measured_counts[-1] in guest_counts else ''}{low} at {shared.rate_rps:,.0f}/s"
    return text if low == mid == high else f"{text} (by the estimate {mid}, at best {high})"


def consolidation_text(consolidation: Consolidation) -> str:
    """The joint capacity of each number of guests, and the numbers that can share the lightest and heaviest load; of a
    single machine, what it carries.
    """
    if consolidation.kind is not MachineKind.GUEST:
        return f"carries {_level_text(consolidation.levels[0])}"
    capacities = [f"{plural(level.guests, 'guest')} {_level_text(level)}" for level in consolidation.levels]
    ends = dict.fromkeys((consolidation.rates[0].rate_rps, consolidation.rates[-1].rate_rps))
    spread = [_shared_text(shared) for shared in consolidation.rates if shared.rate_rps in ends]
    return f"together {', '.join(capacities)}; guests that meet the objective: {', '.join(spread)}"


def _level_text(level: SharedCapacity) -> str:
    rates, at_least = level.carries_rps, "at least " if End.MID in level.open_ends else ""
    text = "nothing" if rates.mid is None else f"{at_least}{rates.mid:,.0f}/s"
    if rates.low == rates.mid == rates.high:
        return text
    low = "nothing" if rates.low is None else f"{rates.low:,.0f}"
    return f"{text} ({low} for sure, {rates.high or 0:,.0f} at most)"


def scaling_text(scaling: Scaling) -> str:
    """`contention σ 5% (4.8 to 5.2), coherency κ 0.1% (0.09 to 0.11); peak of 9,038/s at 31 users`."""
    law = scaling.law
    contention = _law_percent(law.alpha, scaling.alpha_interval)
    shape = f"contention σ {contention}, coherency κ {_law_percent(law.beta, scaling.beta_interval)}"
    units = "users" if scaling.over is LevelKind.USERS else "CPUs"
    if law.peak is None:
        return f"{shape}; no peak"
    if law.peak_is_measured:
        return f"{shape}; peak of {law.throughput(law.peak):,.0f}/s at {law.peak:,.0f} {units}"
    return f"{shape}; no peak up to {law.largest:,.0f} {units}; the law puts it beyond what was measured"


def _law_percent(value: float, interval: Interval | None) -> str:
    ends = [f"{100 * end:.3g}" for end in (interval.low, interval.high)] if interval else []
    shown = f"{100 * value:.3g}%"
    return f"{shown} ({' to '.join(ends)})" if len(set(ends)) > 1 else shown


def facts(result: CapacityResult) -> Facts:
    """(name, text) of everything that is known about one server in one environment."""
    if result.accelerator is Accelerator.TCG:
        yield "not a measurement", "software emulation (TCG): none of these numbers is about KVM"
    elif result.hardware is Hardware.EMULATED:
        yield "not a measurement", "emulated hardware: the numbers show that everything runs, not what it costs"
    elif result.accelerator is Accelerator.KVM and result.hardware in KVM_HARDWARE:
        yield "hardware", " ".join(KVM_HARDWARE[result.hardware])
    yield "capacity", carried_text(result)
    yield "of random arrivals", arrivals_text(result)
    yield "trials", f"{result.trials} at {plural(result.steps, 'rate')}"
    yield "what binds", binding_text(result.binds)
    yield "utilization at that rate", used_text(result)
    if result.p99_ms:
        yield "p99 at that rate", p99_text(result.p99_ms)
    if result.available:
        yield "availability at that rate", available_text(result)
    yield "cost per request", request_text(result)
    if result.power_w:
        power = estimate_text(result.power_w, lambda watts: f"{watts:,.0f}", " W")
        yield "its host draws", f"{power} for its processors and memory"
    if bound := result.erlang_c:
        queue = f"a queue for {plural(bound.cpus, 'CPU')} at {bound.work_us:,.0f} µs a request"
        up_to = f"holds this p99 up to {bound.rate_rps:,.0f}/s" if bound.rate_rps else "never holds this p99"
        yield "Erlang C", f"{queue} {up_to}"
    if result.plan and not is_shape_only(result.accelerator, result.hardware):
        yield from _plan_facts(result.plan, result.kind)
    yield from (("note", note.text) for note in result.notes)


def _plan_facts(plans: ByEnd[FleetPlan | None], kind: MachineKind) -> Facts:
    units = " / ".join(str(plan.units) if plan else DASH for plan in plans.all)
    yield f"{several(_unit(kind))} needed", f"{units} (by the low / mid / high rate of one)"
    if not (plan := plans.low):
        return
    yield "load on each", _load_text(plan.load)
    yield "after one fails", _load_text(plan.load_after_failure)
    if kind is not MachineKind.METAL:
        yield "after a host fails", _load_text(plan.load_after_host_failure)
    costs = ("cost of a million requests", "watt-hours per million requests")
    for name, field in zip(costs, ("cost_per_million", "watt_hours_per_million"), strict=True):
        if getattr(plan, field) is not None:
            figures = [number(getattr(plan, field)) if plan else DASH for plan in plans.all]
            yield name, f"{' / '.join(figures)} (by the same)"


def _load_text(load: float | None) -> str:
    if load is None:
        return "nothing is left"
    return f"{percent(load)} of the capacity of one" + (": too much" if load > 1 else "")


def slo_text(slo: Slo) -> str:
    """`p99 ≤ 50 ms, 99.9% available`."""
    return f"p99 ≤ {slo.p99_ms:g} ms, {slo.availability_pct:.6g}% available"


def environment_text(result: CapacityResult | Consolidation | Scaling, form: str = " ({})") -> str:
    """`kvm-default (emulated: shape only)`, `kvm-default (nested KVM)`; `form`: for the part after the name."""
    emulated_text = "emulated hardware" if result.hardware is Hardware.EMULATED else ""
    text = platform_text(result.accelerator, result.hardware) or emulated_text
    text += ": not a measurement" if is_shape_only(result.accelerator, result.hardware) else ""
    return result.environment + (form.format(text) if text else "")


def size_text(size: Size) -> str:
    """`1 CPU, 2.0 GiB, 1 worker`."""
    memory = f"{size.memory_kib / 2**20:.1f} GiB" if size.memory_kib else None
    parts = (size.cpus and plural(size.cpus, "CPU"), memory, size.workers and plural(size.workers, "worker"))
    return ", ".join(str(part) for part in parts if part) or "of unknown size"


def binding_text(binding: BindingLimit) -> str:
    """`SLO (p99)`, `the client (client-starved)`."""
    missed = (binding.missed or "").replace("-", " ")
    return message(binding.kind.text, {"codes": ", ".join(binding.codes), "missed": missed})


def carried_text(result: CapacityResult) -> str:
    """`1,000/s (by the estimate 2,000/s, at best 2,000/s; measured from 500 to 3,000/s)`."""
    low, mid, high = ("no rate" if rate is None else f"{rate:,.0f}/s" for rate in result.carries_rps.all)
    ends = "" if low == mid == high else f"by the estimate {mid}, at best {high}; "
    first, last = result.measured_rps
    return f"{'at least ' if result.at_least else ''}{low} ({ends}measured from {first:,.0f} to {last:,.0f}/s)"


def p99_text(p99_ms: Estimate) -> str:
    """`3.59 ms (3.55 to 3.63)`."""
    if not math.isfinite(p99_ms.mid):
        return "none: more than 1% of the requests failed"
    return estimate_text(p99_ms, unit=" ms")


def available_text(result: CapacityResult) -> str:
    """`99.95% (99.81% to 100%) of 72,000 requests in 6 trials`; without a failure, how rare unseen failures may be."""
    if result.available is None:
        return DASH
    count_text = f"of {result.requests:,} requests in {plural(result.blocks, 'trial')}"
    if result.unseen_share is None:
        low, mid, high = (f"{100 * end:.5g}%" for end in result.available.all)
        return f"{mid} ({low} to {high}) {count_text}"
    return (
        f"100% {count_text}; failures that strike fewer than {result.unseen_share:.0%} of such trials could be unseen"
    )


def used_text(result: CapacityResult) -> str:
    """`CPU 40%, memory 0.4%, link unknown`."""
    shares = (("CPU", result.used.cpu), ("memory", result.used.memory), ("link", result.used.link))
    return ", ".join(f"{name} {'unknown' if share is None else percent(share)}" for name, share in shares)


def request_text(result: CapacityResult) -> str:
    """`0.045 ms of CPU, 0.0087 MiB of bodies`; for a guest also its host's CPU, and energy where it is known."""
    cost = result.request
    figures = (
        (cost.cpu_ms, "ms of CPU"), (cost.host_cpu_ms, "ms of the host's CPU"), (cost.host_energy_j, "J"),
        (cost.body_mib, "MiB of bodies"),
    )  # fmt: skip
    return ", ".join(estimate_text(estimate, unit=f" {unit}") for estimate, unit in figures if estimate) or "unknown"


def estimate_text(estimate: Estimate, text: Callable[[float], str] = number, unit: str = "") -> str:
    """`0.045 (0.044 to 0.046)`; the value alone where there is no interval."""
    is_known = estimate.low and math.isfinite(estimate.high) and text(estimate.low) != text(estimate.high)
    return spread(estimate.mid, (estimate.low, estimate.high) if is_known else None, text, unit)

"""Guests on one host: by their number under shared or their own loads, and with a noisy neighbour."""

import math
from collections.abc import Iterable, Sequence
from math import isfinite

from matplotlib.axes import Axes

from vmtoll.analysis.neighbour_load import Curve, curves_of
from vmtoll.analysis.run import Run
from vmtoll.capacity.consolidation import Consolidation, consolidations
from vmtoll.capacity.density import CarriedGuests, carried_guests
from vmtoll.capacity.estimate import ByEnd, Estimate
from vmtoll.capacity.objective import Slo
from vmtoll.capacity.planner import default_slo
from vmtoll.capacity.rate_sweep import rate_sweeps
from vmtoll.model.analysis import RunAnalysis
from vmtoll.model.load import Load, LoadKind
from vmtoll.model.trial import Arm, MachineKind
from vmtoll.report.capacity import consolidation_text, slo_text
from vmtoll.report.panels import curve_with_bars, stack
from vmtoll.report.plot import INK, Chart, SeriesStyle, arm_style, latency_axis, legend, log_axis, plain_axis, set_ticks
from vmtoll.report.words import carried_text, load_text, ratio_text


def draw_consolidation(run: Run, analysis: RunAnalysis) -> list[Chart]:
    """One chart per server whose load was spread over two numbers of guests or more."""
    if not (slo := default_slo(run)):
        return []
    arms = [arm for arm in consolidations(rate_sweeps(run), slo) if arm.rates]
    servers = dict.fromkeys(arm.server for arm in arms if arm.kind is MachineKind.GUEST)
    return [_consolidation(run, server, [arm for arm in arms if arm.server == server], slo) for server in servers]


def _consolidation(run: Run, server: str, arms: Sequence[Consolidation], slo: Slo) -> Chart:
    figure, (tail, cpu, carried) = stack(("p99", "CPUs busy on the host", "req/s within the objective"), 6.4)
    styles = [arm_style(run, Arm(arm.environment)) for arm in arms]
    for arm, item in zip(arms, styles, strict=True):
        ends = (arm.rates[0], arm.rates[-1]) if len(arm.rates) > 1 else arm.rates
        for shared, line in zip(ends, ("-", "--"), strict=False):
            _curve(tail, shared.p99_us.items(), item, line)
            _curve(cpu, shared.host_cpus.items(), item, line)
        rates = [(level.guests, level.carries_rps) for level in arm.levels]
        _curve(carried, [(n, ByEnd(rps.low or 0.0, rps.mid or 0.0, rps.high or 0.0)) for n, rps in rates], item, "-")
    tail.axhline(slo.p99_ms * 1000, color=INK, lw=1.0, ls=":")
    latency_axis(tail.yaxis, tail.dataLim.y0, tail.dataLim.y1)
    plain_axis(cpu.yaxis, max(cpu.dataLim.y1, 0.01))
    plain_axis(carried.yaxis, max(carried.dataLim.y1, 1.0))
    numbers = sorted({level.guests for arm in arms for level in arm.levels})
    set_ticks(carried.xaxis, numbers)
    carried.set(xlim=(numbers[0] - 0.4, numbers[-1] + 0.4), xlabel="guests on the host")
    legend(figure, styles, lines=True)
    texts = [f"{item.label}: {consolidation_text(arm)}" for arm, item in zip(arms, styles, strict=True)]
    caption = (
        f"Objective (dotted): {slo_text(slo)}. Full line: the lightest total load; dashed: the heaviest. Bars: 95%"
        " intervals over blocks; in the lowest panel, from the rate that is shown to meet the objective to the one that"
        f" is not shown to miss it.{_alone_text(arms)} {'. '.join(texts)}."
    )
    return Chart(f"Guests on one host, {server}", caption, f"{server}, {slo_text(slo)}: {'. '.join(texts)}.", figure)


def _alone_text(arms: Sequence[Consolidation]) -> str:
    """A sentence on the environments that are no guests; empty without one."""
    names = [arm.environment for arm in arms if arm.kind is not MachineKind.GUEST]
    return f" On {' and '.join(names)} one machine has the whole load, whatever the number." if names else ""


def _curve(axes: Axes, points: Iterable[tuple[int, Estimate | None]], item: SeriesStyle, line: str) -> None:
    """Draw a line through the known and finite estimates, with their intervals."""
    finite = (
        (guests, estimate.mid, estimate.low, estimate.high)
        for guests, estimate in points
        if estimate and math.isfinite(estimate.mid)
    )
    curve_with_bars(axes, finite, item, line)


def draw_density(run: Run, analysis: RunAnalysis) -> list[Chart]:
    """One chart for an experiment with `density`."""
    answers = carried_guests(run)
    return [_density(run, answers)] if answers else []


def _density(run: Run, answers: list[CarriedGuests]) -> Chart:
    figure, (ratio, ready, busy) = stack(("p99 of the worst guest ÷ its deadline", "CPU ready, %", "CPU busy, %"), 6.0)
    styles = [arm_style(run, Arm(answer.environment)) for answer in answers]
    for answer, item in zip(answers, styles, strict=True):
        points = [(count.guests, count.ratio.mid, count.ratio.low, count.ratio.high) for count in answer.counts]
        curve_with_bars(ratio, points, item, "-")
        _plain_curve(ready, ((count.guests, count.host.ready_pct) for count in answer.counts), item)
        _plain_curve(busy, ((count.guests, count.host.cpu_pct) for count in answer.counts), item)
    ratio.axhline(1.0, color=INK, lw=1.0, ls=":")
    heights = [end for answer in answers for count in answer.counts for end in count.ratio.all if end and isfinite(end)]
    log_axis(ratio.yaxis, min([*heights, 0.5]), max([*heights, 2.0]))
    plain_axis(ready.yaxis, max(ready.dataLim.y1, 1.0))
    plain_axis(busy.yaxis, 100.0)
    numbers = sorted({count.guests for answer in answers for count in answer.counts})
    set_ticks(busy.xaxis, numbers[:: max(1, len(numbers) // 12)])
    busy.set(xlim=(numbers[0] - 0.4, numbers[-1] + 0.4), xlabel="guests at once")
    legend(figure, styles, lines=True)
    texts = [carried_text(answer) for answer in answers]
    caption = (
        "Each guest has its own load. Dotted: the deadline, which the worst guest's p99 must not exceed. Bars: 95%"
        f" intervals over blocks. {' '.join(texts)}"
    )
    return Chart("Guests that each have their own load", caption, " ".join(texts), figure)


def _plain_curve(axes: Axes, points: Iterable[tuple[int, float | None]], item: SeriesStyle) -> None:
    known = [(guests, value, None, None) for guests, value in points if value is not None and isfinite(value)]
    curve_with_bars(axes, known, item, "-")


LABELS = {
    "goodput_rps": "good answers per second",
    "throughput_rps": "requests per second",
    "response_time_p99_us": "p99",
    "service_time_p99_us": "p99",
}


def draw_neighbour_load(run: Run, analysis: RunAnalysis) -> list[Chart]:
    """One chart per server and load that was measured with several neighbour loads."""
    members: dict[tuple[str, str, Load], list[Curve]] = {}
    for curve in curves_of(run):
        members.setdefault((curve.server, curve.workload, curve.load), []).append(curve)
    return [_neighbour_load(run, curves) for curves in members.values() if any(_has_neighbour(run, c) for c in curves)]


def _has_neighbour(run: Run, curve: Curve) -> bool:
    return run.kind(curve.arm) is MachineKind.GUEST


def _neighbour_load(run: Run, curves: Sequence[Curve]) -> Chart:
    first = curves[0]
    scale, unit = (
        (100, "% of its capacity") if first.steps[0].load.kind is LoadKind.SHARE else (1, "requests per second")
    )
    styles = [arm_style(run, curve.arm) for curve in curves]
    figure, panels = stack([LABELS[field] for field in first.fields], 4.6)
    for axes, field in zip(panels, first.fields, strict=True):
        for curve, item in zip(curves, styles, strict=True):
            levels = ((scale * step.load.value, step.level(run, field)) for step in curve.steps)
            points = ((load, level.value, level.low, level.high) for load, level in levels if level)
            curve_with_bars(axes, points, item, item.line)
    plain_axis(panels[0].yaxis, max(panels[0].dataLim.y1, 1.0))
    if panels[1].dataLim.y1 > panels[1].dataLim.y0 > 0:
        latency_axis(panels[1].yaxis, panels[1].dataLim.y0, panels[1].dataLim.y1)
    panels[1].set_xlabel(f"load on the neighbour, {unit}")
    legend(figure, styles, lines=True)
    caption = (
        "The neighbour is a second guest like the first, on the same host, with its own load. Bars: 95% intervals"
        f" over blocks.{_without_neighbour(run, curves)}"
    )
    texts = [text for curve in curves if _has_neighbour(run, curve) for text in _words(run, curve)]
    text = "; ".join(texts)
    title = f"A noisy neighbour: {first.server}, {load_text(first.load)}"
    return Chart(title, f"{caption} {text}.", f"{first.server}: {text}.", figure)


def _without_neighbour(run: Run, curves: Sequence[Curve]) -> str:
    """A sentence on the environments that are no guests; empty without one."""
    names = [str(curve.arm) for curve in curves if not _has_neighbour(run, curve)]
    return f" There is no neighbour on {' and '.join(names)}: a line moves by chance there." if names else ""


def _words(run: Run, curve: Curve) -> list[str]:
    """The effect of the heaviest neighbour load against none on each figure, with its paired interval."""
    heaviest = curve.steps[-1]
    effects = [
        f"{LABELS[field]} {ratio_text(effect)}{'' if effect.ends else ', one block'}"
        for field in curve.fields
        if (effect := curve.effect(run, heaviest, field))
    ]
    answers = "" if heaviest.answered_rps is None else f", which answers {heaviest.answered_rps:,.0f}/s,"
    guest = arm_style(run, curve.arm).label
    return [f"{guest}, with the busiest neighbour{answers} against an idle one: {', '.join(effects) or 'no figures'}"]


CHARTS = {
    "consolidation": (35, draw_consolidation),
    "density": (4, draw_density),
    "neighbour_load": (36, draw_neighbour_load),
}

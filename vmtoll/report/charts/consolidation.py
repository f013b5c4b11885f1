"""Guests on one host, by their number: p99, the host's CPU, and the rate that they carry within the objective."""

import math
from collections.abc import Iterable, Sequence

from matplotlib.axes import Axes

from vmtoll.analysis.run import Run
from vmtoll.capacity.consolidation import Consolidation, consolidations
from vmtoll.capacity.estimate import ByEnd, Estimate
from vmtoll.capacity.objective import Slo
from vmtoll.capacity.planner import default_slo
from vmtoll.capacity.rate_sweep import rate_sweeps
from vmtoll.model.trial import Arm, MachineKind
from vmtoll.model.verdict import RunAnalysis
from vmtoll.report.capacity import consolidation_text, slo_text
from vmtoll.report.panels import curve_with_bars, stack
from vmtoll.report.plot import INK, Chart, SeriesStyle, arm_style, latency_axis, legend, plain_axis, set_ticks

ORDER = 35


def draw(run: Run, analysis: RunAnalysis) -> list[Chart]:
    """One chart per server whose load was spread over two numbers of guests or more."""
    if not (slo := default_slo(run)):
        return []
    arms = [arm for arm in consolidations(rate_sweeps(run), slo) if arm.rates]
    servers = dict.fromkeys(arm.server for arm in arms if arm.kind is MachineKind.GUEST)
    return [_chart(run, server, [arm for arm in arms if arm.server == server], slo) for server in servers]


def _chart(run: Run, server: str, arms: Sequence[Consolidation], slo: Slo) -> Chart:
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

"""Guests on one host: p99, CPU of the host, and what they carry together within the objective, by their number."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter

from analysis.axes import latency_axis, plain_axis
from analysis.capacity import default_slo
from analysis.capacity.density import Density, densities, host_cpus, sentence
from analysis.capacity.rungs import Estimate
from analysis.capacity.slo import Slo
from analysis.load import BASELINE, Run
from analysis.plot import INK, WIDTH_IN, Chart, Look, look

ORDER = 35
Point = tuple[int, Estimate]


def draw(run: Run, outcome: dict[str, Any]) -> list[Chart]:
    """One chart per server whose load was spread over two numbers of guests or more."""
    slo = default_slo(run)
    found = densities(run, slo) if slo else []
    charts = []
    for server in dict.fromkeys(density.server for density in found if density.environment != BASELINE):
        sides = [density for density in found if density.server == server and density.rates]
        charts += [_chart(run, server, sides, slo)] if slo and sides else []
    return charts


def _chart(run: Run, server: str, sides: Sequence[Density], slo: Slo) -> Chart:
    figure = Figure(figsize=(WIDTH_IN, 6.4), layout="constrained")
    tail, cpu, carried = figure.subplots(3, 1, sharex=True)
    for density in sides:
        item = look(run, density.environment)
        for rate_rps, line in zip(dict.fromkeys((density.rates[0], density.rates[-1])), ("-", "--"), strict=False):
            rungs = [(level.guests, level.at(rate_rps)) for level in density.levels]
            _curve(tail, [(n, rung.p99_us) for n, rung in rungs if rung and rung.p99_us], item, line)
            busy = [(n, host_cpus(rung, density.environment)) for n, rung in rungs if rung]
            _curve(cpu, [(n, estimate) for n, estimate in busy if estimate], item, line)
        _curve(carried, _within(density), item, "-")
    tail.axhline(slo.p99_ms * 1000, color=INK, lw=1.0, ls=":")
    latency_axis(tail.yaxis, tail.dataLim.y0, tail.dataLim.y1)
    plain_axis(cpu.yaxis, max(cpu.dataLim.y1, 0.01))
    plain_axis(carried.yaxis, max(carried.dataLim.y1, 1.0))
    for axes, name in ((tail, "p99"), (cpu, "CPUs busy on the host"), (carried, "req/s within the objective")):
        axes.set_title(name, fontsize=10, loc="left")
        axes.grid(visible=True, axis="both")
    numbers = sorted({level.guests for density in sides for level in density.levels})
    carried.xaxis.set_major_locator(FixedLocator(numbers))
    carried.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    carried.set_xlim(numbers[0] - 0.4, numbers[-1] + 0.4)
    carried.set_xlabel("guests on the host")
    _legend(run, figure, sides)
    said = ". ".join(f"{look(run, one.environment).label}: {sentence(one, slo)}" for one in sides)
    caption = (
        f"Objective (dotted): {slo.words}. Full line: the lightest total load; dashed: the heaviest. Bars: 95%"
        " intervals over blocks; of what is carried, from the rate that is shown to meet it to the one that is not"
        f" shown to miss it. Metal has the whole load on the one host, whatever the number. {said}."
    )
    return Chart(f"Guests on one host, {server}", caption, f"{server}, {slo.words}: {said}.", figure)


def _within(density: Density) -> list[Point]:
    """What so many guests carry together; nothing counts as zero."""
    rates = [(level.guests, level.carried.rates) for level in density.levels]
    return [(n, Estimate(*(found[end] or 0.0 for end in ("low", "mid", "high")))) for n, found in rates]


def _curve(axes: Axes, points: Sequence[Point], item: Look, line: str) -> None:
    """A line through the estimates, with bars where an interval is known."""
    if not points:
        return
    x, y = [n for n, _ in points], [estimate.mid for _, estimate in points]
    axes.plot(x, y, color=item.colour, lw=1.4, ls=line, marker=item.marker, ms=5)
    for n, one in points:
        if math.isfinite(one.high):
            axes.vlines(n, one.low, one.high, color=item.colour, lw=1.2)


def _legend(run: Run, figure: Figure, sides: Sequence[Density]) -> None:
    items = [look(run, density.environment) for density in sides]
    handles = [Line2D([], [], color=i.colour, marker=i.marker, lw=1.4, ms=5, label=i.label) for i in items]
    figure.legend(handles=handles, loc="outside upper left", ncols=2, frameon=False)

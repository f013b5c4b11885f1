"""A noisy neighbour: what comes through, and the tail, against the load on the sibling guest."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis.axes import latency_axis, plain_axis
from analysis.doses import Curve, curves_of, ratio_words
from analysis.load import BASELINE, Run, load_words
from analysis.plot import WIDTH_IN, Chart, Look, look

ORDER = 36
NAMES = {
    "goodput_rps": "good answers per second",
    "throughput_rps": "requests per second",
    "response_time_p99_us": "p99",
    "service_time_p99_us": "p99",
}


def draw(run: Run, outcome: dict[str, Any]) -> list[Chart]:
    """One chart per server and load that stood beside several doses."""
    found: dict[tuple[str, str, str], list[Curve]] = {}
    for curve in curves_of(run):
        found.setdefault((curve.server, curve.workload, curve.load), []).append(curve)
    return [_chart(run, curves) for curves in found.values() if any(c.environment != BASELINE for c in curves)]


def _chart(run: Run, curves: Sequence[Curve]) -> Chart:
    figure = Figure(figsize=(WIDTH_IN, 4.6), layout="constrained")
    panels = figure.subplots(2, 1, sharex=True)
    for axes, column in zip(panels, curves[0].columns, strict=True):
        for curve in curves:
            _draw(axes, curve, column, look(run, curve.environment))
        axes.set_title(NAMES[column], fontsize=10, loc="left")
        axes.grid(visible=True, axis="both")
    plain_axis(panels[0].yaxis, max(panels[0].dataLim.y1, 1.0))
    if panels[1].dataLim.y1 > panels[1].dataLim.y0 > 0:
        latency_axis(panels[1].yaxis, panels[1].dataLim.y0, panels[1].dataLim.y1)
    panels[1].set_xlabel(f"load on the neighbour, {'% of its capacity' if curves[0].shares else 'requests per second'}")
    handles = [
        Line2D([], [], color=i.colour, marker=i.marker, ls=i.line, ms=5, label=i.label)
        for i in (look(run, curve.environment) for curve in curves)
    ]
    figure.legend(handles=handles, loc="outside upper left", ncols=2, frameon=False)
    first = curves[0]
    caption = (
        "The neighbour is a second guest like the first, on the same host, under a load of its own. Bars: 95% intervals"
        " over blocks. Metal has no neighbour: how its line moves is chance."
    )
    said = [words for curve in curves if curve.environment != BASELINE for words in _words(run, curve)]
    words = "; ".join(said)
    title = f"A noisy neighbour: {first.server}, {load_words(first.load)}"
    return Chart(title, f"{caption} {words}.", f"{first.server}: {words}.", figure)


def _draw(axes: Axes, curve: Curve, column: str, item: Look) -> None:
    scale = 100 if curve.shares else 1
    points = [(scale * dose.dose, estimate) for dose in curve.doses if (estimate := dose.level(column))]
    if not points:
        return
    axes.plot([x for x, _ in points], [e.mid for _, e in points], color=item.colour, ls=item.line, marker=item.marker)
    for x, one in points:
        if math.isfinite(one.high):
            axes.vlines(x, one.low, one.high, color=item.colour, lw=1.2)


def _words(run: Run, curve: Curve) -> list[str]:
    """The heaviest dose against none: what comes through, and the tail, with the paired interval over blocks."""
    heaviest = curve.doses[-1]
    effects = [
        f"{NAMES[column]} {ratio_words(effect)}"
        for column in curve.columns
        if (effect := curve.effect(heaviest, column))
    ]
    where = look(run, curve.environment).label
    bears = "" if heaviest.answered_rps is None else f", who answers {heaviest.answered_rps:,.0f}/s,"
    return [f"{where}, beside the busiest neighbour{bears} against an idle one: {', '.join(effects) or 'no figures'}"]

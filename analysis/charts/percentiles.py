"""Percentile plot: latency at each percentile, on an axis that gives every further nine the same room."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from analysis.axes import latency_axis, time_words
from analysis.latency import Floats
from analysis.load import Run
from analysis.panels import Group, distributions, each_side, grid, line_legend, loop_words, single_loads
from analysis.plot import Chart

ORDER = 31
BEYOND = 10  # requests that must lie beyond the last percentile that is drawn
TOLD = (50.0, 99.0, 99.9)


def draw(run: Run, outcome: dict[str, Any]) -> list[Chart]:
    """One chart per load, closed and open loops apart, one panel per server."""
    return [chart for group in single_loads(run) if (chart := _chart(run, group)) is not None]


def _chart(run: Run, group: Group) -> Chart | None:
    found = distributions(run, group)
    if not found:
        return None
    figure, panels = grid(list(found))
    words: list[str] = []
    seen: list[float] = []
    last = 10.0
    for axes, server, item, (values, counts) in each_side(run, panels, found):
        odds = np.geomspace(1, max(counts[-1] / BEYOND, 2), 80)
        latencies = values_at(values, counts, 1 - 1 / odds)
        axes.plot(odds, latencies, color=item.colour, lw=1.6, ls=item.line)
        last = max(last, float(odds[-1]))
        seen += [float(latencies[0]), float(latencies[-1])]
        named = zip(TOLD, values_at(values, counts, np.array(TOLD) / 100), strict=True)
        told = ", ".join(f"p{p:g} {time_words(value)}" for p, value in named)
        words.append(f"{server} on {item.label}: {told}")
    for axes in panels:
        _percentile_axis(axes, last)
    latency_axis(panels[0].yaxis, min(seen), max(seen))
    figure.supxlabel("percentile, spaced by 1/(1−p)", fontsize=10)
    line_legend(run, figure, found)
    caption = (
        f"All requests of all trials, merged. Each line ends where fewer than {BEYOND} requests are slower."
        f" {loop_words(group)}"
    )
    return Chart(f"Latency by percentile ({group.words})", caption, "; ".join(words) + ".", figure)


def values_at(values: Floats, counts: Floats, shares: Floats) -> Floats:
    """The latency that each share of the requests does not exceed (nearest rank)."""
    ranks = np.maximum(np.ceil(shares * counts[-1] - 1e-6), 1)
    latencies: Floats = values[np.searchsorted(counts, ranks)]
    return latencies


def _percentile_axis(axes: Axes, last: float) -> None:
    ticks = [place for place in (2, 10, 100, 1e3, 1e4, 1e5, 1e6) if place <= last]
    axes.set_xscale("log")
    axes.set_xlim(1, last * 1.1)
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda place, _: f"{100 - 100 / place:.6g}"))

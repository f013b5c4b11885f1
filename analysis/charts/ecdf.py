"""ECDF: the share of requests that were answered within each time."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.ticker import FixedLocator, PercentFormatter

from analysis.axes import latency_axis, time_words
from analysis.charts.percentiles import values_at
from analysis.load import Run
from analysis.panels import Group, distributions, each_side, grid, line_legend, loop_words, single_loads
from analysis.plot import Chart

ORDER = 32
SHARES = np.linspace(0.002, 0.998, 84)


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
    for axes, server, item, (values, counts) in each_side(run, panels, found):
        latencies = values_at(values, counts, SHARES)
        axes.plot(latencies, SHARES, color=item.colour, lw=1.6, ls=item.line)
        seen += [float(latencies[0]), float(latencies[-1])]
        quarter, three = values_at(values, counts, np.array([0.25, 0.75]))
        words.append(
            f"{server} on {item.label}: half of the requests between {time_words(quarter)} and {time_words(three)}"
        )
    latency_axis(panels[0].xaxis, min(seen), max(seen))
    panels[0].set_ylim(0, 1)
    panels[0].yaxis.set_major_locator(FixedLocator([0, 0.25, 0.5, 0.75, 1]))
    panels[0].yaxis.set_major_formatter(PercentFormatter(1))
    figure.supxlabel("latency, logarithmic", fontsize=10)
    line_legend(run, figure, found)
    caption = f"Share of all requests of all trials that took at most so long. {loop_words(group)}"
    return Chart(f"Share of requests within a time ({group.words})", caption, "; ".join(words) + ".", figure)

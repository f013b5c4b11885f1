"""Latency against throughput: what every further request per second costs in waiting."""

from __future__ import annotations

from typing import Any

import pandas as pd

from analysis.axes import latency_axis, log_axis, plain_axis, time_words
from analysis.load import Run
from analysis.panels import WIDE, Group, curves, each_side, grid, ladders, line_legend, loop_words, rungs
from analysis.plot import Chart, scatter

ORDER = 34


def draw(run: Run, outcome: dict[str, Any]) -> list[Chart]:
    """One chart per ladder, closed and open loops apart, one panel per server."""
    drawn = [_chart(run, group) for group in ladders(run) if len(group.loads) > 1]
    return [chart for chart in drawn if chart is not None]


def _chart(run: Run, group: Group) -> Chart | None:
    # The percentiles of a closed loop are its twin's, where it has one.
    x, y = ("throughput_rps", "response_time_p99_us") if group.open else _closed_columns(run)
    found = curves(run, group, x, y)
    if not found:
        return None
    figure, panels = grid(list(found))
    words = []
    for axes, server, item, side in each_side(run, panels, found):
        medians = rungs(side, x, y)
        scatter(axes, side[x], side[y], item)
        axes.plot(medians[x], medians[y], color=item.colour, lw=1.4, ls=item.line)
        told = ", ".join(f"{time_words(p99)} at {rps:,.0f}" for rps, p99 in zip(medians[x], medians[y], strict=True))
        words.append(f"{server} on {item.label}: p99 {told} requests per second")
    trials = pd.concat([side for sides in found.values() for side in sides.values()])
    low, high = float(trials[x].min()), float(trials[x].max())
    if high / low > WIDE:
        log_axis(panels[0].xaxis, low, high)
    else:
        plain_axis(panels[0].xaxis, high)
    latency_axis(panels[0].yaxis, float(trials[y].min()), float(trials[y].max()))
    figure.supxlabel("answered, requests per second", fontsize=10)
    figure.supylabel("p99", fontsize=10)
    line_legend(run, figure, found)
    caption = f"One point per trial, a line through the medians of each load. {loop_words(group)}"
    return Chart(f"p99 against throughput ({group.kind})", caption, "; ".join(words) + ".", figure)


def _closed_columns(run: Run) -> tuple[str, str]:
    twin = run.trials["twin_throughput_rps"].notna().any()
    return ("twin_throughput_rps" if twin else "throughput_rps"), "service_time_p99_us"

"""Latency percentiles under a closed loop, from merged histograms, with every trial's p99."""

from __future__ import annotations

from typing import Any

import numpy as np

from analysis.axes import value_axis
from analysis.latency import COLUMNS, PERCENTILES, merged_percentiles
from analysis.load import Run
from analysis.metrics import CLOSED
from analysis.panels import shown_labels
from analysis.plot import Chart, figures, legend, look, new_figure, row_axis

ORDER = 30


def draw(run: Run, outcome: dict[str, Any]) -> list[Chart]:
    """One chart: a line from p50 to p99.9 per server and environment."""
    labels = shown_labels(run, (CLOSED,))
    rows = list(labels.values())
    looks = [look(run, environment) for environment in run.environments]
    step = 0.75 / max(len(looks), 2)
    figure, (axes,) = new_figure(len(rows) * max(1.0, 0.6 * len(looks)))
    seen: list[float] = []
    words, merged_all = [], True
    for row, (scenario, label) in enumerate(labels.items()):
        for lane, environment in enumerate(run.environments):
            trials = figures(run, scenario, environment).dropna(subset=list(COLUMNS))
            if trials.empty:
                continue
            merged = merged_percentiles(run.path, trials)
            merged_all &= merged is not None
            values = merged or tuple(float(trials[column].median()) for column in COLUMNS)
            place, item = row + (lane - (len(looks) - 1) / 2) * step, looks[lane]
            axes.plot(values, [place] * len(values), color=item.colour, lw=1.4, zorder=2)
            for value, size in zip(values, (16, 26, 46, 26), strict=True):
                face = item.colour if item.filled else "none"
                axes.scatter(value, place, s=size, marker=item.marker, color=face, edgecolors=item.colour, zorder=3)
            jitter = place + np.linspace(-0.2, 0.2, len(trials)) * step
            p99 = trials[COLUMNS[2]]
            axes.scatter(p99, jitter, s=26, marker="|", color=item.colour, linewidths=1.0, alpha=0.8, zorder=1)
            seen += [*values, *p99]
            named = ", ".join(f"p{p:g} {v:,.0f}" for p, v in zip(PERCENTILES, values, strict=True))
            words.append(f"{label} on {item.label}: {named} µs")
    if not seen:
        return []
    value_axis(axes, min(seen), max(seen), "µs")
    row_axis(axes, rows)
    legend(figure, looks)
    source = "all requests of all trials, merged" if merged_all else "medians of the trials' own percentiles"
    caption = (
        f"Marks from left to right: p50, p90, p99 (large), p99.9; {source}. Ticks: each trial's p99."
        " Closed loop: users wait for their answer before they ask again, so a stall delays few requests"
        " and these tails are too kind."
    )
    return [Chart("Latency percentiles (closed-loop)", caption, "; ".join(words) + ".", figure)]

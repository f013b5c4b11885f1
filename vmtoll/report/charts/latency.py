"""Latency percentiles under a closed loop, from merged histograms, with every trial's p99."""

import numpy as np

from vmtoll.analysis.histograms import COLUMNS, PERCENTILES, merged_percentiles
from vmtoll.analysis.run import Run
from vmtoll.model.analysis import RunAnalysis
from vmtoll.model.metric import Loop
from vmtoll.report.panels import latencies, shown_labels
from vmtoll.report.plot import Chart, arm_style, legend, new_figure, row_axis, value_axis

ORDER = 30


def draw(run: Run, analysis: RunAnalysis) -> list[Chart]:
    """One chart: a line from p50 to p99.9 per server and arm."""
    labels = shown_labels(run, (Loop.CLOSED,))
    rows = list(labels.values())
    styles = [arm_style(run, arm) for arm in run.arms]
    step = 0.75 / max(len(styles), 2)
    figure, (axes,) = new_figure(len(rows) * max(1.0, 0.6 * len(styles)))
    shown_values: list[float] = []
    texts, merged_all = [], True
    for row, (scenario, label) in enumerate(labels.items()):
        for lane, arm in enumerate(run.arms):
            trials = latencies(run, scenario, arm).dropna(subset=list(COLUMNS))
            if trials.empty:
                continue
            merged = merged_percentiles(run.path, trials)
            merged_all &= merged is not None
            values = merged or tuple(float(trials[column].median()) for column in COLUMNS)
            y, item = row + (lane - (len(styles) - 1) / 2) * step, styles[lane]
            axes.plot(values, [y] * len(values), color=item.colour, lw=1.4, zorder=2)
            for value, size in zip(values, (16, 26, 46, 26), strict=True):
                face = item.colour if item.filled else "none"
                axes.scatter(value, y, s=size, marker=item.marker, color=face, edgecolors=item.colour, zorder=3)
            jitter = y + np.linspace(-0.2, 0.2, len(trials)) * step
            p99 = trials[COLUMNS[2]]
            axes.scatter(p99, jitter, s=26, marker="|", color=item.colour, linewidths=1.0, alpha=0.8, zorder=1)
            shown_values += [*values, *p99]
            named = ", ".join(f"p{p:g} {v:,.0f}" for p, v in zip(PERCENTILES, values, strict=True))
            texts.append(f"{label} on {item.label}: {named} µs")
    if not shown_values:
        return []
    value_axis(axes, min(shown_values), max(shown_values), "µs")
    row_axis(axes, rows)
    legend(figure, styles)
    source = "all requests of all trials, merged" if merged_all else "medians of the trials' own percentiles"
    caption = (
        f"Marks from left to right: p50, p90, p99 (large), p99.9; {source}. Ticks: each trial's p99."
        " Closed loop: users wait for their answer before they ask again. A stall delays few requests,"
        " so these tails are too optimistic."
    )
    return [Chart.of("Latency percentiles (closed loop)", caption, texts, figure)]

"""ECDF: the share of requests that were answered within each time."""

import numpy as np
from matplotlib.ticker import FixedLocator, PercentFormatter

from vmtoll.analysis.run import Run
from vmtoll.model.verdict import RunAnalysis
from vmtoll.report.charts.percentiles import values_at
from vmtoll.report.panels import PanelGroup, distributions, each_arm, grid, line_legend, single_loads
from vmtoll.report.plot import Chart, latency_axis
from vmtoll.report.words import duration

ORDER = 32
SHARES = np.linspace(0.002, 0.998, 84)


def draw(run: Run, analysis: RunAnalysis) -> list[Chart]:
    """One chart per load, closed and open loops apart, one panel per server."""
    return [chart for group in single_loads(run) if (chart := _chart(run, group))]


def _chart(run: Run, group: PanelGroup) -> Chart | None:
    merged = distributions(run, group)
    if not merged:
        return None
    figure, panels = grid(list(merged))
    words, shown_latencies = [], []
    for axes, server, item, (values, counts) in each_arm(run, panels, merged):
        latencies = values_at(values, counts, SHARES)
        axes.plot(latencies, SHARES, color=item.colour, lw=1.6, ls=item.line)
        shown_latencies += [float(latencies[0]), float(latencies[-1])]
        quarter, three_quarters = values_at(values, counts, np.array([0.25, 0.75]))
        half = f"half of the requests between {duration(quarter)} and {duration(three_quarters)}"
        words.append(f"{server} on {item.label}: {half}")
    latency_axis(panels[0].xaxis, min(shown_latencies), max(shown_latencies))
    panels[0].set_ylim(0, 1)
    panels[0].yaxis.set_major_locator(FixedLocator([0, 0.25, 0.5, 0.75, 1]))
    panels[0].yaxis.set_major_formatter(PercentFormatter(1))
    line_legend(run, figure, merged)
    caption = f"Share of all requests of all trials answered within that time. {group.latency_caption}"
    return Chart.of(f"Share of requests within a time ({group.text})", caption, words, figure, "latency, logarithmic")

"""Latency of all requests: by percentile, on an axis where each further nine takes the same room, and as ECDF."""

import numpy as np
from matplotlib.ticker import FixedLocator, PercentFormatter

from vmtoll.analysis.histograms import Floats
from vmtoll.analysis.run import Run
from vmtoll.model.analysis import RunAnalysis
from vmtoll.report.panels import PanelGroup, distributions, each_arm, grid, line_legend, single_loads
from vmtoll.report.plot import Chart, latency_axis, set_ticks
from vmtoll.report.words import duration

REQUESTS_BEYOND = 10  # requests that must lie beyond the last percentile that is drawn
NAMED_PERCENTILES = (50.0, 99.0, 99.9)


def draw_percentiles(run: Run, analysis: RunAnalysis) -> list[Chart]:
    """One chart per load, closed and open loops apart, one panel per server."""
    return [chart for group in single_loads(run) if (chart := _percentiles(run, group))]


def _percentiles(run: Run, group: PanelGroup) -> Chart | None:
    merged = distributions(run, group)
    if not merged:
        return None
    figure, panels = grid(list(merged))
    words, shown_latencies, last = [], [], 10.0
    for axes, server, item, (values, counts) in each_arm(run, panels, merged):
        odds = np.geomspace(1, max(counts[-1] / REQUESTS_BEYOND, 2), 80)
        latencies = values_at(values, counts, 1 - 1 / odds)
        axes.plot(odds, latencies, color=item.colour, lw=1.6, ls=item.line)
        last = max(last, float(odds[-1]))
        shown_latencies += [float(latencies[0]), float(latencies[-1])]
        named = zip(NAMED_PERCENTILES, values_at(values, counts, np.array(NAMED_PERCENTILES) / 100), strict=True)
        texts = ", ".join(f"p{p:g} {duration(value)}" for p, value in named)
        words.append(f"{server} on {item.label}: {texts}")
    ticks = [odds for odds in (2, 10, 100, 1e3, 1e4, 1e5, 1e6) if odds <= last]
    for axes in panels:
        axes.set(xscale="log", xlim=(1, last * 1.1))
        set_ticks(axes.xaxis, ticks, lambda odds: f"{100 - 100 / odds:.6g}")
    latency_axis(panels[0].yaxis, min(shown_latencies), max(shown_latencies))
    line_legend(run, figure, merged)
    caption = (
        f"All requests of all trials, merged. Each line ends where fewer than {REQUESTS_BEYOND} requests are slower."
        f" {group.latency_caption}"
    )
    return Chart.of(f"Latency by percentile ({group.text})", caption, words, figure, "percentile, spaced by 1/(1−p)")


def values_at(values: Floats, counts: Floats, shares: Floats) -> Floats:
    """The latency that each share of the requests does not exceed (nearest rank)."""
    ranks = np.maximum(np.ceil(shares * counts[-1] - 1e-6), 1)
    latencies: Floats = values[np.searchsorted(counts, ranks)]
    return latencies


SHARES = np.linspace(0.002, 0.998, 84)


def draw_ecdf(run: Run, analysis: RunAnalysis) -> list[Chart]:
    """One chart per load, closed and open loops apart, one panel per server."""
    return [chart for group in single_loads(run) if (chart := _ecdf(run, group))]


def _ecdf(run: Run, group: PanelGroup) -> Chart | None:
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


CHARTS = {"percentiles": (31, draw_percentiles), "ecdf": (32, draw_ecdf)}

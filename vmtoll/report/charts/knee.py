"""Latency against throughput: what every further request per second costs in waiting."""

from vmtoll.analysis.run import Run
from vmtoll.model.trial import CROSSCHECK
from vmtoll.model.verdict import RunAnalysis
from vmtoll.report.panels import PanelGroup, curves, each_arm, every_trial, grid, line_legend, panel_groups, sweep_curve
from vmtoll.report.plot import Chart, latency_axis, load_axis
from vmtoll.report.words import duration

ORDER = 34


def draw(run: Run, analysis: RunAnalysis) -> list[Chart]:
    """One chart per sweep, closed and open loops apart, one panel per server."""
    sweeps = [group for group in panel_groups(run) if len(group.loads) > 1]
    return [chart for group in sweeps if (chart := _chart(run, group))]


def _chart(run: Run, group: PanelGroup) -> Chart | None:
    time = "response_time_p99_us" if group.is_open else "service_time_p99_us"
    for prefix in ("", CROSSCHECK):  # in a closed loop the cross-check's, where the tool logs no latencies
        x, y = f"{prefix}throughput_rps", prefix + time
        if sweeps := curves(run, group, x, y):
            break
    else:
        return None
    figure, panels = grid(list(sweeps))
    words = []
    for axes, server, item, side in each_arm(run, panels, sweeps):
        steps = sweep_curve(axes, side, x, y, item)
        texts = ", ".join(f"{duration(p99)} at {rps:,.0f}" for rps, p99 in zip(steps[x], steps[y], strict=True))
        words.append(f"{server} on {item.label}: p99 {texts} requests per second")
    trials = every_trial(sweeps)
    load_axis(panels[0].xaxis, float(trials[x].min()), float(trials[x].max()))
    latency_axis(panels[0].yaxis, float(trials[y].min()), float(trials[y].max()))
    line_legend(run, figure, sweeps)
    caption = f"One point per trial, a line through the medians of each load. {group.latency_caption}"
    title = f"p99 against throughput ({group.kind})"
    return Chart.of(title, caption, words, figure, "answered, requests per second", "p99")

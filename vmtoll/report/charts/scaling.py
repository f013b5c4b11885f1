"""Throughput over users, or over the CPUs of guests, with the Universal Scalability Law fitted to it."""

from collections.abc import Sequence

import numpy as np

from vmtoll.analysis.run import Run
from vmtoll.capacity.scaling import GUESTS, LevelKind, Scaling, scalings
from vmtoll.model.analysis import RunAnalysis
from vmtoll.model.trial import Arm
from vmtoll.report.capacity import scaling_text
from vmtoll.report.panels import grid
from vmtoll.report.plot import GUESTS as COLOURS
from vmtoll.report.plot import Chart, SeriesStyle, arm_style, legend, load_axis, plain_axis, scatter
from vmtoll.report.words import platform_text

ORDER = 36
POINTS = 100  # of a curve
UNITS = {LevelKind.USERS: "users", LevelKind.CPUS: "the CPUs of guests"}


def draw(run: Run, analysis: RunAnalysis) -> list[Chart]:
    """One chart per workload, and per load where guests differ in their CPUs; one panel per server."""
    charts: dict[tuple[LevelKind, str, float | None], list[Scaling]] = {}
    for scaling in scalings(run):
        charts.setdefault((scaling.over, scaling.workload, scaling.users), []).append(scaling)
    return [_chart(run, group) for group in charts.values()]


def _chart(run: Run, group: Sequence[Scaling]) -> Chart:
    servers, units = sorted({scaling.server for scaling in group}), UNITS[group[0].over]
    figure, panels = grid(servers)
    styles = {scaling.environment: _scaling_style(run, scaling) for scaling in group}
    for scaling in group:
        axes, item, law = panels[servers.index(scaling.server)], styles[scaling.environment], scaling.law
        levels = [point.level for point in scaling.points]
        scatter(axes, levels, [point.throughput_rps for point in scaling.points], item)
        curve = np.geomspace(min(levels), law.largest, POINTS)
        axes.plot(curve, [law.throughput(level) for level in curve], color=item.colour, lw=1.4, ls=item.line)
    points = [point for scaling in group for point in scaling.points]
    load_axis(panels[0].xaxis, min(point.level for point in points), max(point.level for point in points))
    plain_axis(panels[0].yaxis, max(point.throughput_rps for point in points))
    legend(figure, list(styles.values()), lines=True, marks=False)
    texts = [f"{s.server} on {styles[s.environment].label}: {scaling_text(s)}" for s in group]
    caption = (
        "One point per trial that is neither client-limited nor link-limited. The line is the Universal Scalability"
        " Law, γN / (1 + σ(N − 1) + κN(N − 1)), fitted to them: σ is contention, a queue for something shared, κ"
        " coherency, the cost of agreeing, with their 95% intervals over blocks in parentheses."
    )
    return Chart.of(f"Throughput over {units} ({group[0].tool})", caption, texts, figure, units, "requests per second")


def _scaling_style(run: Run, scaling: Scaling) -> SeriesStyle:
    if scaling.environment != GUESTS:
        return arm_style(run, Arm(scaling.environment))
    return SeriesStyle(GUESTS + platform_text(scaling.accelerator, scaling.hardware, " ({})"), COLOURS[0], "s", True)

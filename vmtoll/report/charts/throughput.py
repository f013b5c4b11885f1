"""Requests per second, every trial as a point: the tool and its cheaper cross-check, one chart each."""

from vmtoll.analysis.run import Run
from vmtoll.model.finding import Role
from vmtoll.model.metric import THROUGHPUT, Loop
from vmtoll.model.trial import CROSSCHECK
from vmtoll.model.verdict import RunAnalysis
from vmtoll.report.panels import shown_labels
from vmtoll.report.plot import Chart, lanes_of, strip_chart

ORDER = 20


def draw(run: Run, analysis: RunAnalysis) -> list[Chart]:
    """One chart per role, primary and cross-check, that has figures."""
    labels = shown_labels(run, (Loop.CLOSED,))
    charts = []
    for role, column in ((Role.PRIMARY, THROUGHPUT.field), (Role.CROSSCHECK, CROSSCHECK + THROUGHPUT.field)):
        lanes = lanes_of(run, labels, run.arms, column)
        if not lanes:
            continue
        tools = {run.tool(s) if role is Role.PRIMARY else run.crosscheck(s) for s in labels}
        limited = sum(THROUGHPUT.is_limited(t, role) for t in run.trials if not t.scenario.load.is_open)
        caption = "One point per trial, a bar at the median. Closed loop: a fixed number of users, no think time."
        if limited:
            caption += f" {limited} trials are client-limited or link-limited."
        title = f"Requests per second, {', '.join(sorted(filter(None, tools)))}"
        charts.append(strip_chart(title, caption, lanes, "requests per second"))
    return charts

"""Response time over the time of a load, with the operation's beginning and end."""

import json
from collections.abc import Sequence

import numpy as np

from vmtoll.analysis.run import Run
from vmtoll.model.analysis import RunAnalysis
from vmtoll.model.trial import Arm, Scenario
from vmtoll.model.verdict import OperationEffect
from vmtoll.report.panels import shown_labels, stack
from vmtoll.report.plot import BAND, Chart, arm_style, latency_axis, legend, usable_trials
from vmtoll.report.words import duration

ORDER = 5
PANEL_IN = 1.5


def draw(run: Run, analysis: RunAnalysis) -> list[Chart]:
    """One chart for each scenario with an operation: a panel for each operation."""
    labels = shown_labels(run)
    scenarios = dict.fromkeys(effect.scenario for effect in analysis.operations or ())
    charts = [_chart(run, labels[scenario], scenario, analysis) for scenario in scenarios if scenario in labels]
    return [chart for chart in charts if chart]


def _chart(run: Run, label: str, scenario: Scenario, analysis: RunAnalysis) -> Chart | None:
    effects = [effect for effect in analysis.operations or () if effect.scenario == scenario and effect.begin_s]
    courses = {
        (effect.arm, arm): _course(run, scenario, arm) for effect in effects for arm in (effect.without, effect.arm)
    }
    effects = [effect for effect in effects if courses[effect.arm, effect.arm]]
    if not effects:
        return None
    figure, panels = stack([str(effect.arm) for effect in effects], 0.9 + PANEL_IN * len(effects))
    texts, styles, heights = [], {}, list[float]()
    for axes, effect in zip(panels, effects, strict=True):
        begin_s = effect.begin_s.value if effect.begin_s else 0.0
        length_s = effect.length_s.value if effect.length_s else 0.0
        axes.axvspan(begin_s, begin_s + length_s, color=BAND, lw=0)
        for arm in (effect.without, effect.arm):
            item, points = arm_style(run, arm), courses[effect.arm, arm]
            styles[item.label] = item
            if points:
                axes.plot(*zip(*points, strict=True), color=item.colour, ls=item.line, lw=1.3)
                heights += [p99_us for _, p99_us in points]
        texts.append(_text(effect, courses[effect.arm, effect.arm]))
    latency_axis(panels[0].yaxis, min(heights), max(heights))
    for axes in panels[1:]:
        latency_axis(axes.yaxis, min(heights), max(heights))
    legend(figure, list(styles.values()), lines=True, marks=False)
    caption = (
        "p99 of the response times of the requests that were to be sent in a window, from their intended send: the"
        " median over blocks. The band is the operation, from its beginning to its end."
    )
    return Chart.of(f"During an operation ({label})", caption, texts, figure, "seconds since the first request")


def _text(effect: OperationEffect, course: Sequence[tuple[float, float]]) -> str:
    highest_us = max(p99_us for _, p99_us in course)
    return f"{effect.arm}: the highest p99 of a window is {duration(highest_us)}"


def _course(run: Run, scenario: Scenario, arm: Arm) -> list[tuple[float, float]]:
    """Time from the first request in s, and the median over blocks of the window's p99 in µs."""
    files = [run.path / "operations" / f"{record.name}.json" for record in usable_trials(run, scenario, arm)["record"]]
    documents = [json.loads(file.read_text()) for file in files if file.exists()]
    if not documents:
        return []
    step_s = float(np.median([document["window_s"] for document in documents]))
    values: dict[int, list[float]] = {}
    for document in documents:
        for time_s, p99_us in zip(document["time_s"], document["p99_us"], strict=True):
            if p99_us is not None:
                values.setdefault(int(np.floor(time_s / step_s)), []).append(p99_us)
    return [((number + 0.5) * step_s, float(np.median(each))) for number, each in sorted(values.items())]

"""The page of `vmtoll watch`: each figure over the nights, with the changes of its level."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
from markupsafe import Markup

from vmtoll.analysis.history import FigureHistory
from vmtoll.report import page as pages
from vmtoll.report.plot import BLUE, GUESTS, SOFT, Chart, new_figure, style
from vmtoll.report.words import METRIC_LABELS
from vmtoll.report.words.history import change_text, facts_text, history_labels, state_text

CAPTION = "A point for each night: the median over its trials. A line is a level; vertical, where a new one begins."


def write_history(
    histories: Sequence[FigureHistory], experiment: str, least: float, output: Path, *, emulated: bool
) -> Path:
    """Write the page to the file `output` (replaced whole) and return its path; the figures that got worse come first.

    `emulated`: a guest of the newest run ran under software emulation.
    """
    histories = sorted(histories, key=lambda history: not history.is_worse(least))
    labels = history_labels(histories)
    with style():
        charts = [_chart(each, label, least) for each, label in zip(histories, labels, strict=True)]
    names = [f"history-{number}" for number in range(1, len(charts) + 1)]
    html = pages.environment().get_template("history.html.j2").render(
        experiment=experiment,
        emulated=emulated,
        rows=[
            {
                "label": label, "state": _capital(state_text(each, least)), "is_worse": each.is_worse(least),
                "changes": [
                    (_capital(change_text(each, change, least)), _capital(facts_text(change.facts)))
                    for change in reversed(each.changes)
                ],
                "name": name, "chart": chart, "svg": Markup(pages.inline_svg(chart, name)),
            }
            for each, label, name, chart in zip(histories, labels, names, charts, strict=True)
        ],
    )  # fmt: skip
    return pages.write(output, html)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _chart(history: FigureHistory, label: str, least: float) -> Chart:
    figure, (axes,) = new_figure(5)
    figures = [night.figure for night in history.nights]
    axes.scatter(range(len(figures)), figures, s=16, color=BLUE, zorder=3)
    ends = [0, *(change.first for change in history.changes), len(figures)]
    for first, end in pairwise(ends):
        level = float(np.exp(np.mean(np.log(figures[first:end]))))
        axes.plot([first - 0.4, end - 0.6], [level, level], color=SOFT, lw=2.0, zorder=2)
    for change in history.changes:
        axes.axvline(change.first - 0.5, color=GUESTS[0] if change.is_worse else SOFT, lw=1.0, ls="--", zorder=1)
    axes.set_ylim(0, max(figures) * 1.08)
    ticks = sorted({0, len(figures) - 1, *(change.first for change in history.changes)})
    axes.set_xticks(ticks, [history.nights[tick].started_at[:10] for tick in ticks])
    axes.set_ylabel(METRIC_LABELS[history.metric.name].label)
    return Chart(label, CAPTION, f"{label}: {state_text(history, least)}.", figure)

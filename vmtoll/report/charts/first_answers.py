"""Starts of guests up to the first answer, as bars of their parts."""

from vmtoll.analysis.run import Run
from vmtoll.model.analysis import RunAnalysis
from vmtoll.model.first_answer import PARTS
from vmtoll.model.verdict import StartFigures
from vmtoll.report.plot import (
    BLUE,
    GUESTS,
    INK,
    SKY,
    SOFT,
    Chart,
    SeriesStyle,
    legend,
    new_figure,
    plain_axis,
    row_axis,
)
from vmtoll.report.words import PART_NAMES, first_answer_text, start_text

ORDER = 6
_BAR = 0.55
_OF_PARTS = (SOFT, SKY, INK, BLUE, GUESTS[3], GUESTS[1], GUESTS[2], SOFT, BLUE, GUESTS[0], SOFT, GUESTS[0])
_COLOURS = dict(zip(PARTS, _OF_PARTS, strict=True))


def draw(run: Run, analysis: RunAnalysis) -> list[Chart]:
    """One chart of all starts with figures."""
    starts = [start for start in analysis.first_answers or () if start.all_s]
    return [_chart(starts)] if starts else []


def _chart(starts: list[StartFigures]) -> Chart:
    figure, (axes,) = new_figure(0.7 * len(starts))
    for row, start in enumerate(starts):
        left = 0.0
        for part, amount in start.parts.items():
            axes.barh(row, max(0.0, amount.value), _BAR, left, color=_COLOURS[part], lw=0)
            left += max(0.0, amount.value)
        if start.all_s and start.all_s.ends:
            axes.plot(start.all_s.ends, [row, row], color=INK, lw=1.6)
    servers = {start.server for start in starts}
    names = [start_text(start) + (f" · {start.server}" if len(servers) > 1 else "") for start in starts]
    row_axis(axes, [name.replace(", ", " · ") for name in names])
    ends = [start.all_s.high or start.all_s.value for start in starts if start.all_s]
    plain_axis(axes.xaxis, max(ends))
    shown = [part for part in PARTS if any(part in start.parts for start in starts)]
    legend(figure, [SeriesStyle(PART_NAMES[part], _COLOURS[part], "s", True) for part in shown])
    caption = (
        "From the start to the first whole answer at the client, means over blocks; of several guests the one that"
        " answers last. Line: 95% interval of the whole. Host and firmware: all that comes before the guest's kernel."
    )
    texts = [first_answer_text(start).rstrip(".") for start in starts]
    return Chart.of("From nothing to the first answer", caption, texts, figure, "seconds since the start")

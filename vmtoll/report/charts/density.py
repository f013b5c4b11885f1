"""Guests with loads of their own on one host, by their number: the worst one's p99, CPU ready, the host's CPU."""

from collections.abc import Iterable
from math import isfinite

from matplotlib.axes import Axes

from vmtoll.analysis.run import Run
from vmtoll.capacity.density import CarriedGuests, carried_guests
from vmtoll.model.trial import Arm
from vmtoll.model.verdict import RunAnalysis
from vmtoll.report.panels import curve_with_bars, stack
from vmtoll.report.plot import INK, Chart, SeriesStyle, arm_style, legend, log_axis, plain_axis, set_ticks
from vmtoll.report.words import carried_text

ORDER = 4


def draw(run: Run, analysis: RunAnalysis) -> list[Chart]:
    """One chart for an experiment with `density`."""
    answers = carried_guests(run)
    return [_chart(run, answers)] if answers else []


def _chart(run: Run, answers: list[CarriedGuests]) -> Chart:
    figure, (ratio, ready, busy) = stack(("p99 of the worst guest ÷ its deadline", "CPU ready, %", "CPU busy, %"), 6.0)
    styles = [arm_style(run, Arm(answer.environment)) for answer in answers]
    for answer, item in zip(answers, styles, strict=True):
        points = [(count.guests, count.ratio.mid, count.ratio.low, count.ratio.high) for count in answer.counts]
        curve_with_bars(ratio, points, item, "-")
        _curve(ready, ((count.guests, count.host.ready_pct) for count in answer.counts), item)
        _curve(busy, ((count.guests, count.host.cpu_pct) for count in answer.counts), item)
    ratio.axhline(1.0, color=INK, lw=1.0, ls=":")
    heights = [end for answer in answers for count in answer.counts for end in count.ratio.all if end and isfinite(end)]
    log_axis(ratio.yaxis, min([*heights, 0.5]), max([*heights, 2.0]))
    plain_axis(ready.yaxis, max(ready.dataLim.y1, 1.0))
    plain_axis(busy.yaxis, 100.0)
    numbers = sorted({count.guests for answer in answers for count in answer.counts})
    set_ticks(busy.xaxis, numbers[:: max(1, len(numbers) // 12)])
    busy.set(xlim=(numbers[0] - 0.4, numbers[-1] + 0.4), xlabel="guests at once")
    legend(figure, styles, lines=True)
    texts = [carried_text(answer) for answer in answers]
    caption = (
        "Each guest has its own load. Dotted: the deadline, which the worst guest's p99 must not exceed. Bars: 95%"
        f" intervals over blocks. {' '.join(texts)}"
    )
    return Chart("Guests with loads of their own", caption, " ".join(texts), figure)


def _curve(axes: Axes, points: Iterable[tuple[int, float | None]], item: SeriesStyle) -> None:
    known = [(guests, value, None, None) for guests, value in points if value is not None and isfinite(value)]
    curve_with_bars(axes, known, item, "-")

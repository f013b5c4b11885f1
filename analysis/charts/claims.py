"""The claims of a published experiment: each ratio as it was published, and as it is here with its interval."""

from __future__ import annotations

from typing import Any

from matplotlib.lines import Line2D

from analysis.axes import log_axis
from analysis.claims import HELD, NOT_HELD, Judged, judge_claims
from analysis.evidence import Ratio
from analysis.load import Run
from analysis.plot import GUESTS, INK, SOFT, Chart, new_figure, row_axis

ORDER = 5
COLOURS = {HELD: GUESTS[1], NOT_HELD: GUESTS[0]}
MARKS = {HELD: "o", NOT_HELD: "s"}


def draw(run: Run, outcome: dict[str, Any]) -> list[Chart]:
    """One chart when any claim compares two sides and has figures; the rows bear the numbers of the claims."""
    shown = [(number, one, one.ratio) for number, one in enumerate(judge_claims(run), start=1) if one.ratio is not None]
    return [_chart(shown)] if shown else []


def _chart(shown: list[tuple[int, Judged, Ratio]]) -> Chart:
    figure, (axes,) = new_figure(0.95 * len(shown) + 0.6)
    reach = [1.0]
    for row, (_, one, found) in enumerate(shown):
        colour, there = COLOURS.get(one.outcome, SOFT), one.published_ratio
        ends = [found.interval.low, found.interval.high] if found.interval else [found.value] * 2
        axes.plot(ends, [row] * 2, color=colour, lw=2.4, solid_capstyle="butt", zorder=3)
        axes.scatter(found.value, row, s=46, marker=MARKS.get(one.outcome, "o"), color=colour, zorder=4)
        reach += ends
        if there is not None:
            axes.scatter(there, row, s=70, marker="D", facecolors="none", edgecolors=INK, linewidths=1.3, zorder=5)
            reach.append(there)
    axes.axvline(1, color=INK, lw=1.0, zorder=1)
    log_axis(axes.xaxis, min(reach), max(reach))
    axes.set_xlabel("ratio of the two sides, logarithmic")
    row_axis(axes, [str(number) for number, _, _ in shown])
    handles = [Line2D([], [], ls="none", marker="D", mfc="none", mec=INK, markersize=8, label="published")]
    handles += [
        Line2D([], [], ls="none", marker=MARKS.get(outcome, "o"), color=COLOURS.get(outcome, SOFT), markersize=7,
               label=f"here: {outcome}")
        for outcome in dict.fromkeys(one.outcome for _, one, _ in shown)
    ]  # fmt: skip
    figure.legend(
        handles=handles, loc="outside upper left", ncols=2, frameon=False, handletextpad=0.1, columnspacing=1.2,
        borderaxespad=0.1,
    )  # fmt: skip
    caption = "Numbers as in the table of claims. First side ÷ second side; bar: the 95% interval over blocks."
    if any(one.published_ratio is None for _, one, _ in shown):
        caption += " Without a diamond: the source prints no figures."
    words = (
        f"{number}, {one.says}: "
        + (f"{one.published_ratio:.3g} published, " if one.published_ratio is not None else "")
        + f"{r.words} here"
        for number, one, r in shown
    )
    return Chart("Claims: ratios published and here", caption, "; ".join(words) + ".", figure)

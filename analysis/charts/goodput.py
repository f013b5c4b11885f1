"""Goodput against offered load: where the correct answers within the deadline fall behind what is asked."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from analysis.axes import log_axis, plain_axis
from analysis.evidence import KNEE, knee
from analysis.load import Run
from analysis.panels import WIDE, Group, curves, each_side, grid, ladders, line_legend, rungs
from analysis.plot import INK, SOFT, Chart, scatter

ORDER = 33
X, Y = "offered_rps", "goodput_rps"


def draw(run: Run, outcome: dict[str, Any]) -> list[Chart]:
    """One chart per ladder of open-loop loads, one panel per server."""
    drawn = [_chart(run, group) for group in ladders(run) if group.open and len(group.loads) > 1]
    return [chart for chart in drawn if chart is not None]


def _chart(run: Run, group: Group) -> Chart | None:
    found = curves(run, group, X, Y)
    if not found:
        return None
    trials = pd.concat([side for sides in found.values() for side in sides.values()])
    ceiling = link_ceiling_rps(run, trials)
    figure, panels = grid(list(found))
    words = []
    for axes, server, item, side in each_side(run, panels, found):
        medians = rungs(side, X, Y)
        scatter(axes, side[X], side[Y], item)
        axes.plot(medians[X], medians[Y], color=item.colour, lw=1.4, ls=item.line)
        best, bend = medians.loc[medians[Y].idxmax()], medians[medians[X] == knee(medians)]
        axes.scatter(bend[X], bend[Y], s=130, facecolors="none", edgecolors=item.colour, linewidths=1.4, zorder=4)
        words.append(
            f"{server} on {item.label}: at most {best[Y]:,.0f} good answers per second, of {best[X]:,.0f} offered;"
            + (f" keeps up to {bend[X].iloc[0]:,.0f}" if len(bend) else " keeps up with none of the rates")
        )
    _axes(panels, trials, ceiling)
    figure.supxlabel("offered, requests per second", fontsize=10)
    figure.supylabel("good answers per second", fontsize=10)
    line_legend(run, figure, found)
    deadlines = sorted(trials["deadline_ms"].dropna().unique())
    within = f" within {' or '.join(f'{d:g}' for d in deadlines)} ms" if deadlines else " within the deadline"
    caption = f"Good: correct{within}, counted from the intended send. One point per trial, a line through the medians."
    caption += " Dotted diagonal: every request answered in time."
    caption += f" Ring, the knee: the last rate up to which {KNEE:.0%} came back in time."
    if ceiling:
        caption += f" Dashed grey line: what the link of the client carries, {ceiling:,.0f} bodies per second."
    else:
        caption += " The link has no set rate, so that no ceiling is drawn."
    return Chart(f"Goodput against offered load ({group.kind})", caption, "; ".join(words) + ".", figure)


def link_ceiling_rps(run: Run, trials: pd.DataFrame) -> float | None:
    """Answers per second that fill the client's link with bodies alone; None for a link without a rate."""
    rate_mbit = run.meta.get("link_mbit")
    size_mb = (trials["transferred_mb"] / trials["transactions"].astype(float)).dropna().median()
    return float(rate_mbit / 8 / size_mb) if rate_mbit and size_mb > 0 else None


def _axes(panels: list[Axes], trials: pd.DataFrame, ceiling: float | None) -> None:
    first, low, high = panels[0], float(trials[X].min()), float(trials[X].max())
    for axes in panels:
        axes.plot([low, high], [low, high], color=SOFT, lw=1.0, ls=":", zorder=1)
        if ceiling and ceiling < 1.5 * high:
            axes.axhline(ceiling, color=INK, lw=1.0, ls="--", alpha=0.6, zorder=1)
    if high / low > WIDE:
        least = float(trials[Y][trials[Y] > 0].min()) if (trials[Y] > 0).any() else 1.0
        log_axis(first.xaxis, low, high)
        log_axis(first.yaxis, least, high, zero=bool((trials[Y] <= 0).any()))
    else:
        plain_axis(first.xaxis, high)
        plain_axis(first.yaxis, high)

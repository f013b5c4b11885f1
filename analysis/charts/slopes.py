"""Paired slopes: each block's figure on metal and on the guest, joined; parallel lines are a steady effect."""

from __future__ import annotations

from typing import Any

import pandas as pd

from analysis.axes import latency_axis, log_axis
from analysis.load import BASELINE, Run
from analysis.metrics import TAIL, THROUGHPUT, Metric
from analysis.panels import Group, grid, guest_words, single_loads
from analysis.plot import SOFT, Chart, figures, look, scatter

ORDER = 25


def draw(run: Run, outcome: dict[str, Any]) -> list[Chart]:
    """One chart per load and guest, one panel per server: throughput of closed loops, p99 of open ones."""
    drawn = [_chart(run, group, guest) for group in single_loads(run) for guest in run.guests]
    return [chart for chart in drawn if chart is not None]


def _chart(run: Run, group: Group, guest: str) -> Chart | None:
    metric = TAIL if group.open else THROUGHPUT
    found = {server: pairs for server in group.servers if len(pairs := _pairs(run, group, server, guest, metric))}
    if not found:
        return None
    figure, panels = grid(list(found))
    sides = (look(run, BASELINE), look(run, guest))
    words = []
    for axes, (server, pairs) in zip(panels, found.items(), strict=True):
        for _, pair in pairs.iterrows():
            axes.plot([0, 1], pair, color=SOFT, lw=0.9, zorder=2)
        for place, (side, item) in enumerate(zip((BASELINE, guest), sides, strict=True)):
            scatter(axes, [place] * len(pairs), pairs[side], item)
        axes.set_xticks([0, 1], ["metal", "guest"])
        axes.set_xlim(-0.35, 1.35)
        axes.grid(visible=False, axis="x")
        more = int((pairs[guest] > pairs[BASELINE]).sum())
        words.append(f"{server}: {sides[1].label} higher than metal in {more} of {len(pairs)} blocks")
    everything = pd.concat(found.values())
    (latency_axis if group.open else log_axis)(
        panels[0].yaxis, float(everything.min().min()), float(everything.max().max())
    )
    figure.supylabel("p99" if group.open else "requests per second", fontsize=10)
    caption = (
        f"Left metal, right {sides[1].label}; one line per block. Parallel lines: every block says the same."
        " On the logarithmic axis equal slopes are equal ratios."
    )
    what = "p99" if group.open else "Requests per second"
    return Chart(f"{what} by block ({group.words}{guest_words(run, guest)})", caption, "; ".join(words) + ".", figure)


def _pairs(run: Run, group: Group, server: str, guest: str, metric: Metric) -> pd.DataFrame:
    """Block × (metal, guest), blocks with both figures above zero; the tool's, or its twin's where it has none."""
    scenario = group.scenario(server, group.loads[0])
    for source in metric.columns:
        sides = {
            side: figures(run, scenario, side).set_index("block")[metric.column(source, guest=side != BASELINE)]
            for side in (BASELINE, guest)
        }
        pairs = pd.DataFrame(sides).dropna()
        pairs = pairs[(pairs > 0).all(axis=1)]
        if len(pairs):
            return pairs
    return pairs

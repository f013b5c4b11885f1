"""One chart per experiment, guest and headline metric: a row per scenario, every cell a mark, the campaign a bar."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from analysis.judge import INVALID, estimate_words
from analysis.load import load_words
from analysis.metrics import TAIL, THROUGHPUT
from analysis.plot import GUESTS, INK, SOFT, Chart, new_figure, row_axis, style

HEADLINES = (THROUGHPUT.name, TAIL.name)
MOST_ROWS = 24


def draw(effects: Sequence[dict[str, Any]]) -> list[tuple[str, Chart]]:
    """(unique name, chart); of more rows than fit the first are drawn, and the caption says so."""
    groups: dict[tuple[str, str, str, str], list[dict[str, Any]]] = {}
    for one in effects:
        if one["metric"] in HEADLINES:
            key = one["experiment"], one["metric"], one["environment"], one["accelerator"]
            groups.setdefault(key, []).append(one)
    with style():
        return [(f"cells-{place}", _chart(entries)) for place, entries in enumerate(groups.values(), start=1)]


def label(one: dict[str, Any]) -> str:
    """The scenario in words."""
    return f"{one['server']} · {one['workload']}, {load_words(one['offered_load'])}"


def _chart(entries: Sequence[dict[str, Any]]) -> Chart:
    shown, first = entries[:MOST_ROWS], entries[0]
    figure, (axes,) = new_figure(2.2 * len(shown))
    axes.axvline(0, color=INK, lw=1.0, zorder=1)
    for row, one in enumerate(shown):
        cells = np.log([cell["ratio"] for cell in one["by_cell"]])
        jitter = np.linspace(-0.2, 0.2, len(cells)) if len(cells) > 1 else np.zeros(1)
        axes.scatter(
            cells, row + jitter, s=20, marker="o", facecolors="none", edgecolors=GUESTS[0], alpha=0.8, zorder=3
        )
        if one["prediction_low"] is not None:
            ends = np.log([one["prediction_low"], one["prediction_high"]])
            axes.plot(ends, [row + 0.32] * 2, color=SOFT, lw=1.0, zorder=2)
        if one["ratio_low"] is not None:
            axes.plot(np.log([one["ratio_low"], one["ratio_high"]]), [row + 0.32] * 2, color=INK, lw=3.0, zorder=4)
        face = "none" if one["kind"] == INVALID else INK
        axes.scatter(math.log(one["ratio"]), row + 0.32, s=42, marker="D", facecolors=face, edgecolors=INK, zorder=5)
    row_axis(axes, [label(one) for one in shown])
    _ratio_ticks(axes)
    axes.set_xlabel("guest ÷ metal")
    emulated = " (emulated)" if first["accelerator"] == "tcg" else ""
    told = "; ".join(f"{label(one)}: {one['text']}, {estimate_words(one)}, {one['cells']} cells" for one in shown)
    caption = (
        "Circle: a cell. Diamond: their mean; thick: its 95% interval over cells; thin: where one further cell lies."
    )
    if len(entries) > len(shown):
        caption += f" The first {len(shown)} of {len(entries)} scenarios; the table has all."
    title = f"{first['experiment']}: {first['label']}, {first['environment']}{emulated} against metal"
    return Chart(title, caption, told + ".", figure)


def _ratio_ticks(axes: Any) -> None:
    """A few ticks at ratios of two decimals, about evenly apart in the logarithm, none too near to 1."""
    low, high = axes.get_xlim()
    ratios = [1.0, *(round(math.exp(place), 2) for place in np.linspace(low, high, 6)[1:-1])]
    apart = [r for r in ratios if r == 1 or abs(math.log(r)) > (high - low) / 8]
    axes.xaxis.set_major_locator(FixedLocator([math.log(r) for r in apart]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{math.exp(x):.3g}×"))
    axes.set_xlim(low, high)

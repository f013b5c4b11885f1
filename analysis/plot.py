"""What all charts share: size, type, colours, axes, legend. Colours become CSS variables in svg.py."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis.axes import value_axis
from analysis.load import AA_ARM, BASELINE, Run

WIDTH_IN = 5.0

INK, SOFT, GRID, BAND = "#101112", "#606162", "#d0d1d2", "#e0e1e2"
METAL, METAL_B = "#0072b2", "#56b4e9"  # Okabe & Ito's colour-blind safe palette
GUESTS = ("#d55e00", "#009e73", "#cc79a7", "#e69f00")
CSS_COLOURS = {
    INK: "currentColor", SOFT: "var(--soft)", GRID: "var(--grid)", BAND: "var(--band)",
    METAL: "var(--metal)", METAL_B: "var(--metal-b)",
} | {colour: f"var(--guest-{i})" for i, colour in enumerate(GUESTS, start=1)}  # fmt: skip

_RC: Any = {
    "svg.fonttype": "none", "font.family": "sans-serif", "font.sans-serif": ["DejaVu Sans"],
    "font.size": 10, "axes.labelsize": 10, "xtick.labelsize": 9.5, "ytick.labelsize": 10,
    "legend.fontsize": 10, "axes.edgecolor": SOFT, "axes.labelcolor": INK, "text.color": INK,
    "xtick.color": INK, "ytick.color": INK, "axes.spines.top": False, "axes.spines.right": False,
    "axes.spines.left": False, "axes.grid": True, "axes.grid.axis": "x", "grid.color": GRID,
    "grid.linewidth": 0.7, "axes.axisbelow": True, "ytick.major.size": 0, "axes.linewidth": 0.8,
    "figure.constrained_layout.h_pad": 0.05, "figure.constrained_layout.w_pad": 0.06,
}  # fmt: skip


@dataclass(frozen=True)
class Chart:
    """A figure with its words: `title` above, `caption` below, `alt` for those who cannot see it."""

    title: str
    caption: str
    alt: str
    figure: Figure


@dataclass(frozen=True)
class Look:
    """How an environment is drawn, alike in every chart."""

    label: str
    colour: str
    marker: str
    filled: bool
    line: Literal["-", "--", "-.", ":"] = "-"


@contextmanager
def style() -> Iterator[None]:
    """The settings under which charts are drawn and written."""
    with mpl.rc_context(_RC):
        yield


def look(run: Run, environment: str) -> Look:
    """Colour, shape and fill: no two environments differ by colour alone."""
    if environment == BASELINE:
        return Look("metal", METAL, "o", True)
    if environment == AA_ARM:
        return Look("metal again (A/A)", METAL_B, "o", False)
    place = run.guests.index(environment)
    shape = (place + place // len(GUESTS)) % 4  # from the fifth guest on a colour comes again, with another shape
    emulated = " (emulated)" if run.accelerator(environment) == "tcg" else ""
    return Look(environment + emulated, GUESTS[place % len(GUESTS)], "sD^v"[shape], True, ("--", "-.", ":", "-")[shape])


def new_figure(rows: float, panels: int = 1) -> tuple[Figure, list[Axes]]:
    """A figure as tall as its rows need; `rows` may be a fraction."""
    figure = Figure(figsize=(WIDTH_IN, 1.15 + 0.3 * rows), layout="constrained")
    axes = figure.subplots(1, panels, squeeze=False)[0]
    return figure, list(axes)


def legend(figure: Figure, looks: Sequence[Look], *, lines: bool = False) -> None:
    """One line above the axes; `lines` for charts whose environments differ by line instead of by mark."""
    handles = [
        Line2D(
            [], [], linestyle=item.line if lines else "none", marker="none" if lines else item.marker,
            color=item.colour, markersize=7, label=item.label,
            markerfacecolor=item.colour if item.filled else "none",
        )
        for item in looks
    ]  # fmt: skip
    columns = len(looks) if len(looks) <= 3 else 2
    figure.legend(
        handles=handles, loc="outside upper left", ncols=columns, frameon=False, handletextpad=0.5 if lines else 0.1,
        columnspacing=1.2, borderaxespad=0.1,
    )  # fmt: skip


def scatter(axes: Axes, x: Any, y: Any, item: Look) -> None:
    """One small mark per trial."""
    axes.scatter(
        x, y, s=18, marker=item.marker, linewidths=0.8, alpha=0.7, edgecolors=item.colour,
        facecolors=item.colour if item.filled else "none", zorder=3,
    )  # fmt: skip


@dataclass(frozen=True)
class Lane:
    """One environment's trials in one row: `values` has one figure per trial."""

    row: str
    look: Look
    values: pd.Series


def strip(lanes: Sequence[Lane], unit: str) -> Figure:
    """Every trial as a point, one row per label, one lane per environment, a bar at the median."""
    rows = list(dict.fromkeys(lane.row for lane in lanes))
    looks = list({lane.look.label: lane.look for lane in lanes}.values())
    step = 0.75 / max(len(looks), 2)
    figure, (axes,) = new_figure(len(rows) * max(1.0, 0.55 * len(looks)))
    for lane in lanes:
        place = rows.index(lane.row) + (looks.index(lane.look) - (len(looks) - 1) / 2) * step
        jitter = np.linspace(-0.22, 0.22, len(lane.values)) * step
        scatter(axes, lane.values, place + jitter, lane.look)
        axes.plot([lane.values.median()] * 2, [place - step * 0.45, place + step * 0.45], color=INK, lw=1.6)
    everything = pd.concat([lane.values for lane in lanes])
    value_axis(axes, float(everything.min()), float(everything.max()), unit)
    row_axis(axes, rows)
    legend(figure, looks)
    return figure


def row_axis(axes: Axes, rows: Sequence[str]) -> None:
    """Rows from top to bottom, names on the left, thin lines between them."""
    axes.set_yticks(range(len(rows)), [row.replace(" · ", "\n") for row in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    for edge in range(1, len(rows)):
        axes.axhline(edge - 0.5, color=GRID, lw=0.7)


def lanes_of(run: Run, labels: dict[tuple[str, ...], str], columns: dict[str, str]) -> list[Lane]:
    """The usable (not invalid) trials of each scenario and environment; environment → column."""
    lanes = []
    for scenario, label in labels.items():
        for environment, column in columns.items():
            values = figures(run, scenario, environment)[column].dropna()
            if not values.empty:
                lanes.append(Lane(label, look(run, environment), values))
    return lanes


def figures(run: Run, scenario: tuple[str, ...], environment: str) -> pd.DataFrame:
    """The trials of one cell of the matrix that are not invalid, by block."""
    trials = run.cells[scenario] if scenario in run.cells else run.trials[:0]
    return trials[(trials["environment"] == environment) & (trials["verdict"] != "invalid")]


def medians_in_words(lanes: Sequence[Lane], unit: str) -> str:
    """The text alternative of a strip: each lane's median and range."""
    parts = [
        f"{lane.row} on {lane.look.label}: median {lane.values.median():,.4g} {unit}"
        f" ({lane.values.min():,.4g} to {lane.values.max():,.4g}, {len(lane.values)} trials)"
        for lane in lanes
    ]
    return "; ".join(parts) + "."

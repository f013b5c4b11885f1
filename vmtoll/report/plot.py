"""The style of all charts: size, type, colors, axes, legend. page.py turns the colors into CSS variables."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator

from vmtoll.analysis.run import Run
from vmtoll.model.finding import Validity
from vmtoll.model.message import number
from vmtoll.model.trial import Arm, Scenario
from vmtoll.report.words import arm_text, duration, platform_text

LOG_ABOVE = 6.0  # highest ÷ lowest value above which an axis is logarithmic
WIDE = 20.0  # the same for loads


def value_axis(axes: Axes, low: float, high: float, unit: str) -> None:
    """Make the x axis linear from zero, or logarithmic over a wide range, with few, round ticks."""
    if low > 0 and high / low > LOG_ABOVE:
        low, high = low / 1.25, high * 1.25
        axes.set(xscale="log", xlim=(low, high), xlabel=f"{unit} (logarithmic)")
        set_ticks(axes.xaxis, log_ticks(low, high))
    else:
        plain_axis(axes.xaxis, high, most=5)
        axes.set_xlabel(unit)


def latency_axis(axis: Axis, low_us: float, high_us: float) -> None:
    """Make an axis logarithmic, in µs to s, each tick with its unit."""
    log_axis(axis, low_us, high_us)
    axis.set_major_formatter(lambda value, _: duration(value))


def log_axis(axis: Axis, low: float, high: float, *, with_zero: bool = False) -> None:
    """Make an axis, x or y, logarithmic with few, round ticks; `low` above zero. `with_zero`: leave room for zero."""
    padding = max(1.1, (high / low) ** 0.05)
    low, high = low / padding, high * padding
    is_x = axis is axis.axes.xaxis
    set_scale = axis.axes.set_xscale if is_x else axis.axes.set_yscale
    set_scale("symlog", linthresh=low, linscale=0.4) if with_zero else set_scale("log")
    _set_limits(axis, 0 if with_zero else low, high)
    ticks = log_ticks(low, high, most=4 if is_x else 5)
    if len(ticks) < 2:
        ticks = [t for t in MaxNLocator(3).tick_values(low, high) if low <= t <= high]
    set_ticks(axis, ([0.0] if with_zero else []) + ticks)


def plain_axis(axis: Axis, high: float, most: int = 4) -> None:
    """Make an axis, x or y, linear from zero, with few, round ticks."""
    high *= 1.06
    _set_limits(axis, 0, high)
    set_ticks(axis, [t for t in MaxNLocator(most).tick_values(0, high) if t <= high])


def _set_limits(axis: Axis, low: float, high: float) -> None:
    (axis.axes.set_xlim if axis is axis.axes.xaxis else axis.axes.set_ylim)(low, high)


def load_axis(axis: Axis, low: float, high: float) -> bool:
    """Make an axis linear from zero, or logarithmic where the loads span more than WIDE; return whether it is."""
    if high / low > WIDE:
        log_axis(axis, low, high)
    else:
        plain_axis(axis, high)
    return high / low > WIDE


def set_ticks(axis: Axis, ticks: Sequence[float], text: Callable[[float], str] | None = None) -> None:
    """Put ticks at these values alone; `text` formats them, by default `short_number`."""
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(lambda value, _: (text or short_number)(value))


def log_ticks(low: float, high: float, most: int = 6) -> list[float]:
    """1-2-5 ticks within the range, thinned to 1-3, then to decades if there are still more than `most`."""
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks: list[float] = []
    for steps in ((1, 2, 5), (1, 3), (1,)):
        ticks = [s * 10.0**e for e in exponents for s in steps if low <= s * 10.0**e <= high]
        if len(ticks) <= most:
            break
    return ticks


def short_number(value: float) -> str:
    """12000 → `12k`, 0.5 → `0.5`, 450 → `450`."""
    for size, suffix in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{suffix}"
    return f"{value:g}"


WIDTH_IN = 5.0
CHARACTER_IN, LEGEND_MARK_IN, LEGEND_LINE_IN = 0.085, 0.45, 0.2
CROWDED = 8  # from more rows on, their names are smaller, in two lines

INK, SOFT, GRID, BAND = "#101112", "#606162", "#d0d1d2", "#e0e1e2"
BLUE, SKY = "#0072b2", "#56b4e9"  # Okabe & Ito's palette, safe for color-blind readers
GUESTS = ("#d55e00", "#009e73", "#cc79a7", "#e69f00")
CSS_COLOURS = {
    INK: "currentColor", SOFT: "var(--soft)", GRID: "var(--grid)", BAND: "var(--band)",
    BLUE: "var(--metal)", SKY: "var(--control)",
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

    @classmethod
    def of(cls, title: str, caption: str, texts: Iterable[str], figure: Figure, x: str = "", y: str = "") -> "Chart":
        """A chart with `texts`, one per curve or row, as `alt`; `x` and `y` label the axes that all panels share."""
        if x:
            figure.supxlabel(x, fontsize=10)
        if y:
            figure.supylabel(y, fontsize=10)
        return cls(title, caption, "; ".join(texts) + ".", figure)


@dataclass(frozen=True)
class SeriesStyle:
    """The style of an arm, the same in every chart."""

    label: str
    colour: str
    marker: str
    filled: bool
    line: Literal["-", "--", "-.", ":"] = "-"


@contextmanager
def style() -> Iterator[None]:
    """Apply the settings for drawing and writing charts."""
    with mpl.rc_context(_RC):
        yield


def arm_style(run: Run, arm: Arm) -> SeriesStyle:
    """Color, shape, fill and line of an arm: no two arms differ by color alone; a control is hollow."""
    platform = platform_text(run.accelerator(arm), run.hardware(arm), " ({})")
    if arm.environment == run.baseline.environment:
        return SeriesStyle(arm_text(arm) + platform, SKY if arm.is_control else BLUE, "o", not arm.is_control)
    index = run.compared_arms.index(Arm(arm.environment))
    shape = (index + index // len(GUESTS)) % 4  # from the fifth guest on colors repeat, with another shape
    line: Literal["-", "--", "-.", ":"] = ("--", "-.", ":", "-")[shape]
    return SeriesStyle(arm_text(arm) + platform, GUESTS[index % len(GUESTS)], "sD^v"[shape], not arm.is_control, line)


def new_figure(rows: float, panels: int = 1) -> tuple[Figure, list[Axes]]:
    """A figure as tall as its rows need; `rows` may be a fraction."""
    figure = Figure(figsize=(WIDTH_IN, 1.15 + 0.3 * rows), layout="constrained")
    axes = figure.subplots(1, panels, squeeze=False)[0]
    return figure, list(axes)


def legend(figure: Figure, styles: Sequence[SeriesStyle], *, lines: bool = False, marks: bool = True) -> None:
    """Add a legend above the axes; `lines`, `marks`: show each curve's line style, its marker."""
    handles = [
        Line2D(
            [], [], linestyle=item.line if lines else "none", marker=item.marker if marks else "none",
            color=item.colour, markersize=7, label=item.label,
            markerfacecolor=item.colour if item.filled else "none",
        )
        for item in styles
    ]  # fmt: skip
    columns = _legend_columns([item.label for item in styles])
    # A legend of more than two lines makes the figure taller, so that the axes keep their height.
    extra_lines = max(0, -(-len(styles) // columns) - 2)
    figure.set_figheight(figure.get_figheight() + LEGEND_LINE_IN * extra_lines)
    figure.legend(
        handles=handles, loc="outside upper left", ncols=columns, frameon=False, handletextpad=0.5 if lines else 0.1,
        columnspacing=1.2, borderaxespad=0.1,
    )  # fmt: skip


def _legend_columns(labels: Sequence[str]) -> int:
    """The number of columns that fit: up to three for three labels, up to two for more; filled column by column."""
    for columns in range(len(labels) if len(labels) <= 3 else 2, 1, -1):
        lines = -(-len(labels) // columns)
        widest = [max(map(len, labels[index : index + lines])) for index in range(0, len(labels), lines)]
        if sum(CHARACTER_IN * length + LEGEND_MARK_IN for length in widest) <= WIDTH_IN:
            return columns
    return 1


def scatter(axes: Axes, x: Any, y: Any, item: SeriesStyle) -> None:
    """One small mark per trial."""
    axes.scatter(
        x, y, s=18, marker=item.marker, linewidths=0.8, alpha=0.7, edgecolors=item.colour,
        facecolors=item.colour if item.filled else "none", zorder=3,
    )  # fmt: skip


@dataclass(frozen=True)
class Lane:
    """One arm's trials in one row: `values` has one figure per trial."""

    row: str
    style: SeriesStyle
    values: pd.Series


def strip(lanes: Sequence[Lane], unit: str) -> Figure:
    """Every trial as a point, one row per label, one lane per arm, a bar at the median."""
    rows = list(dict.fromkeys(lane.row for lane in lanes))
    palette = list(CSS_COLOURS)  # the baseline and its control first, in whichever scenario they occur
    styles = sorted(
        {lane.style.label: lane.style for lane in lanes}.values(), key=lambda item: palette.index(item.colour)
    )
    step = 0.75 / max(len(styles), 2)
    figure, (axes,) = new_figure(len(rows) * max(1.0, 0.55 * len(styles)))
    for lane in lanes:
        y = rows.index(lane.row) + (styles.index(lane.style) - (len(styles) - 1) / 2) * step
        jitter = np.linspace(-0.22, 0.22, len(lane.values)) * step
        scatter(axes, lane.values, y + jitter, lane.style)
        axes.plot([lane.values.median()] * 2, [y - step * 0.45, y + step * 0.45], color=INK, lw=1.6)
    all_values = pd.concat([lane.values for lane in lanes])
    value_axis(axes, float(all_values.min()), float(all_values.max()), unit)
    row_axis(axes, rows)
    legend(figure, styles)
    return figure


def row_axis(axes: Axes, rows: Sequence[str], subtitles: Sequence[str] = ()) -> None:
    """Rows from top to bottom, names on the left, thin lines between them; `subtitles`: a text below each name.

    The figure grows where the names need it.
    """
    is_crowded = len(rows) > CROWDED
    names = [_row_name(row, text, is_crowded) for row, text in zip(rows, subtitles or [""] * len(rows), strict=True)]
    size = 8 if is_crowded else 10
    axes.set_yticks(range(len(rows)), names, fontsize=size)
    line_in = 1.3 * size / 72
    needed_in = len(rows) * line_in * (1.4 + max(name.count("\n") for name in names))
    figure = axes.figure
    assert isinstance(figure, Figure)
    figure.set_figheight(max(figure.get_figheight(), 1.15 + needed_in))
    axes.set_ylim(len(rows) - 0.5, -0.5)
    for edge in range(1, len(rows)):
        axes.axhline(edge - 0.5, color=GRID, lw=0.7)


def _row_name(row: str, subtitle: str, is_crowded: bool) -> str:
    parts = row.split(" · ")
    lines = [f"{parts[0]} {subtitle}".rstrip(), " · ".join(parts[1:])] if is_crowded else [*parts, subtitle]
    return "\n".join(filter(None, lines))


def lanes_of(run: Run, labels: dict[Scenario, str], arms: Iterable[Arm], column: str) -> list[Lane]:
    """The figures of a column, one lane per scenario and arm that has any."""
    return [
        Lane(label, arm_style(run, arm), values.astype(float))
        for scenario, label in labels.items()
        for arm in arms
        if not (values := usable_trials(run, scenario, arm)[column].dropna()).empty
    ]


def strip_chart(title: str, caption: str, lanes: Sequence[Lane], unit: str, axis: str = "") -> Chart:
    """The chart of a strip, with each lane's median and range as `alt`. `axis`: its label, by default the unit."""
    texts = [
        f"{lane.row} on {lane.style.label}: median {number(lane.values.median())} {unit}"
        f" ({number(lane.values.min())} to {number(lane.values.max())}, {len(lane.values)} trials)"
        for lane in lanes
    ]
    return Chart.of(title, caption, texts, strip(lanes, axis or unit))


def usable_trials(run: Run, scenario: Scenario, arm: Arm) -> pd.DataFrame:
    """The trials of a scenario on an arm that are not invalid, by block; chosen once, so do not change it."""
    key = ("usable trials", scenario, arm)
    if key not in run.derived:
        frame = run.frame
        run.derived[key] = frame[
            (frame["scenario"] == scenario) & (frame["arm"] == arm) & (frame["validity"] != Validity.INVALID.value)
        ]
    trials: pd.DataFrame = run.derived[key]
    return trials

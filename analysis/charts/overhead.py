"""Forest plot: what the guest loses in throughput, and costs more in latency and CPU, with intervals."""

from __future__ import annotations

import math
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from analysis.axes import log_ticks
from analysis.judge import INVALID, estimate_words, percent
from analysis.load import SCENARIO, Run
from analysis.metrics import METRICS, Metric
from analysis.panels import shown_labels
from analysis.plot import BAND, INK, METAL, SOFT, Chart, look, new_figure, row_axis

ORDER = 10
NICE_OVERHEADS = (-4, -1, -0.5, -0.2, -0.1, -0.05, -0.02, 0, 0.02, 0.05, 0.1, 0.2, 0.5, 0.8, 0.9, 0.95, 0.98, 0.99)
NARROW = math.log(1.25)


def draw(run: Run, outcome: dict[str, Any]) -> list[Chart]:
    """One chart per metric that has an estimate."""
    charts: list[Chart] = []
    shown = shown_labels(run)
    for metric in METRICS:
        entries = [(r, r["metrics"][metric.name]) for r in outcome["results"] if _scenario(r) in shown]
        entries = [(r, m) for r, m in entries if m["applies"]]
        absent = [r["label"] for r, m in entries if m.get("ratio") is None]
        entries = [(r, m) for r, m in entries if m.get("ratio") is not None]
        if entries:
            charts.append(_forest(run, metric, entries, outcome["margin"], first=not charts, absent=absent))
    return charts


def _scenario(result: dict[str, Any]) -> tuple[str, ...]:
    return tuple(str(result[column]) for column in SCENARIO)


def _forest(
    run: Run,
    metric: Metric,
    entries: list[tuple[dict[str, Any], dict[str, Any]]],
    margin: float,
    *,
    first: bool,
    absent: list[str],
) -> Chart:
    sign = -1.0 if metric.higher_is_better else 1.0
    several = len(run.guests) > 1
    names = [r["label"] + (f" · {r['environment']}" if several else "") for r, _ in entries]
    lines = 2 + max(name.count(" · ") for name in names)
    figure, (axes,) = new_figure((0.65 * lines + 0.25) * len(entries) - 0.6)
    axes.axvspan(-math.log1p(margin), math.log1p(margin), color=BAND, lw=0, zorder=0)
    axes.axvline(0, color=INK, lw=1.0, zorder=1)
    reach = [0.0, -math.log1p(2 * margin), math.log1p(2 * margin)]
    for row, (result, one) in enumerate(entries):
        style = look(run, result["environment"])
        reach += _row(axes, row, one, sign, style.colour, style.marker)
    low, high = min(reach), max(reach)
    pad = 0.06 * (high - low)
    axes.set_xlim(low - pad, high + pad)
    _ticks(axes, low - pad, high + pad, metric)
    row_axis(axes, [f"{name}\n{_under(one)}" for name, (_, one) in zip(names, entries, strict=True)])
    told = [f"{one['text']}, {estimate_words(one)}" for _, one in entries]
    words = "; ".join(f"{name}: {text}" for name, text in zip(names, told, strict=True))
    title = ("Overhead: " if metric.higher_is_better else "Cost ratio: ") + metric.label
    caption = "Right of zero metal is better." if metric.higher_is_better else "Right of 1 metal is better."
    caption += _how_to_read([one for _, one in entries], margin) if first else " Read as the first figure."
    if any(one["bound"] for _, one in entries):
        caption += " An arrow: the figure is a bound, because the client or the link set the pace."
    if absent:
        caption += f" Without a figure: {', '.join(dict.fromkeys(absent))}."
    note = f" {metric.note[:1].upper()}{metric.note[1:]}." if metric.note else ""
    return Chart(title, caption + note, words + ".", figure)


def _under(one: dict[str, Any]) -> str:
    """The line under a row's name."""
    return "invalid" if one["kind"] == INVALID else estimate_words(one).removeprefix("overhead ")


def _how_to_read(ones: list[dict[str, Any]], margin: float) -> str:
    words = (
        " Mark: estimate over blocks with its 95% interval (paired t); thin line below: Hodges–Lehmann with the"
        f" exact signed-rank interval. Shaded: ±{percent(margin)}, of no practical importance."
    )
    if any(one["noise_floor"] is not None for one in ones):
        words += " Blue bar at the bottom of a row: the noise floor from the A/A arm."
    return words


def _row(axes: Axes, row: int, one: dict[str, Any], sign: float, colour: str, marker: str) -> list[float]:
    """Draw one row in log units, positive where metal is better; returns the x values that it needs."""

    def logs(prefix: str) -> list[float]:
        values = [one.get(f"{prefix}ratio"), one.get(f"{prefix}ratio_low"), one.get(f"{prefix}ratio_high")]
        return [sign * math.log(v) for v in values if v is not None]

    t, rank = logs(""), logs("hodges_lehmann_")
    valid = one["kind"] != INVALID
    axes.plot(t, [row - 0.06] * len(t), color=colour, lw=2.4, solid_capstyle="butt", zorder=3)
    face = colour if valid else "none"
    axes.scatter(t[0], row - 0.06, s=52, marker=marker, color=face, edgecolors=colour, zorder=4)
    axes.plot(rank, [row + 0.14] * len(rank), color=SOFT, lw=1.2, zorder=3)
    axes.scatter(rank[0], row + 0.14, s=12, marker="d", color=SOFT, zorder=4)
    if one["noise_floor"] is not None:
        floor = math.log1p(one["noise_floor"])
        axes.plot([-floor, floor], [row + 0.42] * 2, color=METAL, lw=3.0, solid_capstyle="butt", zorder=2)
    if one["bound"] and valid:
        outward = (1 if t[0] > 0 else -1) * (1 if one["bound"] == "at least" else -1)
        axes.annotate(
            "", (t[0], row - 0.06), xytext=(24 * outward, 0), textcoords="offset points", zorder=3,
            arrowprops={"arrowstyle": "<-", "color": colour, "lw": 1.6}, annotation_clip=False,
        )  # fmt: skip
    return t + rank


def _ticks(axes: Axes, low: float, high: float, metric: Metric) -> None:
    """Ticks at round overheads (or ratios), at least a sixth of the axis apart."""
    if metric.higher_is_better:
        marks = {-math.log1p(-o): f"{100 * o:g}%" for o in NICE_OVERHEADS}
    elif high - low > 4 * NARROW:
        marks = {math.log(r): f"{r:g}×" for r in log_ticks(math.exp(low), math.exp(high))} | {0.0: "1×"}
    else:
        marks = {math.log(r): f"{r:g}×" for r in (0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 1, 1.02, 1.05, 1.1, 1.2, 1.5, 2)}
    kept: list[float] = []
    for place in sorted((m for m in marks if low <= m <= high), key=abs):
        if all(abs(place - other) >= (high - low) / 6 for other in kept):
            kept.append(place)
    axes.xaxis.set_major_locator(FixedLocator(kept))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: marks[min(marks, key=lambda m: abs(m - x))]))
    axes.set_xlabel("overhead of the guest" if metric.higher_is_better else "guest ÷ metal")

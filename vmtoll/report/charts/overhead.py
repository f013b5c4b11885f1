"""Forest plot: what an arm loses in throughput to the baseline, and costs more in latency and CPU, with intervals."""

import math
from collections.abc import Sequence

from matplotlib.axes import Axes

from vmtoll.analysis.run import Run
from vmtoll.model.analysis import RunAnalysis
from vmtoll.model.metric import METRICS, Metric
from vmtoll.model.verdict import Comparison, Estimate, Kind, Verdict
from vmtoll.report.panels import shown_labels
from vmtoll.report.plot import BAND, BLUE, CROWDED, INK, Chart, arm_style, log_ticks, new_figure, row_axis, set_ticks
from vmtoll.report.words import (
    METRIC_LABELS,
    Naming,
    estimate_text,
    head_text,
    headline,
    percent,
    sides_of,
    verdict_text,
)

ORDER = 10
NARROW = math.log(1.25)
Row = tuple[str, Comparison, Verdict]


def draw(run: Run, analysis: RunAnalysis) -> list[Chart]:
    """One chart per metric that has an estimate; the metric of the headline comes first."""
    charts: list[Chart] = []
    labels, has_several_arms = shown_labels(run), len(run.compared_arms) > 1
    shown = [c for c in analysis.comparisons if c.scenario in labels]
    sides = sides_of(analysis.comparisons)
    headline_metric = headline(analysis).answers[0].metric
    for metric in sorted(METRICS.values(), key=lambda metric: metric != headline_metric):
        rows = [
            (labels[c.scenario] + (f" · {c.arm}" if has_several_arms else ""), c, c.verdicts[metric.name])
            for c in shown
            if metric.name in c.verdicts and c.verdicts[metric.name].applies
        ]
        absent = [labels[c.scenario] for _, c, verdict in rows if verdict.estimate is None]
        rows = [row for row in rows if row[2].estimate is not None]
        if rows:
            charts.append(_forest(run, metric, rows, sides, analysis.margin, first=not charts, absent=absent))
    return charts


def _forest(
    run: Run, metric: Metric, rows: Sequence[Row], sides: Naming, margin: float, *,
    first: bool, absent: list[str],
) -> Chart:  # fmt: skip
    lines = 2 + max(name.count(" · ") for name, *_ in rows)
    figure, (axes,) = new_figure((1.2 if len(rows) > CROWDED else 0.65 * lines + 0.25) * len(rows) - 0.6)
    axes.axvspan(-math.log1p(margin), math.log1p(margin), color=BAND, ec=BAND, lw=2.0, zorder=0)
    axes.axvline(0, color=INK, lw=0.5, zorder=1)
    visible_values = [0.0, -math.log1p(2 * margin), math.log1p(2 * margin)]
    for index, (_, comparison, verdict) in enumerate(rows):
        style = arm_style(run, comparison.arm)
        visible_values += _row(axes, index, verdict, style.colour, style.marker)
    low, high = min(visible_values), max(visible_values)
    pad = 0.06 * (high - low)
    axes.set_xlim(low - pad, high + pad)
    _ticks(axes, low - pad, high + pad)
    compared = {sides(comparison).compared for _, comparison, _ in rows}
    other = compared.pop() if len(compared) == 1 else "the other"
    axes.set_xlabel(f"{other.removeprefix('the ')} ÷ {head_text(run, run.baseline)}")
    verdicts = [verdict for *_, verdict in rows]
    subtitles = [estimate_text(v) for v in verdicts]
    row_axis(axes, [name for name, *_ in rows], subtitles)
    words = METRIC_LABELS[metric.name]
    texts = [f"{name}: {verdict_text(verdict, sides(comparison))}" for name, comparison, verdict in rows]
    better = "Left" if metric.higher_is_better else "Right"
    caption = f"{better} of 1×: {run.baseline} is better."
    caption += _how_to_read(verdicts, margin) if first else " Read it like the first chart."
    if any(verdict.is_at_least for verdict in verdicts):
        caption += " An arrow: the difference may be larger, because client, link or lost trials leave that end open."
    if any(verdict.by_every_block for verdict in verdicts):
        caption += " A dotted line: the range of blocks, each of which shows the difference."
    if any(verdict.kind is Kind.UNDECIDED for verdict in verdicts):
        caption += " A hollow mark: undecided."
    if absent:
        caption += f" Without a value: {', '.join(dict.fromkeys(absent))}."
    note = f" {words.note[:1].upper()}{words.note[1:]}." if words.note else ""
    title = f"Ratio to {run.baseline}: {words.label}"
    return Chart.of(title, caption + note, texts, figure)


def _how_to_read(verdicts: Sequence[Verdict], margin: float) -> str:
    text = (
        " The mark is the mean of the blocks. The bar is the interval of the ratio, widened for disturbed trials."
        f" The grey band is ±{percent(margin)}: negligible."
    )
    if any(verdict.noise_floor is not None for verdict in verdicts):
        text += " The blue bar is noise: the largest ratio of the same environment to itself in a block."
    return text


def _row(axes: Axes, row: int, verdict: Verdict, colour: str, marker: str) -> list[float]:
    """Draw one row in logs of the ratio; return the x values that it needs."""
    x_values = _logs(verdict.estimate)
    if verdict.by_every_block:
        x_values = [x_values[0], *_logs(verdict.blocks_range)[1:]]
    style = ":" if verdict.by_every_block else "-"
    axes.plot(x_values, [row] * len(x_values), color=colour, lw=2.4, ls=style, solid_capstyle="butt", zorder=3)
    face = "none" if verdict.kind is Kind.UNDECIDED else colour
    axes.scatter(x_values[0], row, s=52, marker=marker, color=face, edgecolors=colour, zorder=4)
    if verdict.noise_floor is not None:
        floor = math.log1p(verdict.noise_floor)
        axes.plot([-floor, floor], [row + 0.42] * 2, color=BLUE, lw=3.0, solid_capstyle="butt", zorder=2)
    if verdict.is_at_least:
        outward, end = (1, max(x_values)) if x_values[0] > 0 else (-1, min(x_values))
        axes.annotate(
            "", (end, row), xytext=(18 * outward, 0), textcoords="offset points", zorder=3,
            arrowprops={"arrowstyle": "<-", "color": colour, "lw": 1.6}, annotation_clip=False,
        )  # fmt: skip
    return x_values


def _logs(estimate: Estimate | None) -> list[float]:
    """The logs of the estimate and of its interval's ends."""
    values = (estimate.value, estimate.low, estimate.high) if estimate else ()
    return [math.log(value) for value in values if value is not None]


def _ticks(axes: Axes, low: float, high: float) -> None:
    """Ticks at round ratios, at least a sixth of the axis apart."""
    if high - low > 4 * NARROW:
        marks = {math.log(r): f"{r:g}×" for r in log_ticks(math.exp(low), math.exp(high))} | {0.0: "1×"}
    else:
        marks = {math.log(r): f"{r:g}×" for r in (0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 1, 1.02, 1.05, 1.1, 1.2, 1.5, 2)}
    kept_positions: list[float] = []
    for position in sorted((m for m in marks if low <= m <= high), key=abs):
        if all(abs(position - other) >= (high - low) / 6 for other in kept_positions):
            kept_positions.append(position)
    set_ticks(axes.xaxis, kept_positions, lambda x: marks[min(marks, key=lambda m: abs(m - x))])

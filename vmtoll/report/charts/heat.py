"""Time × latency: when a server was slow, second by second, block after block."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import PathPatch
from matplotlib.path import Path as Outline

from vmtoll.analysis.run import Run
from vmtoll.model.analysis import RunAnalysis
from vmtoll.model.trial import Arm, TrialRecord
from vmtoll.report.panels import PanelGroup, arm_suffix, grid, single_loads
from vmtoll.report.plot import INK, Chart, SeriesStyle, arm_style, latency_axis, usable_trials
from vmtoll.report.words import duration

ORDER = 35
COLUMNS = 48  # of a panel, so that a page stays small
BIN = 10**0.1  # upper ÷ lower edge of a bin
SHADES = (0.01, 0.05, 0.2, 0.5)  # of the requests sent in a column's time: each share starts a darker shade


def draw(run: Run, analysis: RunAnalysis) -> list[Chart]:
    """One chart per load and arm: a row of panels per server, the baseline on the left."""
    return [chart for group in single_loads(run) for arm in run.compared_arms if (chart := _chart(run, group, arm))]


@dataclass(frozen=True)
class Layout:
    """The time axis of all panels of a chart: `blocks` side by side, each `width` columns of `seconds` seconds."""

    blocks: tuple[int, ...]
    seconds: int
    width: int


def _chart(run: Run, group: PanelGroup, arm: Arm) -> Chart | None:
    sides = (run.baseline, arm)
    counts = {
        (server, side): by_second(run, list(usable_trials(run, group.scenario(server, group.loads[0]), side)["record"]))
        for server in group.servers
        for side in sides
    }
    servers = [server for server in group.servers if all(len(counts[server, side]) for side in sides)]
    if not servers:
        return None
    keys = [(server, side) for server in servers for side in sides]
    layout = layout_of(pd.concat([counts[key] for key in keys]))
    cells = {key: cells_of(counts[key], layout) for key in keys}
    figure, panels = grid([f"{server}, {side}" for server, side in keys])
    words = []
    for axes, key in zip(panels, keys, strict=True):
        item = arm_style(run, key[1])
        _panel(axes, cells[key], layout, item)
        slow = cells[key].groupby("column")["latency_us"].max()
        words.append(
            f"{key[0]} on {item.label}: the slowest answer of a column took between"
            f" {duration(slow.min())} and {duration(slow.max() * BIN)}"
        )
    latencies = pd.concat([cells[key]["latency_us"] for key in keys])
    latency_axis(panels[0].yaxis, float(latencies.min()), float(latencies.max() * BIN))
    caption = (
        f"A column is {'a second' if layout.seconds == 1 else f'{layout.seconds} seconds'} of sending; thin lines"
        " separate the blocks. The darker a cell, the larger its share of the requests sent in that time (shades from"
        f" above 0, 1, 5, 20 and 50%). {group.latency_caption}"
    )
    title = f"When it was slow ({group.text}{arm_suffix(run, arm)})"
    return Chart.of(title, caption, words, figure, "time under load, block after block")


def by_second(run: Run, trials: Sequence[TrialRecord]) -> pd.DataFrame:
    """`block`, `second`, `latency_us` (lower edge), `count`; empty when any of the trials lacks its file.

    Raises ValueError with the file's name when it cannot be read.
    """
    files = {trial.block: run.path / "histograms" / f"{trial.name}.csv" for trial in trials}
    if not files or not all(file.exists() for file in files.values()):
        return pd.DataFrame()
    return pd.concat([_read(file).assign(block=block) for block, file in sorted(files.items())], ignore_index=True)


def layout_of(counts: pd.DataFrame) -> Layout:
    """A layout with a second per column, or as many seconds as keep a panel near COLUMNS columns."""
    blocks = tuple(sorted(map(int, counts["block"].unique())))
    longest = int(counts["second"].max()) + 1
    seconds = math.ceil(longest * len(blocks) / COLUMNS)
    return Layout(blocks, seconds, math.ceil(longest / seconds))


def cells_of(counts: pd.DataFrame, layout: Layout) -> pd.DataFrame:
    """One row per cell: `column`, `latency_us`, `count` and `share` of the requests of that column."""
    index = {block: index for index, block in enumerate(layout.blocks)}
    column = counts["block"].map(index) * layout.width + counts["second"] // layout.seconds
    grouped = counts.assign(column=column).groupby(["column", "latency_us"], as_index=False)
    cells: pd.DataFrame = grouped.agg(count=("count", "sum"))
    return cells.assign(share=cells["count"] / cells.groupby("column")["count"].transform("sum"))


def _read(file: Path) -> pd.DataFrame:
    try:
        return pd.read_csv(file, dtype={"second": int, "latency_us": int, "count": int})
    except (ValueError, KeyError) as error:
        raise ValueError(f"{file}: not lines of second,latency_us,count: {error}") from error


def _panel(axes: Axes, cells: pd.DataFrame, layout: Layout, item: SeriesStyle) -> None:
    shades = np.searchsorted(SHADES, cells["share"], side="right")
    for level in range(len(SHADES) + 1):
        boxes = [
            Outline([(x, y), (end, y), (end, y * BIN), (x, y * BIN), (x, y)], closed=True)
            for x, end, y in _runs(cells[shades == level])
        ]
        if boxes:
            outline = Outline.make_compound_path(*boxes)
            axes.add_patch(PathPatch(outline, color=item.colour, lw=0, alpha=0.12 + 0.22 * level))
    starts = [index * layout.width for index in range(len(layout.blocks))]
    for start in starts[1:]:
        axes.axvline(start, color=INK, lw=0.5, alpha=0.4)
    axes.set_xlim(0, len(starts) * layout.width)
    axes.set_xticks([start + layout.width / 2 for start in starts], [str(block) for block in layout.blocks])
    axes.grid(visible=False, axis="x")


def _runs(cells: pd.DataFrame) -> list[tuple[int, int, int]]:
    """(first column, column after the last, latency) of cells that lie side by side."""
    ordered = cells.sort_values(["latency_us", "column"])
    columns, latencies_us = ordered["column"].to_numpy(), ordered["latency_us"].to_numpy()
    breaks = np.flatnonzero((np.diff(columns) != 1) | (np.diff(latencies_us) != 0)) + 1
    starts = [0, *breaks] if len(columns) else []
    ends = [*starts[1:], len(columns)]
    return [
        (int(columns[start]), int(columns[end - 1]) + 1, int(latencies_us[start]))
        for start, end in zip(starts, ends, strict=False)
    ]

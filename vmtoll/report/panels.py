"""Charts of small panels, one per server, with shared axes; and which scenarios share a chart."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from vmtoll.analysis.histograms import COLUMNS as SERVICE_TIMES
from vmtoll.analysis.histograms import Floats, distribution
from vmtoll.analysis.run import Run
from vmtoll.model.load import Load
from vmtoll.model.metric import Loop, loop_of
from vmtoll.model.trial import CROSSCHECK, Arm, Scenario
from vmtoll.report.plot import WIDTH_IN, SeriesStyle, arm_style, legend, scatter, usable_trials
from vmtoll.report.words import co_location_text, labels_of, load_text

Data = TypeVar("Data")
PANEL_IN = 1.55


@dataclass(frozen=True)
class PanelGroup:
    """Scenarios of one workload and co-location; they differ in the server and, in a sweep, in the load.

    `loads` are sorted, lightest first; `servers` by name.
    """

    workload: str
    loads: tuple[Load, ...]
    servers: tuple[str, ...]

    @property
    def loop(self) -> Loop:
        return loop_of(self.loads[0])

    @property
    def is_open(self) -> bool:
        return self.loads[0].is_open

    @property
    def kind(self) -> str:
        """`open loop`, `open loop, 2 guests`."""
        return ", ".join(filter(None, [f"{self.loop} loop", co_location_text(self.loads[0])]))

    @property
    def text(self) -> str:
        """Suffix of a chart's title: `open loop, 2,000 req/s`."""
        if len(self.loads) == 1:
            return f"{self.loop} loop, {load_text(self.loads[0])}"
        return f"{self.kind}, {len(self.loads)} loads"

    @property
    def latency_caption(self) -> str:
        """A sentence on what the latencies of this loop are."""
        if self.is_open:
            return "Response times from the intended send: what waits behind a stall is counted."
        return (
            "Service times under a fixed number of users: a stall delays few requests, so these tails are too"
            " optimistic."
        )

    def scenario(self, server: str, load: Load) -> Scenario:
        """The scenario of this server and load in the group."""
        return Scenario(server, self.workload, load)


def panel_groups(run: Run) -> list[PanelGroup]:
    """One group per workload, kind of loop and co-location; closed loops first."""
    members: dict[tuple[Any, ...], list[Scenario]] = {}
    for scenario in run.scenarios:
        load = scenario.load
        members.setdefault((load.is_open, scenario.workload, *load.sort_key[2:]), []).append(scenario)
    return [
        PanelGroup(
            workload,
            tuple(sorted({s.load for s in scenarios}, key=lambda load: load.sort_key)),
            tuple(sorted({s.server for s in scenarios})),
        )
        for (_, workload, *_), scenarios in sorted(members.items(), key=lambda item: item[0])
    ]


def single_loads(run: Run) -> Iterator[PanelGroup]:
    """One group per load; a sweep, over loads or over co-locations, has only its lightest and its heaviest."""
    workloads: dict[tuple[str, bool], list[PanelGroup]] = {}
    for group in panel_groups(run):
        workloads.setdefault((group.workload, group.is_open), []).append(group)
    for co_locations in workloads.values():
        for group in dict.fromkeys((co_locations[0], co_locations[-1])):
            for load in dict.fromkeys((group.loads[0], group.loads[-1])):
                yield PanelGroup(group.workload, (load,), group.servers)


def arm_suffix(run: Run, arm: Arm) -> str:
    """Suffix of a title that names the arm; empty where only one is compared with the baseline."""
    return f", {arm}" if len(run.compared_arms) > 1 else ""


def shown_labels(run: Run, loops: Sequence[Loop] = tuple(Loop)) -> dict[Scenario, str]:
    """Scenario → label; a sweep has only its lightest and its heaviest load."""
    shown = {
        group.scenario(server, group.loads[0])
        for group in single_loads(run)
        if group.loop in loops
        for server in group.servers
    }
    return {scenario: label for scenario, label in labels_of(run.scenarios).items() if scenario in shown}


def grid(names: Sequence[str], columns: int = 2) -> tuple[Figure, list[Axes]]:
    """One panel per name, in columns, with shared axes and the name on top."""
    columns = min(columns, len(names))
    rows = -(-len(names) // columns)
    figure = Figure(figsize=(WIDTH_IN, 0.75 + PANEL_IN * rows), layout="constrained")
    table = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    panels = list(table.flat)
    for axes, name in zip(panels, names, strict=False):
        _set_title(axes, name)
    for index in range(len(names), len(panels)):
        panels[index].remove()
        panels[index - columns].tick_params(labelbottom=True)
    return figure, panels[: len(names)]


def stack(names: Sequence[str], height_in: float) -> tuple[Figure, list[Axes]]:
    """One panel per name, below each other, with a shared x axis and the name on top."""
    figure = Figure(figsize=(WIDTH_IN, height_in), layout="constrained")
    panels = list(figure.subplots(len(names), 1, sharex=True, squeeze=False)[:, 0])
    for axes, name in zip(panels, names, strict=True):
        _set_title(axes, name)
    return figure, panels


def _set_title(axes: Axes, name: str) -> None:
    axes.set_title(name, fontsize=10, loc="left")
    axes.grid(visible=True, axis="both")


def curve_with_bars(
    axes: Axes, points: Iterable[tuple[float, float, float | None, float | None]], item: SeriesStyle, line: str
) -> None:
    """Draw a line through (x, estimate, low, high), with a bar where the interval is known and finite."""
    listed = list(points)
    if listed:
        x, y = [point[0] for point in listed], [point[1] for point in listed]
        axes.plot(x, y, color=item.colour, lw=1.4, ls=line, marker=item.marker, ms=5)
    for position, _, low, high in listed:
        if low is not None and high is not None and math.isfinite(high):
            axes.vlines(position, low, high, color=item.colour, lw=1.2)


def each_arm(
    run: Run, panels: Sequence[Axes], data: Mapping[str, Mapping[Arm, Data]]
) -> Iterator[tuple[Axes, str, SeriesStyle, Data]]:
    """(panel, server, style of the arm, its data) for each server and arm in `data`."""
    for axes, (server, arms) in zip(panels, data.items(), strict=True):
        for arm, values in arms.items():
            yield axes, server, arm_style(run, arm), values


def line_legend(run: Run, figure: Figure, data: Mapping[str, Mapping[Arm, Any]]) -> None:
    """Add a legend of the arms that any panel shows, by line style."""
    arms = dict.fromkeys(arm for arms_of_server in data.values() for arm in arms_of_server)
    legend(figure, [arm_style(run, arm) for arm in arms], lines=True, marks=False)


def measured_arms(run: Run) -> list[Arm]:
    """The arms without controls: a control would only cover its own environment."""
    return [arm for arm in run.arms if not arm.is_control]


def latencies(run: Run, scenario: Scenario, arm: Arm) -> pd.DataFrame:
    """The usable trials, with the cross-check's service times where the tool logs none."""
    trials = usable_trials(run, scenario, arm)
    columns = {f"{CROSSCHECK}{column}": column for column in SERVICE_TIMES}
    if trials[SERVICE_TIMES[0]].notna().any():
        return trials
    return trials.drop(columns=list(SERVICE_TIMES)).rename(columns=columns)


def distributions(run: Run, group: PanelGroup) -> dict[str, dict[Arm, tuple[Floats, Floats]]]:
    """Server → arm → latencies of all requests of all trials (see `distribution`), for a single load.

    A server without histograms is left out.
    """
    column = "response_time_p50_us" if group.is_open else "service_time_p50_us"
    merged: dict[str, dict[Arm, tuple[Floats, Floats]]] = {}
    for server in group.servers:
        for arm in measured_arms(run):
            trials = latencies(run, group.scenario(server, group.loads[0]), arm).dropna(subset=[column])
            if (values := distribution(run.path, trials)) is not None:
                merged.setdefault(server, {})[arm] = values
    return merged


def curves(run: Run, group: PanelGroup, x: str, y: str) -> dict[str, dict[Arm, pd.DataFrame]]:
    """Server → arm → its trials with figures in both columns, lightest load first; empty ones left out."""
    trials: dict[str, dict[Arm, pd.DataFrame]] = {}
    for server in group.servers:
        for arm in measured_arms(run):
            steps = pd.concat([usable_trials(run, group.scenario(server, load), arm) for load in group.loads])
            if not (steps := steps.dropna(subset=[x, y])).empty:
                trials.setdefault(server, {})[arm] = steps
    return trials


def sweep_curve(axes: Axes, trials: pd.DataFrame, x: str, y: str, item: SeriesStyle) -> pd.DataFrame:
    """Draw a point per trial and a line through the medians at each load; return the medians, in order of x."""
    medians = trials.groupby("load_value")[[x, y]].median().sort_values(x)
    scatter(axes, trials[x], trials[y], item)
    axes.plot(medians[x], medians[y], color=item.colour, lw=1.4, ls=item.line)
    return medians


def every_trial(curves: Mapping[str, Mapping[Arm, pd.DataFrame]]) -> pd.DataFrame:
    """All trials of a chart's curves."""
    return pd.concat([trials for arms in curves.values() for trials in arms.values()])

"""Charts of small panels, one per server, alike in their axes; and which scenarios belong into one chart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.latency import Floats, distribution
from analysis.load import AA_ARM, Run, load_order, load_words, scenario_labels
from analysis.metrics import CLOSED, OPEN, loop_of
from analysis.places import place_of, place_words
from analysis.plot import WIDTH_IN, Look, figures, legend, look

Scenario = tuple[str, ...]
Data = TypeVar("Data")
PANEL_IN = 1.55
WIDE = 20.0  # loads that span more than this get logarithmic axes


@dataclass(frozen=True)
class Group:
    """Scenarios of one workload, tool and place that differ in the server, and in a ladder in the load.

    `loads` are sorted, lightest first; `servers` by name.
    """

    workload: str
    tool: str
    loads: tuple[str, ...]
    servers: tuple[str, ...]

    @property
    def open(self) -> bool:
        """True for an open loop."""
        return loop_of(self.loads[0]) == OPEN

    @property
    def place(self) -> str:
        """Over how many guests the load went, and beside which dose; empty where the workload says nothing."""
        return place_of(self.loads[0])

    @property
    def kind(self) -> str:
        """`open loop`, `open loop, 2 guests`."""
        return ", ".join(filter(None, [f"{'open' if self.open else 'closed'} loop", place_words(self.place)]))

    @property
    def words(self) -> str:
        """What stands behind a chart's title: `open loop, 2,000 req/s`."""
        if len(self.loads) == 1:
            return f"{'open' if self.open else 'closed'} loop, {load_words(self.loads[0])}"
        return f"{self.kind}, {len(self.loads)} loads"

    def scenario(self, server: str, load: str) -> Scenario:
        """The scenario as everything else names it."""
        return (server, self.workload, self.tool, load)


def ladders(run: Run) -> list[Group]:
    """One group per workload, tool, kind of loop and place; closed loops first."""
    found: dict[tuple[bool, str, str, tuple[float, ...]], list[Scenario]] = {}
    for scenario in run.scenarios:
        _, workload, tool, load = scenario
        found.setdefault((loop_of(load) == OPEN, workload, tool, load_order(load)[2]), []).append(scenario)
    return [
        Group(
            workload,
            tool,
            tuple(sorted({s[3] for s in members}, key=load_order)),
            tuple(sorted({s[0] for s in members})),
        )
        for (_, workload, tool, _), members in sorted(found.items())
    ]


def single_loads(run: Run) -> Iterator[Group]:
    """One group per load; of a ladder, also of one of guests or doses, only its lightest and its heaviest rung."""
    found: dict[tuple[str, str, bool], list[Group]] = {}
    for group in ladders(run):
        found.setdefault((group.workload, group.tool, group.open), []).append(group)
    for places in found.values():
        for group in dict.fromkeys((places[0], places[-1])):
            for load in dict.fromkeys((group.loads[0], group.loads[-1])):
                yield Group(group.workload, group.tool, (load,), group.servers)


def guest_words(run: Run, guest: str) -> str:
    """What a title says of the guest: nothing when there is only one."""
    return f", {guest}" if len(run.guests) > 1 else ""


def loop_words(group: Group) -> str:
    """What the latencies of this loop are, in a sentence or two."""
    if group.open:
        return "Response times from the intended send: what waits behind a stall is counted."
    return "Service times under a fixed number of users: a stall delays few requests, so these tails are too kind."


def shown_labels(run: Run, loops: Sequence[str] = (CLOSED, OPEN)) -> dict[Scenario, str]:
    """Labels as `scenario_labels` gives them; of a ladder only its lightest and its heaviest rung."""
    groups = [group for group in single_loads(run) if loop_of(group.loads[0]) in loops]
    shown = {group.scenario(server, group.loads[0]) for group in groups for server in group.servers}
    return {scenario: label for scenario, label in scenario_labels(run).items() if scenario in shown}


def grid(names: Sequence[str], columns: int = 2) -> tuple[Figure, list[Axes]]:
    """One panel per name, in columns, with shared axes and its name on top."""
    columns = min(columns, len(names))
    rows = -(-len(names) // columns)
    figure = Figure(figsize=(WIDTH_IN, 0.75 + PANEL_IN * rows), layout="constrained")
    table = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    panels = list(table.flat)
    for axes, name in zip(panels, names, strict=False):
        axes.set_title(name, fontsize=10, loc="left")
        axes.grid(visible=True, axis="both")
    for place in range(len(names), len(panels)):
        panels[place].remove()
        panels[place - columns].tick_params(labelbottom=True)
    return figure, panels[: len(names)]


def each_side(
    run: Run, panels: Sequence[Axes], found: dict[str, dict[str, Data]]
) -> Iterator[tuple[Axes, str, Look, Data]]:
    """Each panel with its server, the look of an environment, and that side's data; server → environment → data."""
    for axes, (server, sides) in zip(panels, found.items(), strict=True):
        for environment, data in sides.items():
            yield axes, server, look(run, environment), data


def line_legend(run: Run, figure: Figure, found: dict[str, dict[str, Any]]) -> None:
    """The environments that any panel shows, told apart by their lines."""
    shown = dict.fromkeys(environment for sides in found.values() for environment in sides)
    legend(figure, [look(run, environment) for environment in shown], lines=True)


def side_environments(run: Run) -> list[str]:
    """Metal and the guests; the A/A arm would only cover metal."""
    return [e for e in run.environments if e != AA_ARM]


def distributions(run: Run, group: Group) -> dict[str, dict[str, tuple[Floats, Floats]]]:
    """Server → environment → latencies of all requests of all trials (see `distribution`), for a single load.

    A server without histograms is left out.
    """
    column = f"{'response' if group.open else 'service'}_time_p50_us"
    found: dict[str, dict[str, tuple[Floats, Floats]]] = {}
    for server in group.servers:
        for environment in side_environments(run):
            trials = figures(run, group.scenario(server, group.loads[0]), environment).dropna(subset=[column])
            merged = distribution(run.path, trials)
            if merged is not None:
                found.setdefault(server, {})[environment] = merged
    return found


def curves(run: Run, group: Group, x: str, y: str) -> dict[str, dict[str, pd.DataFrame]]:
    """Server → environment → its trials with figures in both columns, lightest load first; empty ones left out."""
    found: dict[str, dict[str, pd.DataFrame]] = {}
    for server in group.servers:
        for environment in side_environments(run):
            rungs = [figures(run, group.scenario(server, load), environment) for load in group.loads]
            trials = pd.concat(rungs).dropna(subset=[x, y])
            if not trials.empty:
                found.setdefault(server, {})[environment] = trials
    return found


def rungs(trials: pd.DataFrame, x: str, y: str) -> pd.DataFrame:
    """The medians of two columns at each offered load, in ascending order of x."""
    return trials.groupby("offered_load")[[x, y]].median().sort_values(x)

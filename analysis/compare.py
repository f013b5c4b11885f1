"""Pair the trials of a guest with those of the baseline, block by block, for one metric."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.load import AA_ARM, BASELINE, GATES, SCENARIO, Run
from analysis.metrics import OPEN, THROUGHPUT, Metric, loop_of
from analysis.sides import usable
from analysis.stats import Paired, noise_floor, paired

DOUBTS = frozenset(code for code, gate in GATES.items() if gate["verdict"] == "suspect")


@dataclass(frozen=True)
class Comparison:
    """One guest against the baseline for one scenario and metric, from one source (`tool`, `twin`).

    `effect` and `same` (the A/A arm against the baseline) are log advantages of the baseline: positive
    when metal is better, whichever way the metric points. `same_server` is the server that the A/A arm
    ran, when it was not this one. `invalid` counts the gate codes that excluded trials (not those that only
    make one suspect), `empty` the trials that passed their gates and still have no figure.
    """

    metric: Metric
    source: str
    scenario: tuple[str, ...]
    guest: str
    effect: Paired | None
    same: Paired | None
    baseline_limited: int
    guest_limited: int
    limits: tuple[str, ...]
    trials: int
    same_server: str
    suspect: int
    excluded: int
    invalid: Counter[str]
    empty: int

    @property
    def pairs(self) -> int:
        """Blocks in which both sides have a figure that passed its gates."""
        return 0 if self.effect is None else self.effect.n

    @property
    def limited(self) -> int:
        """Trials, of either side, whose pace the client or the link set."""
        return self.baseline_limited + self.guest_limited


def compare(run: Run, scenario: tuple[str, ...], guest: str, metric: Metric, source: str) -> Comparison:
    """Build one comparison; an absent arm or figure gives `effect` None, never an error."""
    cell = run.cells[scenario]
    metal = usable(cell, BASELINE, metric.column(source, guest=False))
    other = usable(cell, guest, metric.column(source, guest=True))
    same, same_server = _same(run, scenario, metric, source)
    blocks = metal.index.intersection(other.index)
    sides = cell[cell["environment"].isin([BASELINE, guest])]
    bad = sides[sides["verdict"] == "invalid"]
    codes = metric.limits.get(source, frozenset())
    used = sides[(sides["verdict"] != "invalid") & sides["block"].isin(blocks)]
    found = {code for row in used["codes"] for code in row} & codes
    limited = used[used["codes"].map(lambda row: bool(codes.intersection(row))).astype(bool)]
    return Comparison(
        metric=metric,
        source=source,
        scenario=scenario,
        guest=guest,
        effect=_advantage(metal, other, metric),
        same=same,
        same_server=same_server,
        baseline_limited=int((limited["environment"] == BASELINE).sum()),
        guest_limited=int((limited["environment"] == guest).sum()),
        limits=tuple(sorted(found)),
        trials=len(sides),
        suspect=int((used["verdict"] == "suspect").sum()),
        excluded=len(bad),
        invalid=Counter(code for row in bad["codes"] for code in set(row) - DOUBTS),
        empty=len(sides) - len(bad) - len(_with_figure(sides, metric, source, guest)),
    )


def _same(run: Run, scenario: tuple[str, ...], metric: Metric, source: str) -> tuple[Paired | None, str]:
    """The A/A arm that tells this scenario's noise, and the server it ran (empty when it is its own).

    Where the scenario has none: the noisiest of other servers under the same load, else of the same kind of loop.
    """
    column = metric.column(source, guest=False)
    same_load = [s for s in run.compared if s != scenario and s[1:] == scenario[1:]]
    same_loop = [s for s in run.compared if scenario_loop(s) == scenario_loop(scenario)]
    for candidates in ([scenario], same_load, same_loop):
        arms = [(_aa(run.cells[candidate], column, metric), candidate[0]) for candidate in candidates]
        known = [(same, server) for same, server in arms if same is not None]
        if known:
            same, server = max(known, key=lambda arm: noise_floor(arm[0]) or 0.0)
            return same, "" if candidates == [scenario] else server
    return None, ""


def _aa(cell: pd.DataFrame, column: str, metric: Metric) -> Paired | None:
    return _advantage(usable(cell, BASELINE, column), usable(cell, AA_ARM, column), metric)


def choose_source(run: Run, scenario: tuple[str, ...], guest: str) -> str:
    """`tool`, unless the client or the link limited it and the (cheaper) twin at least no more often.

    In an open loop always `tool`: the twin there is no cheaper one but the cross-check.
    """
    if scenario_loop(scenario) == OPEN:
        return "tool"
    tool, twin = (compare(run, scenario, guest, THROUGHPUT, source) for source in ("tool", "twin"))
    return less_limited((tool.pairs, tool.limited), (twin.pairs, twin.limited))


def less_limited(tool: tuple[int, int], twin: tuple[int, int]) -> str:
    """`tool` or `twin`, by the pairs of trials of each and how many of these trials the client or the link limited."""
    if twin[0] == 0 or (tool[0] and tool[1] == 0):
        return "tool"
    if tool[0] == 0 or twin[1] / twin[0] <= tool[1] / tool[0]:
        return "twin"
    return "tool"


def scenario_loop(scenario: tuple[str, ...]) -> str:
    """`closed` or `open`."""
    return loop_of(scenario[SCENARIO.index("offered_load")])


def twin_name(run: Run, scenario: tuple[str, ...]) -> str:
    """The name of the twin in these trials, or `twin` when no row names one."""
    names = [name for name in run.cells[scenario]["twin"].unique() if name]
    return str(names[0]) if names else "twin"


def _with_figure(sides: pd.DataFrame, metric: Metric, source: str, guest: str) -> pd.DataFrame:
    is_guest = sides["environment"] == guest
    figure = sides[metric.column(source, guest=True)].where(is_guest, sides[metric.column(source, guest=False)])
    return sides[(sides["verdict"] != "invalid") & (figure > 0)]


def _advantage(metal: pd.Series, other: pd.Series, metric: Metric) -> Paired | None:
    blocks = metal.index.intersection(other.index)
    if blocks.empty:
        return None
    logs = np.log(metal[blocks].to_numpy(dtype=float) / other[blocks].to_numpy(dtype=float))
    return paired(logs if metric.higher_is_better else -logs)

"""Pair the trials of a guest with those of the baseline, block by block, for one metric."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.load import AA_ARM, BASELINE, SCENARIO, Run
from analysis.metrics import LIMITING, THROUGHPUT, Metric
from analysis.stats import Paired, noise_floor, paired


@dataclass(frozen=True)
class Comparison:
    """One guest against the baseline for one scenario and metric, from one source (`tool`, `twin`).

    `effect` and `same` (the A/A arm against the baseline) are log advantages of the baseline: positive
    when metal is better, whichever way the metric points. `same_server` is the server that the A/A arm
    ran, when it was not this one. `invalid` counts the gate codes of the
    excluded trials, `empty` the trials that passed their gates and still have no figure.
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
    cell = _scenario_rows(run.trials, scenario)
    metal = _usable(cell, BASELINE, metric.column(source, guest=False))
    other = _usable(cell, guest, metric.column(source, guest=True))
    same, same_server = _same(run, scenario, metric, source)
    blocks = metal.index.intersection(other.index)
    sides = cell[cell["environment"].isin([BASELINE, guest])]
    bad = sides[sides["verdict"] == "invalid"]
    codes = LIMITING[source] if metric.paced else frozenset()
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
        invalid=Counter(code for row in bad["codes"] for code in set(row)),
        empty=len(sides) - len(bad) - len(_with_figure(sides, metric, source, guest)),
    )


def _same(run: Run, scenario: tuple[str, ...], metric: Metric, source: str) -> tuple[Paired | None, str]:
    """The A/A arm of this scenario; where it has none, the noisiest A/A arm of the run, and whose it is."""
    column = metric.column(source, guest=False)
    arms: list[tuple[float, Paired, str]] = []
    for candidate in [scenario, *(s for s in run.scenarios if s != scenario)]:
        cell = _scenario_rows(run.trials, candidate)
        same = _advantage(_usable(cell, BASELINE, column), _usable(cell, AA_ARM, column), metric)
        if same is None:
            continue
        if candidate == scenario:
            return same, ""
        arms.append((noise_floor(same) or 0.0, same, candidate[0]))
    if not arms:
        return None, ""
    _, same, server = max(arms, key=lambda arm: arm[0])
    return same, server


def choose_source(run: Run, scenario: tuple[str, ...], guest: str) -> str:
    """`tool`, unless the client or the link limited it and the (cheaper) twin at least no more often."""
    tool = compare(run, scenario, guest, THROUGHPUT, "tool")
    twin = compare(run, scenario, guest, THROUGHPUT, "twin")
    if twin.pairs == 0 or (tool.pairs and tool.limited == 0):
        return "tool"
    if tool.pairs == 0 or twin.limited / twin.pairs <= tool.limited / tool.pairs:
        return "twin"
    return "tool"


def twin_name(run: Run, scenario: tuple[str, ...]) -> str:
    """The name of the twin in these trials, or `twin` when no row names one."""
    names = [name for name in _scenario_rows(run.trials, scenario)["twin"].unique() if name]
    return str(names[0]) if names else "twin"


def _scenario_rows(trials: pd.DataFrame, scenario: Iterable[str]) -> pd.DataFrame:
    keep = pd.Series(True, index=trials.index)
    for column, value in zip(SCENARIO, scenario, strict=True):
        keep &= trials[column] == value
    return trials[keep]


def _usable(cell: pd.DataFrame, environment: str, column: str) -> pd.Series:
    """Block → figure, for the trials of that environment that are not invalid and have one above zero."""
    rows = cell[(cell["environment"] == environment) & (cell["verdict"] != "invalid")]
    figures = rows.set_index("block")[column].dropna()
    return figures[figures > 0]


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

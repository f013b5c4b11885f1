"""Steps from one guest to another, measured over the blocks that both have."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from analysis.load import AA_ARM, BASELINE, Run
from analysis.metrics import Metric
from analysis.sides import usable
from analysis.stats import Floats, Paired, paired


@dataclass(frozen=True)
class Step:
    """From one guest to another; `over`: rungs between them that this run lacks."""

    kind: str
    before: str
    after: str
    over: tuple[str, ...] = ()


@dataclass(frozen=True)
class Measured:
    """One step in one scenario and metric.

    `effect` is the advantage of the later guest per block: of rates the log ratio, of times the difference. `start`
    and `end` are the levels of the two sides in the same blocks. `same` is metal against itself, in the units of
    `effect`. `limited`: of each side, in how many of these blocks the client or the link set the pace.
    """

    step: Step
    metric: Metric
    effect: Paired | None
    start: float | None
    end: float | None
    same: Paired | None
    limited: tuple[int, int]

    @property
    def refused(self) -> str:
        """Why the figures decide nothing, whatever they say; empty when they may."""
        if self.effect is None:
            return "no block has a figure of both"
        most = [2 * limited > self.effect.n for limited in self.limited]
        if self.metric.open_only:
            return "the client or the link, not the server, made the tail" if any(most) else ""
        slower = most[0 if self.effect.mean > 0 else 1]
        return "the client or the link set the pace of the slower side" if slower else ""

    @property
    def bound(self) -> str:
        """`at least` where the faster side might have been faster still."""
        faster = self.limited[1 if self.effect and self.effect.mean > 0 else 0]
        return "at least " if faster and not self.metric.open_only else ""

    def gain(self, effect: float) -> float:
        """An advantage in the metric's unit: what the step gives back, seen from where it starts."""
        return (self.start or 0.0) * float(np.expm1(effect)) if relative(self.metric) else effect


def relative(metric: Metric) -> bool:
    """Rates are compared by their ratio, times by their difference: so much less to wait, or to compute."""
    return metric.higher_is_better


def steps_of(ladder: dict[str, Any], there: Collection[str]) -> list[Step]:
    """The comparisons of an experiment's `ladder`, between the guests that are there."""
    steps: list[Step] = []
    before, over = "", list[str]()
    for rung in ladder["cumulative"]:
        if rung not in there:
            over.append(rung)
            continue
        if before:
            steps.append(Step("cumulative", before, rung, tuple(over)))
        before, over = rung, []
    base = ladder["base"]
    return steps + [Step("single", base, rung) for rung in ladder["single"] if base in there and rung in there]


def measure(run: Run, scenario: tuple[str, ...], metric: Metric, source: str, step: Step) -> Measured:
    """One step in the scenario's blocks that have both sides; without any, `effect` is None."""
    cell = run.cells[scenario]
    before, after = (usable(cell, side, metric.column(source, guest=True)) for side in (step.before, step.after))
    blocks = before.index.intersection(after.index)
    before, after = before[blocks], after[blocks]
    metal = metric.column(source, guest=False)
    used = cell[cell["block"].isin(blocks) & (cell["verdict"] != "invalid")]
    codes = metric.limits.get(source, frozenset())
    limited = used.loc[[bool(codes.intersection(fired)) for fired in used["codes"]], "environment"]
    return Measured(
        step,
        metric,
        _advantage(before, after, metric),
        level(before, metric),
        level(after, metric),
        _advantage(usable(cell, BASELINE, metal), usable(cell, AA_ARM, metal), metric),
        (int((limited == step.before).sum()), int((limited == step.after).sum())),
    )


def level(values: pd.Series, metric: Metric) -> float | None:
    """The mean over blocks; of rates the geometric one, so that the ratios of steps multiply."""
    if values.empty:
        return None
    mean = float(_scaled(values, metric).mean())
    return float(np.exp(mean)) if relative(metric) else mean


def _advantage(before: pd.Series, after: pd.Series, metric: Metric) -> Paired | None:
    blocks = before.index.intersection(after.index)
    if blocks.empty:
        return None
    differences = _scaled(after[blocks], metric) - _scaled(before[blocks], metric)
    return paired(differences if metric.higher_is_better else -differences)


def _scaled(values: pd.Series, metric: Metric) -> Floats:
    plain = values.to_numpy(dtype=float)
    return np.log(plain) if relative(metric) else plain

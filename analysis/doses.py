"""What a neighbour's load does to the guest beside it: each dose against none, block by block."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.capacity.rungs import Estimate, geometric
from analysis.load import Run, load_order
from analysis.metrics import OPEN, loop_of
from analysis.panels import side_environments
from analysis.places import DOSES, dose_of, place_of
from analysis.plot import figures
from analysis.stats import paired

# What is followed over the doses, by kind of loop: how much came through, and the tail.
FOLLOWED = {
    "open": ("goodput_rps", "response_time_p99_us"),
    "closed": ("throughput_rps", "service_time_p99_us"),
}


@dataclass(frozen=True)
class Dose:
    """One dose, as a share of the capacity or in requests per second; `answered_rps`: what the neighbour made of it,
    None where there was none. `trials`: those that are not invalid, one per block.
    """

    dose: float
    answered_rps: float | None
    trials: pd.DataFrame

    def level(self, column: str) -> Estimate | None:
        """The geometric mean of a column, with its interval over blocks."""
        return geometric(self.trials[column])


@dataclass(frozen=True)
class Curve:
    """One load on one server in one environment, beside rising doses; `load` is its name without them.

    `shares`: the doses are shares of the capacity, else requests per second.
    """

    server: str
    workload: str
    load: str
    environment: str
    shares: bool
    doses: list[Dose]

    @property
    def columns(self) -> tuple[str, str]:
        """See FOLLOWED."""
        return FOLLOWED["open" if loop_of(self.load) == OPEN else "closed"]

    def effect(self, dose: Dose, column: str) -> Estimate | None:
        """What the dose makes of a column, as a ratio to no dose in the same block; None where either lacks one."""
        quiet = self.doses[0]
        if quiet.dose or quiet is dose:
            return None
        pair = [one.trials.set_index("block")[column].dropna().astype(float) for one in (dose, quiet)]
        blocks = pair[0].index.intersection(pair[1].index)
        over, under = (values[blocks].to_numpy() for values in pair)
        if not len(blocks) or (over <= 0).any() or (under <= 0).any():
            return None
        found = paired(np.log(over / under))
        low, high = (0.0, math.inf) if found.t is None else (math.exp(found.t.low), math.exp(found.t.high))
        return Estimate(low, math.exp(found.mean), high)


def curves_of(run: Run) -> list[Curve]:
    """Every load that stood beside two doses or more."""
    found: dict[tuple[str, str, str, str], list[tuple[str, ...]]] = {}
    for scenario in run.scenarios:
        server, workload, tool, offered = scenario
        if dose_of(place_of(offered)) is not None:
            others = [word for word in offered.split() if not word.startswith("neighbour-")]
            found.setdefault((server, workload, tool, " ".join(others)), []).append(scenario)
    curves = [
        Curve(
            server, workload, load, environment, DOSES[0] in scenarios[0][3], list(_doses(run, scenarios, environment))
        )
        for (server, workload, _, load), scenarios in found.items()
        for environment in side_environments(run)
    ]
    return [curve for curve in curves if len(curve.doses) > 1]


def _doses(run: Run, scenarios: list[tuple[str, ...]], environment: str) -> Iterator[Dose]:
    for scenario in sorted(scenarios, key=lambda s: load_order(s[3])):
        trials = figures(run, scenario, environment)
        answered = trials["neighbour_rps"].dropna()
        if not trials.empty:
            dose = dose_of(place_of(scenario[3])) or 0.0
            yield Dose(dose, float(answered.median()) if len(answered) else None, trials)


def ratio_words(effect: Estimate) -> str:
    """`×0.52 [0.48, 0.57]`."""
    sure = f" [{effect.low:.2g}, {effect.high:.2g}]" if math.isfinite(effect.high) else ", one block"
    return f"×{effect.mid:.2g}{sure}"

"""Two sides of one run, block by block: their figures, the ratio with its interval, and what that can prove."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from analysis.load import AA_ARM, CELL, GATES, Run
from analysis.metrics import LIMITING, OPEN_LIMITING, loop_of
from analysis.stats import Interval, half_width, paired, trimmed_2009

MIN_CLAIM_BLOCKS = 3  # two blocks have an interval in name only: t(0.975, 1) = 12.7
KNEE = 0.9  # a rung is served while this share of what it offers comes back in time
# What counts failures is known best from the trials that were refused for them. Metric → how a block's cells become
# one figure: nothing that failed in one of them may hide behind the others.
OF_FAILURES = {
    "availability_pct": "min", "failed": "sum", "bodies_wrong": "sum", "messages_lost": "sum",
    "messages_doubled": "sum",
}  # fmt: skip
FAILURE_GATES = frozenset({"failed-requests", "lost-mail", "wrong-body"})
ESTIMATORS = ("median", "mean-of-three", "trimmed-six")


@dataclass(frozen=True)
class Side:
    """The trials of some servers, environments and workloads. `figures`: block → figure, in the metric's unit.

    `limits`: gates that say of a used trial that client or link, not the server, set its pace; `limited` trials
    of `used` have one. `refused`: the gates that made trials invalid.
    """

    trials: pd.DataFrame
    figures: pd.Series
    used: int = 0
    limited: int = 0
    limits: tuple[str, ...] = ()
    refused: Counter[str] = field(default_factory=Counter)

    @property
    def cores(self) -> set[int]:
        """How many cores the server had; empty where the run does not say."""
        return {int(n) for n in self.trials["server_cores"].dropna()} if "server_cores" in self.trials else set()


@dataclass(frozen=True)
class Ratio:
    """One side over another: the geometric mean over blocks with its paired-t 95% interval, not logarithms.

    `up` and `down`: whether a ratio above, or below, something proves what it shows. A client or link that sets
    the pace hides what the server could do more: a rate is then a lower bound and a time an upper one. So a limit
    on the side of the numerator leaves a rate's ratio too small (only `up` proves), one on the other too large.
    """

    value: float
    interval: Interval | None
    blocks: int
    up: bool = True
    down: bool = True

    @property
    def words(self) -> str:
        """`1.55 [1.41, 1.70]`."""
        if self.interval is None:
            return f"{self.value:.3g}"
        return f"{self.value:.3g} [{self.interval.low:.3g}, {self.interval.high:.3g}]"


def select(run: Run, of: dict[str, Any]) -> pd.DataFrame:
    """The trials that `of` names by `server`, `environment` and `workload`: one name or a list; none means all.

    The A/A arm takes part only where it is named.
    """
    trials = run.trials
    keep = pd.Series(True, index=trials.index)
    if not of.get("environment"):
        keep &= trials["environment"] != AA_ARM
    for key in ("server", "environment", "workload"):
        if of.get(key):
            keep &= trials[key].isin(listed(of[key]))
    return trials[keep]


def listed(names: Any) -> list[str]:
    """One name or several, as a list."""
    return [names] if isinstance(names, str) else [str(name) for name in names or []]


def side(run: Run, trials: pd.DataFrame, metric: str, of_trial: Callable[[pd.DataFrame], pd.Series]) -> Side:
    """The figures of these trials by block; `of_trial` gives each trial's own, for a metric named `metric`.

    Where several cells match, a block's figure is the median over them (see OF_FAILURES for what counts failures),
    and a block that lacks one is left out.
    """
    used = trials[_usable(trials, metric)].copy()
    used["figure"] = of_trial(used).astype(float)
    used = used.dropna(subset=["figure"])
    codes = _limits(run, used, metric)
    limited = used["codes"].map(lambda row: bool(codes.intersection(row))).astype(bool)
    bad = trials[trials["verdict"] == "invalid"]
    return Side(
        trials=trials,
        figures=_by_block(used, metric),
        used=len(used),
        limited=int(limited.sum()),
        limits=tuple(sorted({code for row in used["codes"] for code in row} & codes)),
        refused=Counter(c for row in bad["codes"] for c in set(row) if GATES.get(c, {}).get("verdict") == "invalid"),
    )


def column_side(run: Run, of: dict[str, Any], metric: str) -> Side:
    """The same for a column of trials.csv, or for one of LADDERS."""
    column = "goodput_rps" if metric in LADDERS else metric
    trials = select(run, of)
    return side(run, trials, metric, lambda rows: rows[column] if column in rows else pd.Series(dtype=float))


def ratio(of: Side, over: Side, metric: str) -> Ratio | None:
    """`of` ÷ `over` over the blocks that both have; None when there is none or a figure is not above zero."""
    blocks = of.figures.index.intersection(over.figures.index)
    a, b = (one.figures[blocks].to_numpy(dtype=float) for one in (of, over))
    if not len(blocks) or (a <= 0).any() or (b <= 0).any():
        return None
    found = paired(np.log(a / b))
    interval = found.t if found.n >= MIN_CLAIM_BLOCKS else None
    up, down = proves(of, metric)
    falls, rises = proves(over, metric)
    return Ratio(
        math.exp(found.mean),
        interval and Interval(math.exp(interval.low), math.exp(interval.high)),
        found.n,
        up=up and rises,
        down=down and falls,
    )


def level(one: Side) -> Interval | None:
    """Student's 95% interval of the mean over blocks, in the metric's unit; None below MIN_CLAIM_BLOCKS."""
    values = one.figures.to_numpy(dtype=float)
    if len(values) < MIN_CLAIM_BLOCKS:
        return None
    half = half_width(float(values.std(ddof=1)), len(values))
    return Interval(float(values.mean()) - half, float(values.mean()) + half)


def proves(one: Side, metric: str) -> tuple[bool, bool]:
    """Whether this side's figure proves that the server reaches it or more, and that it reaches it or less."""
    free = one.limited == 0
    return (free or not _is_time(metric)), (free or _is_time(metric))


def estimate(figures: Sequence[float], estimator: str) -> tuple[float | None, str]:
    """The figures of the blocks, in their order, as the source made one of them; and which way, in words.

    `trimmed-six`: of the first six best and worst dropped, four averaged (2009). `mean-of-three`: the first three
    averaged (2008). Else the median. With fewer blocks than that: their mean, said so. None without a figure.
    """
    values, n = np.asarray(figures, dtype=float), len(figures)
    if n == 0:
        return None, "no figure"
    if estimator == "trimmed-six":
        trimmed = trimmed_2009(values)
        return (trimmed, "six runs, best and worst dropped") if trimmed is not None else _mean(values, "six")
    if estimator == "mean-of-three":
        return (float(values[:3].mean()), "mean of three") if n >= 3 else _mean(values, "three")
    return float(np.median(values)), f"median of {n}"


def _mean(values: Any, wanted: str) -> tuple[float, str]:
    return float(values.mean()), f"mean of {len(values)}, fewer than {wanted}"


def _usable(trials: pd.DataFrame, metric: str) -> pd.Series:
    good = trials["verdict"] != "invalid"
    if metric not in OF_FAILURES:
        return good
    refused = trials["codes"].map(lambda row: {c for c in row if GATES.get(c, {}).get("verdict") == "invalid"})
    return good | refused.map(lambda codes: bool(codes) and codes <= FAILURE_GATES).astype(bool)


def _limits(run: Run, used: pd.DataFrame, metric: str) -> frozenset[str]:
    """The gates that bound this metric. A link whose rate the experiment prescribes is part of what it asks."""
    if not (_is_time(metric) or _is_rate(metric)):
        return frozenset()
    opened = (used["offered_load"].map(loop_of) == "open").any()
    of_twin = metric.startswith("twin_") or (metric.startswith("service_time_") and (used["twin"] != "").any())
    codes = (OPEN_LIMITING if opened else LIMITING)["twin" if of_twin else "tool"]
    return codes - {"link-bound"} if prescribes_link(run) else codes


def prescribes_link(run: Run) -> bool:
    """True when the experiment itself sets the rate of the client's link."""
    return str(run.meta["experiment"].get("link") or "unshaped") != "unshaped"


def _is_time(metric: str) -> bool:
    return metric.endswith(("_ms", "_us"))


def _is_rate(metric: str) -> bool:
    return metric.endswith(("_rps", "_mb_per_s")) or metric in {"transactions", "transferred_mb"}


def _by_block(used: pd.DataFrame, metric: str) -> pd.Series:
    """Block → one figure over the cells; in a metric of LADDERS a ladder is one cell."""
    if used.empty:
        return pd.Series(dtype=float)
    if metric in LADDERS:
        keys = ["block", "environment", "server", "workload", "tool"]
        found = [(key, LADDERS[metric](rungs)) for key, rungs in used.groupby(keys)]
        table = pd.Series([f for _, f in found], pd.MultiIndex.from_tuples([k for k, _ in found], names=keys))
    else:
        table = used.set_index(CELL)["figure"]
    wide = table.unstack([str(name) for name in table.index.names[1:]])
    return pd.Series(wide.dropna().agg(OF_FAILURES.get(metric, "median"), axis=1).sort_index())


def peak(rungs: pd.DataFrame) -> float:
    """The highest goodput of a ladder."""
    return float(rungs["goodput_rps"].max())


def knee(rungs: pd.DataFrame) -> float:
    """The highest rate of a ladder up to which every rung's goodput is KNEE of what it offers; 0 when none is."""
    ordered = rungs.sort_values("offered_rps")
    served = (ordered["goodput_rps"] >= KNEE * ordered["offered_rps"]).cumprod().astype(bool)
    return float(ordered.loc[served, "offered_rps"].max()) if served.any() else 0.0


# Figures of a whole ladder of rates.
LADDERS: dict[str, Callable[[pd.DataFrame], float]] = {"peak_goodput_rps": peak, "goodput_knee_rps": knee}


def emulated(run: Run, sides: Iterable[Side]) -> bool:
    """True when any trial of these sides ran under software emulation."""
    return any((one.trials["accelerator"] == "tcg").any() for one in sides)

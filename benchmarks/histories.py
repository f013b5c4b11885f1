"""How often `vmtoll watch` cries wolf, and after how many nights it sees a change: python -m benchmarks.histories.

Simulates histories of one figure, judged anew each night by `vmtoll.statistics.change_points`. Writes the table in
docs/statistics.md.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import numpy as np
import numpy.typing as npt

from benchmarks import write_measured
from vmtoll.paths import PROJECT
from vmtoll.statistics.change_points import FEWEST_NIGHTS, change_points

Floats = npt.NDArray[np.float64]
NIGHTS, HISTORIES, SD = 120, 60, 0.02  # of a history; of a kind of noise; of a night's log figure
CHANGES_PCT = (5, 10, 20, 50)
BEFORE, AFTER, TRIED = 30, 20, 40  # nights before and after a change, and histories of each size
NIGHTS_A_YEAR = 365


def _normal(rng: np.random.Generator, n: int) -> Floats:
    return rng.normal(size=n)


def _heavy_tailed(rng: np.random.Generator, n: int) -> Floats:
    return np.asarray(rng.standard_t(3, size=n) / np.sqrt(3))


def _correlated(rho: float, rng: np.random.Generator, n: int) -> Floats:
    """An autoregression of the first order, past its beginning."""
    steps, noise = rng.normal(size=n + 100), np.zeros(n + 100)
    for i in range(1, n + 100):
        noise[i] = rho * noise[i - 1] + steps[i] * np.sqrt(1 - rho**2)
    return noise[100:]


NOISE: Mapping[str, Callable[[np.random.Generator, int], Floats]] = {
    "normal": _normal,
    "heavy-tailed (t, 3 degrees of freedom)": _heavy_tailed,
    "autocorrelation 0.3": partial(_correlated, 0.3),
    "autocorrelation 0.5": partial(_correlated, 0.5),
}


def false_alarms(kind: str, seed: int, nights: int = NIGHTS) -> int:
    """Alarms of a history without a change; one that lasts several nights counts once."""
    figures = np.exp(SD * NOISE[kind](np.random.default_rng(seed), nights))
    alarmed = [bool(change_points(figures[:night].tolist())) for night in range(FEWEST_NIGHTS, nights + 1)]
    return sum(now and not before for before, now in zip([False, *alarmed], alarmed, strict=False))


def delay(kind: str, seed: int, change_pct: float) -> int:
    """Nights of the new level until a change is seen at it, or up to two nights beside it; AFTER + 1 if it is not."""
    figures = np.exp(SD * NOISE[kind](np.random.default_rng(seed), BEFORE + AFTER))
    figures[BEFORE:] /= 1 + change_pct / 100
    seen = (
        nights
        for nights in range(1, AFTER + 1)
        if any(abs(first - BEFORE) <= 2 for first in change_points(figures[: BEFORE + nights].tolist()))
    )
    return next(seen, AFTER + 1)


def row(kind: str) -> str:
    """A row of the table."""
    alarms = sum(false_alarms(kind, seed) for seed in range(HISTORIES))
    a_year = NIGHTS_A_YEAR * alarms / (HISTORIES * (NIGHTS - FEWEST_NIGHTS + 1))
    delays = [_delays([delay(kind, seed, size) for seed in range(TRIED)]) for size in CHANGES_PCT]
    return f"| {kind} | {a_year:.1f} | {' | '.join(delays)} |"


def _delays(delays: Sequence[int]) -> str:
    """Median and the 90% quantile."""
    median, late = (int(np.ceil(np.quantile(delays, q))) for q in (0.5, 0.9))
    return f"{median}, {late if late <= AFTER else f'more than {AFTER}'}"


def main() -> None:
    """Write the table."""
    sizes = " | ".join(f"{size}%" for size in CHANGES_PCT)
    head = [f"| noise of the nights | false alarms a year | {sizes} |", "|---|---|" + "---|" * len(CHANGES_PCT)]
    with ProcessPoolExecutor(2) as pool:
        table = "\n".join([*head, *pool.map(row, NOISE)])
    write_measured(PROJECT / "docs" / "statistics.md", "histories", table)
    print(table)


if __name__ == "__main__":
    main()

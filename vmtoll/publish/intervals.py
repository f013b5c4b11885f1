"""Recompute every interval of a bundle from its effects and verdicts: `python intervals.py BUNDLE`.

It needs only numpy and scipy. At each autocorrelation ρ the mean has Student's t; verdicts.csv has each one's weight.
"""

import csv
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import scipy
from numpy.typing import NDArray
from scipy import optimize

RHOS = np.arange(10) / 10
Row = Mapping[str, str]
Floats = NDArray[np.float64]
KEY = "server workload load_kind load_value load_guests neighbour_kind neighbour_value baseline compared step metric"


def mean_and_error(blocks: Sequence[int], values: Floats, floor: float) -> tuple[Floats, Floats]:
    """The mean and its standard error at each ρ, by the transformation of Prais and Winsten."""
    phi = RHOS[:, None] ** np.diff(blocks)
    root = np.sqrt(1 - phi**2)
    w = np.hstack([np.ones((10, 1)), (1 - phi) / root])
    z = np.hstack([np.full((10, 1), values[0]), (values[1:] - phi * values[:-1]) / root])
    mean = (z * w).sum(axis=1) / (w**2).sum(axis=1)
    variance = np.maximum(((z - mean[:, None] * w) ** 2).sum(axis=1) / (len(values) - 1), floor**2)
    return mean, np.sqrt(variance / (w**2).sum(axis=1))


def limit(
    units: Sequence[int], values: Floats, weights: Floats, level: float, side: int, floor: float = 0.002
) -> float:
    """The lower (side −1) or upper (side 1) limit of a mean, at half of the level."""
    mean, error = mean_and_error(units, values, floor)
    freedom, half = len(units) - 1, level / 2
    ends = (mean - side * scipy.stats.t.ppf(half, freedom) * error)[weights > 0]
    return float(
        optimize.brentq(
            lambda at: weights @ scipy.stats.t.cdf(side * (mean - at) / error, freedom) - half,
            min(ends) - 1e-9,
            max(ends) + 1e-9,
        )
    )


def weights_of(row: Row) -> Floats:
    return np.array([float(row[f"weight_rho_{tenth}0"]) for tenth in range(10)])


def interval_end(effects: Sequence[Row], verdict: Row, name: str, side: int) -> float:
    """One end of the interval, a log: the limit of lows (side −1) or highs (side 1). A boot's mean is one block."""
    unit = "boot" if int(verdict["boots"]) > 1 else "block"
    units = sorted({int(effect[unit]) for effect in effects if effect[name]})
    if len(units) < (2 if name.startswith("first") else 3):  # the end lies at the farthest block, and is open
        return side * float(max(side * np.log(float(e[c])) for e in effects for c in (name, "mid") if e[c]))
    rows = [[float(e[name]) for e in effects if e[name] and int(e[unit]) == number] for number in units]
    return limit(
        units, np.array([np.log(row).mean() for row in rows]), weights_of(verdict), float(verdict["level"]), side
    )


def table(bundle: str | Path, name: str) -> list[Row]:
    with (Path(bundle) / f"{name}.csv").open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def recompute(bundle: str | Path) -> Iterator[tuple[Row, float, float]]:
    """Yield each verdict that has an interval, and its two ends recomputed: ratios, compared ÷ baseline."""
    verdicts, effects = table(bundle, "verdicts"), table(bundle, "effects")
    for verdict in (row for row in verdicts if row["low"]):
        blocks = [effect for effect in effects if all(effect[name] == verdict[name] for name in KEY.split())]
        # For skewed blocks, the hull of both: by all trials, and by the first one of each side.
        is_hull = verdict["kind"] != "equivalent" and int(verdict["boots"]) == 1 and any(e["first_low"] for e in blocks)
        parts = ["", "first_"] if is_hull else [""]
        low = min(interval_end(blocks, verdict, f"{part}low", -1) for part in parts)
        yield verdict, np.exp(low), np.exp(max(interval_end(blocks, verdict, f"{part}high", 1) for part in parts))


def recompute_claims(bundle: str | Path) -> Iterator[tuple[Row, float, float]]:
    """Yield each published claim that has an interval, and its two ends recomputed: a ratio, or a level in its unit."""
    for claim in (row for row in table(bundle, "claims") if row["low"]):
        log, exp, floor = (np.log, np.exp, 0.002) if claim["over"] else (np.array, np.array, 0.0)
        blocks = [effect.split(":") for effect in claim["effects"].split()]
        ends = []
        for column, side in ((1, -1), (3, 1)):
            rows = [(int(block[0]), float(block[column])) for block in blocks if block[column]]
            units, values = [number for number, _ in rows], log([value for _, value in rows])
            # Counts have no floor of noise: if all blocks have the same count, it is both ends of the interval.
            is_constant = not floor and len({block[i] for block in blocks for i in (1, 3)}) == 1
            level = float(claim["level"])
            ends.append(values[0] if is_constant else limit(units, values, weights_of(claim), level, side, floor))
        low, high = (float(exp(end)) if floor else max(0.0, end) for end in ends)
        yield claim, low, high


if __name__ == "__main__":
    for row, low, high in recompute(sys.argv[1]):
        load_text = " ".join(filter(None, (row["workload"], row["load_kind"], row["load_value"])))
        sides = f"{row['compared']} ÷ {row['baseline']}"
        print(
            f"{row['server']:16} {load_text:28} {sides:28} {row['metric']:12} {row['kind']:10} {low:.6g} to {high:.6g}"
        )
    for row, low, high in recompute_claims(sys.argv[1]):
        print(f"{row['outcome']:12} {low:.6g} to {high:.6g} {row['unit'] if not row['over'] else ''} {row['says']}")

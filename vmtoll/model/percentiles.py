"""Which percentiles of a load can be: the names of the columns, and how many requests each needs."""

import re
from collections.abc import Mapping
from itertools import pairwise

# Names of percentiles → requests of a thousand that took no longer.
PER_MILLE = {"p50": 500, "p90": 900, "p99": 990, "p999": 999}
_COLUMN = re.compile(rf"(\w+)_({'|'.join(PER_MILLE)})_us")


def fewest(percentile: str) -> int:
    """Requests that a percentile needs, so that it is not just the largest value: 2, 10, 100, 1000."""
    return 1000 // (1000 - PER_MILLE[percentile])


def enough(percentile: float, requests: int) -> bool:
    """Return whether so many requests have a percentile (0 to 100) that is not just the largest value; that one they
    have.
    """
    return percentile == 100 or requests * (100 - percentile) >= 100 - 1e-6


def of_too_few(figures: Mapping[str, object], requests: int) -> set[str]:
    """The columns `<kind>_<percentile>_us` that have a value, and need more requests than these."""
    given = {name: column[2] for name in figures if (column := _COLUMN.fullmatch(name)) and figures[name] is not None}
    return {name for name, percentile in given.items() if requests < fewest(percentile)}


def falling(figures: Mapping[str, float]) -> set[str]:
    """All columns `<kind>_<percentile>_us` of each kind whose percentiles do not rise with their share."""
    kinds: dict[str, dict[str, str]] = {}
    for name in figures:
        if column := _COLUMN.fullmatch(name):
            kinds.setdefault(column[1], {})[column[2]] = name
    return {
        name
        for of_kind in kinds.values()
        for name in of_kind.values()
        if any(low > high for low, high in pairwise(figures[of_kind[p]] for p in PER_MILLE if p in of_kind))
    }

"""How many requests a percentile needs, and which columns of a load hold percentiles."""

import math
import re
from collections.abc import Mapping
from itertools import pairwise

# Percentile → how many requests of a thousand took no longer.
PER_MILLE = {"p50": 500, "p90": 900, "p99": 990, "p999": 999}
_COLUMN = re.compile(rf"(\w+)_({'|'.join(PER_MILLE)})_us")


def fewest_requests(percentile: float) -> int:
    """The fewest requests for which a percentile (a fraction q) is not just their maximum, 1 ÷ (1 − q): 100 for p99,
    1,000 for p99.9; 1 for q = 1, the maximum itself.
    """
    return math.ceil(round(1 / (1 - percentile), 6)) if percentile < 1 else 1


FEWEST = {name: fewest_requests(per_mille / 1000) for name, per_mille in PER_MILLE.items()}


def columns_without_enough_requests(figures: Mapping[str, object], requests: int) -> set[str]:
    """The columns `<kind>_<percentile>_us` that have a value but need more than `requests` requests."""
    if requests >= max(FEWEST.values()):
        return set()
    percentiles = {
        name: column[2] for name in figures if (column := _COLUMN.fullmatch(name)) and figures[name] is not None
    }
    return {name for name, percentile in percentiles.items() if requests < FEWEST[percentile]}


def out_of_order_columns(figures: Mapping[str, float]) -> set[str]:
    """All columns `<kind>_<percentile>_us` of each kind that has a percentile below a lower one, such as p99 < p90."""
    kinds: dict[str, dict[str, str]] = {}
    for name in figures:
        if column := _COLUMN.fullmatch(name):
            kinds.setdefault(column[1], {})[column[2]] = name
    return {
        name
        for column_of in kinds.values()
        for name in column_of.values()
        if any(low > high for low, high in pairwise(figures[column_of[p]] for p in PER_MILLE if p in column_of))
    }

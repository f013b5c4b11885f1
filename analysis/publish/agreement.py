"""Does a second measurement of the same comparison bear out the first? One metric at a time."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from scipy import stats

from analysis.judge import EQUIVALENT, INVALID, KVM_FASTER, METAL_FASTER, NOT_DISTINGUISHABLE, percent
from analysis.stats import CONFIDENCE, Interval

REPRODUCED, NOT_REPRODUCED, NOT_COMPARABLE = "reproduced", "not reproduced", "not comparable"
CLAIMS = (METAL_FASTER, KVM_FASTER, EQUIVALENT)
SHARE = 0.1  # how far two effects may be apart, as a share of the published one


@dataclass(frozen=True)
class Agreement:
    """`change` is log(ratio again / ratio published) with its interval; None where a size is only a bound."""

    status: str
    reason: str
    change: float | None = None
    interval: Interval | None = None


def agreement(published: dict[str, Any], again: dict[str, Any], margin: float) -> Agreement:
    """Compare two entries of a verdict's `metrics`; `margin` is the practical margin of equivalence, a fraction.

    A result is reproduced when its claim stands and its size agrees; that is the rule of the ACM ("Artifact
    Review and Badging", version 1.1, 2020): agreement "within a tolerance deemed acceptable", with the main
    claims unchanged.

    - The claim is the kind of the verdict (`metal is faster by`, `equivalent within`, …). A published run
      that claims nothing cannot be reproduced.
    - The size is the ratio guest/metal. Two sizes disagree when the 95% interval of the difference of their
      logarithms (Welch 1947, each side with its own paired-t error and blocks − 1 degrees of freedom) leaves
      zero out, which is to say that the second lies outside of the first one's prediction interval (Patil,
      Peng & Leek 2016, "What should researchers expect when they replicate studies?"), and the difference
      is larger than the tolerance: the practical margin, either run's noise floor, or a tenth of the published
      effect (in logarithms), whichever is largest. The interval alone would refuse any two runs of enough
      blocks, for it knows no variation between runs.
    - Where a second run has too few blocks to claim anything and does not contradict the first, it says nothing.
    """
    if published["kind"] not in CLAIMS:
        return Agreement(NOT_COMPARABLE, f"the first run claims nothing to reproduce: {published['text']}")
    if again["kind"] == INVALID:
        return Agreement(NOT_COMPARABLE, f"the second run has no result: {again['text']}")
    change, interval = _change(published, again)
    if change is not None and interval is not None:
        allowed = _tolerance(published, again, margin)
        if interval.excludes_zero and abs(change) > allowed:
            words = f"the ratio guest/metal changed by {_factor(change)}, tolerated are {percent(math.expm1(allowed))}"
            return Agreement(NOT_REPRODUCED, words, change, interval)
    if again["kind"] == published["kind"]:
        size = "sizes that agree" if interval else "no size to compare (a bound, or a single block)"
        return Agreement(REPRODUCED, f"the same claim, and {size}", change, interval)
    if again["kind"] == NOT_DISTINGUISHABLE:
        return Agreement(NOT_COMPARABLE, f"the second run cannot tell: {again['text']}", change, interval)
    return Agreement(NOT_REPRODUCED, "the claim changed", change, interval)


def _change(published: dict[str, Any], again: dict[str, Any]) -> tuple[float | None, Interval | None]:
    """The difference of the log ratios with Welch's interval; no interval where a side has only one block."""
    if published["bound"] or again["bound"]:
        return None, None
    change = math.log(again["ratio"] / published["ratio"])
    errors = [_squared_error(side) for side in (published, again)]
    if None in errors:
        return change, None
    a, b = (error or 0.0 for error in errors)
    if a + b == 0:
        return change, Interval(change, change)
    freedom = (a + b) ** 2 / (a**2 / (published["blocks"] - 1) + b**2 / (again["blocks"] - 1))
    half = float(stats.t.ppf((1 + CONFIDENCE) / 2, freedom)) * math.sqrt(a + b)
    return change, Interval(change - half, change + half)


def _squared_error(side: dict[str, Any]) -> float | None:
    """The squared standard error of the mean log ratio, from its paired-t interval."""
    if side["ratio_low"] is None or side["blocks"] < 2:
        return None
    half = math.log(side["ratio_high"] / side["ratio_low"]) / 2
    return (half / float(stats.t.ppf((1 + CONFIDENCE) / 2, side["blocks"] - 1))) ** 2


def _tolerance(published: dict[str, Any], again: dict[str, Any], margin: float) -> float:
    floors = [math.log1p(side["noise_floor"] or 0.0) for side in (published, again)]
    return max(math.log1p(margin), *floors, SHARE * abs(math.log(published["ratio"])))


def _factor(change: float) -> str:
    return f"{math.expm1(change):+.1%}" if abs(change) < math.log(2) else f"a factor of {math.exp(change):.2g}"

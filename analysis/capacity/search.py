"""Find the capacity of one by halving a ladder instead of climbing it, and each rung in as few trials as it takes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum

import numpy as np

from analysis.stats import ALPHA, half_width

LOOKS = (3, 6)  # after so many trials of a rate its interval is looked at, each time at an equal part of alpha


class Answer(Enum):
    """What the trials at one rate say of the objective, at 95%."""

    MEETS = "meets"
    MISSES = "misses"
    UNCLEAR = "unclear"


@dataclass
class Found:
    """`rate`: the highest that was shown to meet the objective, None when the lowest was not. `open_end`: the
    highest rate of all meets it, so that the true capacity is more. `answers`: rate → what was found there.
    """

    rate: float | None
    open_end: bool
    answers: dict[float, Answer] = field(default_factory=dict)


def search(rates: Sequence[float], measure: Callable[[float], Answer]) -> Found:
    """Bisect ascending rates; what is unclear counts as missed, as on a ladder. Asks ⌈log₂(n + 1)⌉ rates of n.

    It takes for granted what a ladder can show: that a rate above a missed one is missed as well.
    """
    if not rates or any(low >= high for low, high in itertools.pairwise(rates)):
        raise ValueError(f"expected rates that rise, got {list(rates)}")
    answers: dict[float, Answer] = {}
    met, missed = 0, len(rates) + 1  # places from 1: all up to `met` meet it, all from `missed` on do not
    while missed - met > 1:
        middle = (met + missed) // 2
        answers[rates[middle - 1]] = answer = measure(rates[middle - 1])
        met, missed = (middle, missed) if answer is Answer.MEETS else (met, middle)
    return Found(rates[met - 1] if met else None, met == len(rates), answers)


def settle(trial: Callable[[], float], looks: Sequence[int] = LOOKS) -> Answer:
    """Repeat a trial until its answer is sure. `trial` returns the log of the limit over the p99: above zero
    meets it; minus infinity is a trial that missed the availability.

    The t interval of the mean is looked at after each count of `looks`, at alpha divided by their number, so that
    looking more than once does not make the answer less sure than 95% (Bonferroni).
    """
    margins: list[float] = []
    for count in looks:
        margins += [trial() for _ in range(count - len(margins))]
        if any(math.isinf(margin) for margin in margins):
            return Answer.MISSES
        mean, sd = float(np.mean(margins)), float(np.std(margins, ddof=1))
        if abs(mean) > half_width(sd, count, ALPHA / len(looks)):
            return Answer.MEETS if mean > 0 else Answer.MISSES
    return Answer.UNCLEAR

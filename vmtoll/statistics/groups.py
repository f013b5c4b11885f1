"""What values of many hosts depend on: differences between groups of them, and hosts that none of it explains."""

from collections.abc import Mapping, Sequence

import numpy as np
import scipy
from numpy.typing import NDArray
from scipy import special

from vmtoll.statistics.thresholds import MIN_TEST_BEDS

Floats = NDArray[np.float64]
Groups = NDArray[np.intp]  # the number of each value's group, from 0; −1: in none
# The median absolute deviation of a normal distribution, times this, is its standard deviation.
MAD_TO_SD = 1.4826
MAD_EFFICIENCY = 0.37


def numbered(labels: Sequence[str | None], least: int = MIN_TEST_BEDS) -> tuple[list[str], Groups]:
    """The labels that occur at least `least` times, and the number of each entry's label; −1 for the others."""
    array = np.array(["" if label is None else label for label in labels])
    names, inverse, counts = np.unique(array, return_inverse=True, return_counts=True)
    kept = [i for i, name in enumerate(names) if name and counts[i] >= least]
    numbers = np.full(len(names), -1)
    numbers[kept] = np.arange(len(kept))
    return [str(names[i]) for i in kept], numbers[inverse]


def difference_p(values: Floats, groups: Groups) -> float:
    """Probability of differences between the means of these groups as large as seen, if there were none; groups may
    have different variances (Alexander and Govern 1994, by SciPy). 1 with fewer than two groups that vary.
    """
    samples = [values[groups == number] for number in range(int(groups.max(initial=-1)) + 1)]
    samples = [sample for sample in samples if len(sample) > 1 and np.ptp(sample) > 0]
    return float(scipy.stats.alexandergovern(*samples).pvalue) if len(samples) > 1 else 1.0


def information(values: Floats, groups: Groups) -> float:
    """The Bayesian information criterion of a mean for each group (Schwarz 1978); less is better.

    It prefers a coarse grouping (models of CPUs) to a finer one that explains no more (revisions of their microcode).
    """
    known = groups >= 0
    n, rest = len(values), float(np.square(values[~known] - values[~known].mean()).sum()) if (~known).any() else 0.0
    for number in range(int(groups.max(initial=-1)) + 1):
        sample = values[groups == number]
        rest += float(np.square(sample - sample.mean()).sum())
    count = int(groups.max(initial=-1)) + 1 + bool((~known).any())
    return n * float(np.log(max(rest, np.finfo(float).tiny) / n)) + count * float(np.log(n))


def without_groups(values: Floats, groups: Groups) -> Floats:
    """The values less the median of their group."""
    rest = values.copy()
    for number in range(-1, int(groups.max(initial=-1)) + 1):
        member = groups == number
        if member.any():
            rest[member] -= np.median(values[member])
    return rest


def explaining(values: Floats, factors: Mapping[str, Groups], level: float) -> list[str]:
    """The factors that the values depend on, each beyond those before it; the best first.

    Forward selection: of the factors whose groups differ at `level`, take the one with the best information criterion
    (the first of equal ones), and go on with what it leaves. If none has an effect, the probability of any is at most
    `level` times the number of factors.
    """
    chosen, rest = list[str](), values
    while True:
        differing = [
            name for name, groups in factors.items() if name not in chosen and difference_p(rest, groups) <= level
        ]
        if not differing:
            return chosen
        best = min(differing, key=lambda name: information(rest, factors[name]))
        chosen.append(best)
        rest = without_groups(rest, factors[best])


def robust_deviations(values: Floats) -> Floats:
    """How many standard deviations each value is from the median, by the median absolute deviation; 0 for values that
    do not vary. Half of the values may be anything (Hampel 1974).
    """
    centred = values - np.median(values)
    scale = MAD_TO_SD * float(np.median(np.abs(centred)))
    return centred / scale if scale > 0 else np.zeros_like(values)


def outlier_limit(count: int, error: float) -> float:
    """The robust deviation that one of `count` alike normal values exceeds, to either side, with the probability
    `error`. The median absolute deviation knows the standard deviation as well as 0.37 times as many values would by
    their own (Rousseeuw and Croux 1993), hence Student's quantile.
    """
    return float(-special.stdtrit(MAD_EFFICIENCY * count, error / 2))

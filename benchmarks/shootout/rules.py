"""The rules that compete. Each says of two samples how strongly they differ; a threshold makes it a verdict.

The strength of a rule that has a p-value is −p, that of the others the fraction by which the samples must differ.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
import numpy.typing as npt
from scipy import stats

from benchmarks.shootout import programs
from benchmarks.shootout.plan import MARGINS, Kind
from benchmarks.shootout.record import UNIT, Recording
from vmtoll.analysis.recorded import Answer, RecordedComparison, judge_rows
from vmtoll.recordings.rows import Better, Row, Value
from vmtoll.statistics.thresholds import ALPHA, MARGIN

Floats = npt.NDArray[np.float64]
PERMUTATIONS = 10_000  # Firecracker's for its 0.01


@dataclass(frozen=True)
class Sample:
    """What one row of a page has of both sides, in seconds and the order of time."""

    a: Floats
    b: Floats


@dataclass(frozen=True)
class Opinion:
    """What a rule says of a sample. `sign`: 1 if B is slower, −1 if it is faster."""

    strength: float
    sign: int


@dataclass(frozen=True)
class Rule:
    """`default`: its threshold as published, which the strength must exceed; `source`: the program and its version, or
    where the rule is published; `opinions`: of many samples, None where the program is not installed.
    """

    name: str
    default: float
    source: str
    opinions: Callable[[Sequence[Sample]], Sequence[Opinion] | None]
    is_p: bool = True

    def threshold_text(self, threshold: float) -> str:
        """`p < 0.05`, or `> 1%`."""
        return f"p < {-threshold:.2g}" if self.is_p else f"> {100 * threshold:.2g}%"

    def at_5_percent(self, strengths: Sequence[float]) -> float:
        """The threshold that at most 5% of these pages exceed, as many of them as can."""
        threshold = sorted(strengths, reverse=True)[math.floor(ALPHA * len(strengths))]
        return threshold if self.is_p else max(threshold, 0.0)


def samples_of(page: Recording, *, halves: bool = False) -> list[Sample]:
    """The samples of a page, one for each row. `halves`: its first half is A and its second half is B."""
    is_a = np.array([side == "A" for side in page.sides])
    if halves:
        is_a = np.arange(len(is_a)) < len(is_a) // 2
    rows = [np.array(values) * UNIT for values in page.values.values()]
    return [Sample(row[is_a], row[~is_a]) for row in rows]


def rows_of(page: Recording, *, halves: bool = False) -> list[Row]:
    """The rows of a page, as `vmtoll judge --run --save` writes them."""
    sides, per_block = page.sides, len(set(page.sides))
    if halves:
        sides, per_block = "A" * (len(sides) // 2) + "B" * (len(sides) // 2), 1
    return [
        Row(index // per_block + 1, side, Value(metric, value * UNIT, Better.LOWER, unit="s"))
        for metric, values in page.values.items()
        for index, (side, value) in enumerate(zip(sides, values, strict=True))
    ]


@dataclass(frozen=True)
class Judged:
    """What `vmtoll judge` says of a page."""

    comparisons: tuple[RecordedComparison, ...]

    @cached_property
    def answers(self) -> list[Answer]:
        """The answer to each row; "equal" that is different for sure counts as that difference, not as "equal"."""
        return [
            (Answer.WORSE if each.judged.estimate and each.judged.estimate.value > 1 else Answer.BETTER)
            if each.judged.also_different else each.answer
            for each in self.comparisons
        ]  # fmt: skip

    @property
    def also_different(self) -> bool:
        """Return whether a row is equal within the margin and different for sure."""
        return any(each.judged.also_different for each in self.comparisons)


def judged(page: Recording, *, halves: bool = False) -> Judged:
    """Let the engine of `vmtoll judge` judge a page."""
    rows = rows_of(page, halves=halves)
    return Judged(judge_rows(rows, baseline="A", margin=MARGINS.get(page.kind, MARGIN)).comparisons)


def paired_p(samples: Sequence[Sample]) -> Iterator[Opinion]:
    """Student's t of the logs of the blocks' ratios."""
    for sample in samples:
        logs = np.log(sample.b) - np.log(sample.a)
        yield _by_p(float(stats.ttest_1samp(logs, 0).pvalue), float(logs.mean()))


def welch_p(samples: Sequence[Sample]) -> Iterator[Opinion]:
    """Welch's t-test."""
    for sample in samples:
        p = float(stats.ttest_ind(sample.b, sample.a, equal_var=False).pvalue)
        yield _by_p(p, float(sample.b.mean() - sample.a.mean()))


def _by_p(p: float, difference: float) -> Opinion:
    return Opinion(-1.0 if math.isnan(p) else -p, 1 if difference > 0 else -1)


def permutation_p(samples: Sequence[Sample]) -> Iterator[Opinion]:
    """Firecracker's permutation test of the difference of means."""
    for sample in samples:
        yield _by_p(*_permutation(tuple(sample.a.tolist()), tuple(sample.b.tolist())))


@cache  # both rules of Firecracker
def _permutation(a: tuple[float, ...], b: tuple[float, ...]) -> tuple[float, float]:
    """The p, and the mean of B less that of A."""
    test = stats.permutation_test(
        (a, b), lambda a, b, axis: b.mean(axis=axis) - a.mean(axis=axis), vectorized=True, n_resamples=PERMUTATIONS,
        rng=np.random.default_rng(1),
    )  # fmt: skip
    return float(test.pvalue), float(test.statistic)


def permutation_change(samples: Sequence[Sample]) -> Iterator[Opinion]:
    """The same with its threshold: a change that is not sure at 0.01 has no strength, others have their size."""
    for sample, opinion in zip(samples, permutation_p(samples), strict=True):
        change = abs(float(sample.b.mean() / sample.a.mean()) - 1)
        yield Opinion(change if opinion.strength > -0.01 else 0.0, opinion.sign)


def mean_change(samples: Sequence[Sample]) -> Iterator[Opinion]:
    """Bencher's percentage: how far the mean of B lies from that of A."""
    for sample in samples:
        yield _by_size(float(sample.b.mean() / sample.a.mean()))


def best_change(samples: Sequence[Sample]) -> Iterator[Opinion]:
    """How far the best of B lies from that of A."""
    for sample in samples:
        yield _by_size(float(sample.b.min() / sample.a.min()))


def _by_size(ratio: float) -> Opinion:
    return Opinion(abs(ratio - 1), 1 if ratio > 1 else -1)


def _listed(rule: Callable[[Sequence[Sample]], Iterator[Opinion]]) -> Callable[[Sequence[Sample]], list[Opinion]]:
    return lambda samples: list(rule(samples))


def _program(
    of: Callable[[Sequence[tuple[Sequence[float], Sequence[float]]]], list[tuple[float, int]] | None],
) -> Callable[[Sequence[Sample]], list[Opinion] | None]:
    """The opinions of a program."""

    def opinions(samples: Sequence[Sample]) -> list[Opinion] | None:
        answers = of([(sample.a.tolist(), sample.b.tolist()) for sample in samples])
        return None if answers is None else [Opinion(*each) for each in answers]

    return opinions


RULES = (
    Rule("paired t of logs", -ALPHA, "Student's t over blocks, scipy", _listed(paired_p)),
    Rule("Welch's t", -ALPHA, "scipy.stats.ttest_ind(equal_var=False)", _listed(welch_p)),
    Rule("benchstat", -0.05, f"program, golang.org/x/perf {programs.BENCHSTAT}", _program(programs.benchstat)),
    Rule("criterion", 0.01, f"program, criterion {programs.CRITERION}: p < 0.05 and the whole interval beyond the "
         f"noise threshold; {programs.CRITERION_RESAMPLES} resamples in place of 100,000", _program(programs.criterion),
         is_p=False),
    Rule("Firecracker with threshold", 0.05, "rule of tools/ab_test.py, firecracker-microvm/firecracker 7bd4d357: "
         "p < 0.01 and --noise-threshold 0.05", _listed(permutation_change), is_p=False),
    Rule("Firecracker without threshold", -0.01, "the same with --noise-threshold 0", _listed(permutation_p)),
    Rule("Bencher's percentage", 0.25, "rule of bencher.dev/docs/explanation/thresholds, upper boundary 0.25 as in its "
         "page on relative continuous benchmarking; here both ways", _listed(mean_change), is_p=False),
    Rule("Otava", -0.001, f"program, apache-otava {programs.OTAVA}: A as history, then B; a change point at the first "
         "value of B, up to three before it, or later", _program(programs.otava)),
    Rule("best of n", 0.01, "minimum; 1% as MIN_PERCENTAGE_CHANGE of LLVM's LNT", _listed(best_change), is_p=False),
)  # fmt: skip


def engine_strength(page: Judged) -> Opinion:
    """The uncorrected p of `vmtoll judge`, of the row that differs the most."""
    tests = [
        (each.judged.tests.difference, each.judged.estimate and each.judged.estimate.value)
        for each in page.comparisons
    ]  # fmt: skip
    p, ratio = min(((1.0 if p is None else p, ratio or 1.0) for p, ratio in tests), key=lambda each: each[0])
    return Opinion(-p, 1 if ratio > 1 else -1)


def is_equal(kind: Kind) -> bool:
    """Return whether both sides of such pages are the same command."""
    return kind in (Kind.EQUAL, Kind.DISTURBED, Kind.TEN, Kind.WEB)

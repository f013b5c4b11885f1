"""Pair two sides block by block: the effects that the blocks of a comparison may have had.

A block has the mean of its replicates. A pair has the worst of one side against the best of the other. `pair_arms`
pairs two arms of a run.
"""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from vmtoll.analysis.run import Run
from vmtoll.analysis.sets import log_of
from vmtoll.analysis.sides import (
    Measure,
    Side,
    TrialOutcome,
    measure_of,
    requests_of,
    sides_of,
)
from vmtoll.model.finding import Code, Role, Validity
from vmtoll.model.metric import LATENCY_P99, THROUGHPUT, Loop, Metric, loop_of
from vmtoll.model.trial import Arm, Scenario, TrialRecord
from vmtoll.model.verdict import Cause
from vmtoll.statistics.series import Series, is_skewed
from vmtoll.statistics.thresholds import NATURAL_FACTOR

LOG_NATURAL = math.log(NATURAL_FACTOR)


@dataclass(frozen=True)
class Bounds:
    """The advantage of the compared side by block, in logs, above zero where it is better."""

    low: Series  # its worst, with its lost trials, against the baseline's best
    mid: Series
    high: Series  # its best against the baseline's worst, with that side's lost ones

    def widened(self, log: float) -> "Bounds":
        """The same with each end moved outward by `log`."""
        return Bounds(_moved(self.low, -log), self.mid, _moved(self.high, log))


def _moved(series: Series, log: float) -> Series:
    return Series(series.blocks, tuple(value + log for value in series.values))


@dataclass(frozen=True)
class SideBlock:
    """One side in one block, in logs, the larger the better. `bad` includes all lost trials, `good` only those with
    an `at_best`; None if not known.
    """

    bad: float | None
    mid: float | None
    good: float | None
    lost: float = 0.0  # the part of `bad` due to lost trials where another one has a figure


@dataclass(frozen=True)
class Pairs:
    """Two sides, block by block."""

    baseline: Side
    compared: Side
    bounds: Bounds  # over all replicates
    blocks: tuple[Mapping[int, SideBlock], Mapping[int, SideBlock]]
    # over the first replicate of each side, None unless a side has two and the blocks are skewed
    first_replicates: Bounds | None = None
    # for the low and the high series, whether a natural limit or a lost trial set an end
    capped: tuple[bool, bool] = (False, False)

    @property
    def measure(self) -> Measure:
        return self.compared.measure

    @property
    def sides(self) -> tuple[Side, Side]:
        return self.baseline, self.compared

    @property
    def n(self) -> int:
        """Blocks in which both sides have a figure."""
        return self.bounds.mid.n

    @cached_property
    def boots(self) -> Mapping[int, int]:
        """Block → the boot of its machines."""
        return {trial.block: trial.boot for side in self.sides for trial in side.trials}

    @property
    def open_blocks(self) -> frozenset[int]:
        """The blocks in which the client or the link leaves an end of either side open."""
        return self.baseline.open_blocks | self.compared.open_blocks

    def widths(self) -> tuple[dict[Code | Cause, float], dict[Code | Cause, float]]:
        """How far each cause alone moves the mean of the lows down, and that of the highs up, in logs, over the paired
        blocks. An open end counts as the natural limit.
        """
        widths: tuple[dict[Code | Cause, float], ...] = defaultdict(float), defaultdict(float)
        natural_limit = (
            max(self.bounds.mid.values, default=0.0) - min(self.bounds.mid.values, default=0.0) + LOG_NATURAL
        )
        for block in self.bounds.mid.blocks:
            for index, side in enumerate(self.sides):
                members = side.by_block[block]
                for figure in members:
                    for cause, (down, up) in figure.widths.items():
                        bad, good = (down, up) if self.measure.sign > 0 else (up, down)
                        # The worst of the compared side sets the lows, that of the baseline the highs.
                        widths[1 - index][cause] += min(bad, natural_limit) / len(members) / self.n
                        widths[index][cause] += min(good, natural_limit) / len(members) / self.n
                if lost := self.blocks[index][block].lost:
                    widths[1 - index][Cause.SECOND_ATTEMPTS] += lost / self.n
        for index, series in ((1, self.bounds.low), (0, self.bounds.high)):
            lost_blocks = [
                v for b, v in zip(series.blocks, series.values, strict=True) if b not in self.blocks_of_pairs
            ]
            if lost_blocks:
                paired_values = [
                    v for b, v in zip(series.blocks, series.values, strict=True) if b in self.blocks_of_pairs
                ]
                shift = np.mean(paired_values) - np.mean(series.values) if paired_values else 0.0
                widths[1 - index][Cause.LOST] += abs(float(shift))
        return {c: w for c, w in widths[0].items() if w > 0}, {c: w for c, w in widths[1].items() if w > 0}

    @cached_property
    def blocks_of_pairs(self) -> frozenset[int]:
        return frozenset(self.bounds.mid.blocks)


def pair(
    run: Run, baseline: Sequence[TrialRecord], compared: Sequence[TrialRecord], measure: Measure
) -> Pairs:  # fmt: skip
    """Pair two selections of trials."""
    sides = sides_of(run, baseline, compared, measure)
    blocks = _blocks(sides[0]), _blocks(sides[1])
    bounds, capped = bounds_of(blocks)
    return Pairs(*sides, bounds, blocks, capped=capped)


def bounds_of(blocks: tuple[Mapping[int, SideBlock], Mapping[int, SideBlock]]) -> tuple[Bounds, tuple[bool, bool]]:
    mids = [block.mid for side in blocks for block in side.values() if block.mid is not None]
    if not mids:
        return Bounds(Series((), ()), Series((), ()), Series((), ())), (False, False)
    floor, ceiling = min(mids) - LOG_NATURAL, max(mids) + LOG_NATURAL
    lows, middles, highs = {}, {}, {}
    capped = [False, False]
    for number in sorted(blocks[0].keys() & blocks[1].keys()):
        base, other = blocks[0][number], blocks[1][number]
        if other.bad is not None and base.good is not None:
            capped[0] |= other.mid is None or other.lost > 0
            lows[number] = max(other.bad, floor) - min(base.good, ceiling)
            capped[0] |= other.bad < floor or base.good > ceiling
        if other.good is not None and base.bad is not None:
            capped[1] |= base.mid is None or base.lost > 0
            highs[number] = min(other.good, ceiling) - max(base.bad, floor)
            capped[1] |= other.good > ceiling or base.bad < floor
        if base.mid is not None and other.mid is not None:
            middles[number] = other.mid - base.mid
    low, middle, high = (Series(tuple(each), tuple(each.values())) for each in (lows, middles, highs))
    return Bounds(low, middle, high), (capped[0], capped[1])


def _blocks(side: Side) -> dict[int, SideBlock]:
    sign, figures = side.measure.sign, [o.figure for o in side.outcomes if o.figure]
    if not figures:
        return {}
    worst = min(sign * math.log(p.value) for p in figures) - LOG_NATURAL
    blocks: dict[int, list[TrialOutcome]] = {}
    for outcome in side.outcomes:
        blocks.setdefault(outcome.trial.block, []).append(outcome)
    return {number: _block(members, sign, worst) for number, members in blocks.items()}


def _block(members: Sequence[TrialOutcome], sign: int, worst: float) -> SideBlock:
    figures = [outcome.figure for outcome in members if outcome.figure]
    lost = [worst for outcome in members for _ in range(outcome.lost)]
    at_best = [sign * log_of(o.at_best) for o in members if o.at_best is not None and not o.figure]
    ends = [sorted((sign * log_of(p.low), sign * log_of(p.high))) for p in figures]
    bad = [end[0] for end in ends] + lost
    good = [end[1] for end in ends] + at_best
    mid = [sign * log_of(p.value) for p in figures]
    mean_without_lost = mean_of_block([end[0] for end in ends])
    lost_part = (mean_without_lost or 0.0) - (mean_of_block(bad) or 0.0) if lost and figures else 0.0
    return SideBlock(
        mean_of_block(bad), mean_of_block(mid), mean_of_block(good), lost_part if math.isfinite(lost_part) else 0.0
    )


def mean_of_block(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values and not _mixed(values) else -math.inf if values else None


def _mixed(values: Sequence[float]) -> bool:
    return math.inf in values and -math.inf in values


# ---- two arms of a run


def replicates(run: Run, scenario: Scenario, arm: Arm) -> list[TrialRecord]:
    """The trials of an environment in a scenario: those of the arm and of its A/A control."""
    return run.trials_of(scenario, arm) + run.trials_of(scenario, Arm(arm.environment, arm.replicate + 1))


def pair_arms(run: Run, scenario: Scenario, baseline: Arm, arm: Arm, metric: Metric, role: Role) -> Pairs:
    """Pair two arms of a run in one scenario. An A/A control joins its environment's side as a second replicate, unless
    the two arms are an environment and its control.
    """
    measure = measure_of(metric, role, is_open=scenario.load.is_open)
    first_replicates = [run.trials_of(scenario, side_arm) for side_arm in (baseline, arm)]
    if arm.environment == baseline.environment:
        return pair(run, first_replicates[0], first_replicates[1], measure)
    all_replicates = [replicates(run, scenario, side_arm) for side_arm in (baseline, arm)]
    pairs = pair(run, all_replicates[0], all_replicates[1], measure)
    has_replicates = len(all_replicates[0]) + len(all_replicates[1]) > len(first_replicates[0]) + len(
        first_replicates[1]
    )
    if not has_replicates or not is_skewed(pairs.bounds.mid):
        return pairs
    return replace(pairs, first_replicates=pair(run, first_replicates[0], first_replicates[1], measure).bounds)


def choose_role(run: Run, scenario: Scenario, baseline: Arm, arm: Arm) -> Role:
    """Role whose figures are compared: the primary's if not limited, or limited less often than the cross-check.

    Otherwise the cross-check's, which is cheaper. Limited means by the client or the link. In an open loop it is always
    the primary's, because there the cross-check is not the cheaper of the two.
    """
    if loop_of(scenario.load) is Loop.OPEN:
        return Role.PRIMARY
    counts = []
    for role in (Role.PRIMARY, Role.CROSSCHECK):
        measure = measure_of(THROUGHPUT, role, is_open=False)
        sides = [
            {t.block: measure.is_limited(t) for t in run.trials_of(scenario, side_arm) if measure.value(t)
             and t.validity is not Validity.INVALID}
            for side_arm in (baseline, arm)
        ]  # fmt: skip
        common = sides[0].keys() & sides[1].keys()
        counts.append((len(common), sum(side[block] for side in sides for block in common)))
    return less_limited(counts[0], counts[1])


def less_limited(primary: tuple[int, int], crosscheck: tuple[int, int]) -> Role:
    """Role whose figures count; each tuple: the number of pairs or trials, and of client- or link-limited trials."""
    if crosscheck[0] == 0 or (primary[0] and primary[1] == 0):
        return Role.PRIMARY
    if primary[0] == 0 or crosscheck[1] / crosscheck[0] <= primary[1] / primary[0]:
        return Role.CROSSCHECK
    return Role.PRIMARY


def role_of(metric: Metric, throughput_role: Role, trials: Iterable[TrialRecord]) -> Role:
    """Role whose figures of a metric are compared; `throughput_role`: that for throughput.

    Service times are the cross-check's if it logs them, else the primary's.
    """
    if metric is not LATENCY_P99:
        return throughput_role
    has_service_times = any(metric.value(trial, Role.CROSSCHECK) is not None for trial in trials)
    return Role.CROSSCHECK if has_service_times else Role.PRIMARY


def is_measured(sides: Collection[Side]) -> bool:
    """Return whether the tools give such figures: they do not if requests were answered on every side, and no trial has
    the figure.
    """
    return any(
        any(side.measure.value(trial) is not None for trial in side.trials)
        or not any(requests_of(trial, side.measure.role) for trial in side.trials)
        for side in sides
    )

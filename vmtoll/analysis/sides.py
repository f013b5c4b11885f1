"""A side of a comparison: a selection of trials, each as the values that its figure may have had.

Each trial becomes the values that its figure may have had (`sets`), or counts as lost. Where the sides have unequal
numbers of requests, the percentile of the side with more is thinned to the other's number.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy import special

from vmtoll.analysis.run import Run, by_block
from vmtoll.analysis.sets import (
    LOST,
    NOT_COMPARABLE,
    UNDISTURBED,
    BoundedFigure,
    Disturbance,
    Nature,
    Quantity,
    bounds_of_figure,
    common_disturbance,
    disturbance,
)
from vmtoll.analysis.thinning import expected_percentile
from vmtoll.model.finding import ACCIDENTS, Code, Role, Validity
from vmtoll.model.metric import CPU, HOST_CPU, Metric
from vmtoll.model.percentiles import fewest_requests
from vmtoll.model.trial import Measurement, TrialRecord
from vmtoll.model.verdict import Cause, SideCounts

UNEQUAL_REQUESTS = 1.2  # ratio beyond which the percentile of the side with more requests is thinned


@dataclass(frozen=True)
class Measure:
    """The figure of each trial that is compared."""

    value: Callable[[TrialRecord], float | None]  # reads it
    quantity: Quantity
    role: Role = Role.PRIMARY  # of its measurement
    higher_is_better: bool = True
    limits: frozenset[Code] = frozenset()  # findings that mean that the client or the link set it

    @property
    def sign(self) -> int:
        """1 where more is better, else −1."""
        return 1 if self.higher_is_better else -1

    def is_limited(self, trial: TrialRecord) -> bool:
        """Return whether the client or the link set a trial's figure. CLIENT_SATURATED does not count for a single
        user, who sets the pace by design.
        """
        codes = self.limits & trial.limits(self.role)
        return bool(codes - {Code.CLIENT_SATURATED} if trial.offered.users == 1 else codes)


def measure_of(metric: Metric, role: Role, *, is_open: bool) -> Measure:
    """The measure of a metric, under an open or a closed loop."""
    nature = Nature.RATE if metric.higher_is_better else Nature.CPU if metric in (CPU, HOST_CPU) else Nature.PERCENTILE
    quantity = Quantity(
        nature, metric.percentile or 0.0, metric.field.removesuffix("_p99_us"), unit_s=1e6, is_open=is_open
    )
    return Measure(lambda trial: metric.value(trial, role), quantity, role, metric.higher_is_better, metric.limits)


@dataclass(frozen=True)
class TrialOutcome:
    """One trial on its side."""

    trial: TrialRecord
    figure: BoundedFigure | None = None  # its figure with its bounds, None without one
    lost: int = 0  # the number of lost trials that it counts as, failed earlier attempts included
    at_best: float | None = None  # the best that the figure of a trial lost to failed requests may have been
    is_comparable: bool = True  # False if a finding says that the sides are not the same thing


@dataclass(frozen=True)
class Side:
    """One side: the outcomes of its trials, over all blocks."""

    outcomes: tuple[TrialOutcome, ...]
    measure: Measure

    @property
    def trials(self) -> list[TrialRecord]:
        return [outcome.trial for outcome in self.outcomes]

    @property
    def used(self) -> list[TrialRecord]:
        """The trials that have a figure."""
        return [outcome.trial for outcome in self.outcomes if outcome.figure]

    @cached_property
    def limited(self) -> list[TrialRecord]:
        """Trials with a figure that the client or the link set."""
        return [trial for trial in self.used if self.measure.is_limited(trial)]

    @property
    def open_blocks(self) -> frozenset[int]:
        """The blocks in which the client or the link leaves an end open."""
        return frozenset(o.trial.block for o in self.outcomes if o.figure and o.figure.is_limited)

    @cached_property
    def figures(self) -> Mapping[int, float]:
        """Block → the mean of its replicates, geometric where all are above zero."""
        return {block: mean_figure([p.value for p in figures]) for block, figures in self.by_block.items()}

    @cached_property
    def by_block(self) -> Mapping[int, list[BoundedFigure]]:
        """Block → the figures of its trials."""
        blocks: dict[int, list[BoundedFigure]] = {}
        for outcome in sorted(self.outcomes, key=lambda outcome: outcome.trial.key):
            if outcome.figure:
                blocks.setdefault(outcome.trial.block, []).append(outcome.figure)
        return blocks

    @property
    def counts(self) -> SideCounts:
        """Counts of the trials by outcome."""
        used, role = self.used, self.measure.role
        return SideCounts(
            trials=len(self.outcomes),
            used=len(used),
            suspect=sum(trial.validity is Validity.SUSPECT for trial in used),
            lost=sum(outcome.figure is None and outcome.lost > 0 for outcome in self.outcomes),
            second_attempts=sum(outcome.figure is not None and outcome.lost > 0 for outcome in self.outcomes),
            incomparable=sum(not outcome.is_comparable for outcome in self.outcomes),
            limited=len(self.limited),
            findings=_by_frequency(code for trial in used for code in trial.limits(role)),
            excluded_by=_by_frequency(
                f.code for o in self.outcomes if not o.figure for f in o.trial.findings
                if f.severity is Validity.INVALID or f.code in NOT_COMPARABLE
            ),
            requests=tuple(n for trial in used if (n := requests_of(trial, role)) is not None),
        )  # fmt: skip


def mean_figure(values: Sequence[float]) -> float:
    """The geometric mean, or the arithmetic one where a figure is not above zero."""
    if len(values) == 1:
        return values[0]
    return float(np.exp(np.log(values).mean()) if min(values) > 0 else np.mean(values))


def _by_frequency(codes: Iterable[Code]) -> dict[Code, int]:
    return dict(sorted(Counter(codes).items(), key=lambda item: (-item[1], item[0])))


def requests_of(trial: TrialRecord, role: Role) -> int | None:
    """Number of responses behind a measurement's figures; planned requests if the tool counted no responses."""
    measurement = trial.measurement(role)
    if measurement is None:
        return None
    return measurement.requests if measurement.transactions is None else measurement.transactions


def sides_of(
    run: Run, baseline: Sequence[TrialRecord], compared: Sequence[TrialRecord], measure: Measure
) -> tuple[Side, Side]:
    """Both sides with the outcome of each trial. A disturbance that both sides of a block share widens nothing."""
    trials, outcomes = [by_block(side) for side in (baseline, compared)], list[list[TrialOutcome]]([[], []])
    for block in sorted({*trials[0], *trials[1]}):
        block_trials = [side.get(block, []) for side in trials]
        disturbances = [[d for t in side if (d := _disturbance(run, t, measure.role))] for side in block_trials]
        common = common_disturbance(disturbances)
        block_outcomes = [[_outcome(run, trial, measure, common) for trial in side] for side in block_trials]
        if measure.quantity.nature is Nature.PERCENTILE:
            block_outcomes = _thin_to_equal_requests(run, block_outcomes, measure)
        for side, side_outcomes in zip(outcomes, block_outcomes, strict=True):
            side.extend(side_outcomes)
    return Side(tuple(outcomes[0]), measure), Side(tuple(outcomes[1]), measure)


def _disturbance(run: Run, trial: TrialRecord, role: Role) -> Disturbance | None:
    """The disturbance of a measurement, computed once for all figures; None without the measurement."""
    key = (trial.name, role)
    if key not in run.disturbances:
        measurement = trial.measurement(role)
        run.disturbances[key] = disturbance(trial, measurement) if measurement else None
    return run.disturbances[key]


def _outcome(run: Run, trial: TrialRecord, measure: Measure, common: Disturbance) -> TrialOutcome:
    findings = [finding for finding in trial.findings if finding.role in (measure.role, None)]
    lost = sum(_counts_as_lost(run, attempt) for attempt in run.earlier_attempts.get(trial.key, ()))
    if any(finding.code in NOT_COMPARABLE for finding in findings):
        return TrialOutcome(trial, is_comparable=False, lost=lost)
    if any(finding.code in LOST for finding in findings):
        return TrialOutcome(trial, lost=lost + (_counts_as_lost(run, trial) or not _is_accident(trial)))
    value, measured_disturbance = _value(trial, measure), _disturbance(run, trial, measure.role)
    if any(f.code is Code.FAILED_REQUESTS and f.severity is Validity.INVALID for f in findings):
        is_time_or_rate = measure.quantity.nature is not Nature.CPU  # failing takes time, but may save CPU
        return TrialOutcome(trial, lost=lost + 1, at_best=value if is_time_or_rate else None)
    if value is None:
        return TrialOutcome(trial, lost=lost)
    excess = measured_disturbance.excess_over(common) if measured_disturbance else UNDISTURBED
    return TrialOutcome(
        trial, bounds_of_figure(trial, measure.role, value, measure.quantity, excess, run.latencies), lost
    )


def _value(trial: TrialRecord, measure: Measure) -> float | None:
    """The figure of a trial; None for a percentile of too few requests, or out of order with other percentiles."""
    value, measurement = measure.value(trial), trial.measurement(measure.role)
    if value is None or measurement is None or measure.quantity.nature is not Nature.PERCENTILE:
        return value
    has_enough = (requests_of(trial, measure.role) or math.inf) >= fewest_requests(measure.quantity.percentile)
    return value if has_enough and is_ordered(measurement, measure.quantity.prefix) else None


def is_ordered(measurement: Measurement, prefix: str) -> bool:
    """Return whether p50 ≤ p90 ≤ p99, as far as the tool gave them; if not, it counted something else."""
    figures = [measurement.times(prefix).of(name) for name in ("p50", "p90", "p99")]
    known = [value for value in figures if value is not None]
    return known == sorted(known)


def _is_accident(trial: TrialRecord) -> bool:
    return any(finding.code in ACCIDENTS for finding in trial.findings)


def _counts_as_lost(run: Run, trial: TrialRecord) -> bool:
    """Return whether an attempt ended in an accident that counts against its own side. The loss of a client, of a host
    that serves both sides, or of another environment's machine does not; the loss of an unknown machine does, and so
    does a failed tool, because its server may be the cause.
    """
    return any(
        f.code in ACCIDENTS and not (f.code is Code.HOST_LOST and run.is_foreign(f.machine, trial.arm))
        for f in trial.findings
    )


def _thin_to_equal_requests(run: Run, sides: list[list[TrialOutcome]], measure: Measure) -> list[list[TrialOutcome]]:
    """One block, with percentiles of about equally many requests: a percentile of fewer is too low on average.

    A side with a trial of over a fifth more requests than the smallest one is thinned: its trials count with the mean
    percentile of a random choice of as few requests. Without a histogram the low end reaches down to the recorded
    percentile below the lower 95% limit of such a choice.
    """
    counts = [[requests_of(o.trial, measure.role) or 0 for o in side if o.figure] for side in sides]
    if not all(counts) or min(map(min, counts)) == 0:
        return sides
    fewest = min(map(min, counts))
    if max(map(max, counts)) <= UNEQUAL_REQUESTS * fewest:
        return sides
    return [
        [_thinned(run, outcome, measure, fewest) for outcome in side] if max(side_counts) > UNEQUAL_REQUESTS * fewest
        else side
        for side, side_counts in zip(sides, counts, strict=True)
    ]  # fmt: skip


def _thinned(run: Run, outcome: TrialOutcome, measure: Measure, requests: int) -> TrialOutcome:
    figure, percentile = outcome.figure, measure.quantity.percentile
    if figure is None:
        return outcome
    if latencies := run.latencies(outcome.trial, measure.role):
        values, cumulative_counts = latencies
        thinned_value = expected_percentile(values, cumulative_counts, requests, percentile)
        scale = thinned_value / figure.value
        return replace(outcome, figure=replace(
            figure, low=figure.low * scale, value=thinned_value, high=figure.high * scale
        ))  # fmt: skip
    rank = math.ceil(percentile * requests)
    lowest = float(special.betaincinv(rank, requests - rank + 1, 0.025))
    measurement = outcome.trial.measurement(measure.role)
    names = [name for share, name in ((0.9, "p90"), (0.5, "p50")) if share <= lowest]
    known = [measurement.times(measure.quantity.prefix).of(name) for name in names] if measurement else []
    low = min(next((float(value) for value in known if value is not None), 0.0), figure.low)
    down = math.log(figure.value / low) if low > 0 else math.inf
    widths: dict[Code | Cause, tuple[float, float]] = {**figure.widths, Cause.UNEQUAL_REQUESTS: (down, 0.0)}
    return replace(outcome, figure=replace(figure, low=low, widths=widths))

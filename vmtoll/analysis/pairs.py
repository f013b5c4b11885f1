"""Pair two sides of a run block by block: any two arms, or any two selections of trials, for one figure.

What was left out is kept with its reason, per side; so is what distorts figures, and what is client-limited or
link-limited.
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import groupby

import numpy as np

from vmtoll.analysis.run import Run
from vmtoll.analysis.statistics import (
    MIN_BLOCKS,
    Autocorrelation,
    Modes,
    Paired,
    autocorrelation,
    fewest_requests,
    fisher,
    noise_floor,
    paired,
    two_modes,
    worst_case,
)
from vmtoll.analysis.statistics import Interval as LogInterval
from vmtoll.analysis.thinning import thinned
from vmtoll.model.finding import DISTORTING, Code, Role, Validity
from vmtoll.model.metric import LATENCY_P99, THROUGHPUT, Loop, Metric, loop_of
from vmtoll.model.trial import BASELINE, Arm, Scenario, TrialRecord
from vmtoll.model.verdict import SideCounts

Figure = Callable[[TrialRecord], float | None]
UNEQUAL_REQUESTS = 1.2  # beyond it the percentile of the side with more requests is thinned
UNEQUAL_SHARE = 0.1  # how far the shares of lost trials may be apart for two sides to have lost alike
UNEQUAL_BLOCKS = 2  # or by how many blocks
DISTORTED_SHARE = 1 / 3  # of the pairs
LARGEST_DELAY = 0.99  # share of a percentile that is subtracted: a figure stays above zero
SUSPICIOUS = 0.05  # p of Fisher's test that one side is distorted more often


@dataclass(frozen=True)
class Side:
    """Trials of one side, the last attempts. `figures`: block → figure; `used`: the trials behind them; `limited`:
    those of them that are client-limited or link-limited, by their findings `limits`; `distorting`: findings that may
    make this figure something else; `role`: whose figures they are; `few`: trials with too few requests;
    `values`: the figures of `used`, one by one. The others are left out: they are invalid, or have no figure.
    `is_measured`: the tool gave the figure in any trial, or answered no request in all of them.
    """

    trials: tuple[TrialRecord, ...]
    used: tuple[TrialRecord, ...]
    limited: tuple[TrialRecord, ...]
    limits: frozenset[Code]
    figures: Mapping[int, float]
    role: Role = Role.PRIMARY
    distorting: frozenset[Code] = frozenset()
    few: int = 0
    values: tuple[float, ...] = ()
    is_measured: bool = True

    @property
    def refused(self) -> Counter[Code]:
        """The findings that made trials invalid, each with the number of trials."""
        return Counter(code for trial in self.trials for code in _refusing(trial))

    def counts(self, blocks: Collection[int]) -> SideCounts:
        """Counts of the trials by outcome; those that were used, in these blocks."""
        used = [trial for trial in self.used if trial.block in blocks]
        invalid = sum(trial.validity is Validity.INVALID for trial in self.trials if trial not in self.used)
        return SideCounts(
            trials=len(self.trials),
            used=len(used),
            suspect=sum(trial.validity is Validity.SUSPECT for trial in used),
            invalid=invalid,
            empty=len(self.trials) - len(self.used) - invalid,
            few=self.few,
            retried=sum(trial.attempt > 1 for trial in self.trials),
            limited=self.limited_in(blocks),
            distorted=len(self.distorted_in(blocks)),
            findings=_by_frequency(code for trial in used for code in trial.codes),
            excluded_by=_by_frequency(self.refused.elements()),
            requests=tuple(n for trial in used if (n := requests_of(trial, self.role)) is not None),
        )

    def limited_in(self, blocks: Collection[int]) -> int:
        """Number of trials of these blocks that are client-limited or link-limited."""
        return sum(trial.block in blocks for trial in self.limited)

    def limited_blocks(self, blocks: Collection[int]) -> int:
        """Number of these blocks that have a client-limited or link-limited trial."""
        return len({trial.block for trial in self.limited} & set(blocks))

    def distorted_in(self, blocks: Collection[int]) -> list[TrialRecord]:
        """The used trials of these blocks whose figure something else may have made."""
        return [t for t in self.used if t.block in blocks and self.distorting & t.limits(self.role)]

    @property
    def lost_blocks(self) -> frozenset[int]:
        """The blocks in which every trial of this side is invalid."""
        blocks = {trial.block for trial in self.trials} - set(self.figures)
        return frozenset(b for b in blocks if any(_is_lost(t) for t in self.trials if t.block == b))

    @property
    def retried_blocks(self) -> frozenset[int]:
        """The blocks in which a trial of this side needed a second attempt."""
        return frozenset(trial.block for trial in self.trials if trial.attempt > 1)

    @property
    def troubled(self) -> float:
        """The share of the trials that are invalid, or needed a second attempt."""
        return sum(_is_lost(trial) or trial.attempt > 1 for trial in self.trials) / max(len(self.trials), 1)


def _refusing(trial: TrialRecord) -> set[Code]:
    return {finding.code for finding in trial.findings if finding.severity is Validity.INVALID}


def _is_lost(trial: TrialRecord) -> bool:
    return trial.validity is Validity.INVALID


def _by_frequency(codes: Iterable[Code]) -> dict[Code, int]:
    return dict(Counter(codes).most_common())


def requests_of(trial: TrialRecord, role: Role) -> int | None:
    """Number of responses that the figures of a measurement are made of."""
    measured = trial.measurement(role)
    if measured is None:
        return None
    return measured.requests if measured.transactions is None else measured.transactions


def side(
    trials: Sequence[TrialRecord],
    figure: Figure,
    *,
    limits: frozenset[Code] = frozenset(),
    distorting: frozenset[Code] = frozenset(),
    role: Role = Role.PRIMARY,
    usable: Callable[[TrialRecord], bool] = lambda trial: trial.validity is not Validity.INVALID,
    positive: bool = True,
    fewest: int = 0,
) -> Side:
    """A side of these trials. `figure`: of a trial; `usable`: which trials may have one; `positive`: a figure that is
    not above zero is none, because it has no logarithm; `fewest`: the requests below which a trial has no figure.

    Several trials of a block are replicates: their geometric mean counts, or their mean where zero is a figure.
    """
    measured = [(trial, value) for trial in trials if usable(trial) and (value := figure(trial)) is not None]
    enough = [(trial, value) for trial, value in measured if (requests_of(trial, role) or fewest) >= fewest]
    used = [(trial, value) for trial, value in enough if not positive or value > 0]
    limited = tuple(trial for trial, _ in used if limits & trial.limits(role))
    by_block = groupby(sorted(used, key=lambda item: item[0].block), key=lambda item: item[0].block)
    return Side(
        trials=tuple(trials),
        used=tuple(trial for trial, _ in used),
        limited=limited,
        limits=frozenset(code for trial in limited for code in limits & trial.limits(role)),
        figures={block: _mean([value for _, value in members], positive=positive) for block, members in by_block},
        role=role,
        distorting=distorting - limits,
        few=len(measured) - len(enough),
        values=tuple(value for _, value in used),
        is_measured=not any(requests_of(trial, role) for trial in trials)
        or any(figure(trial) is not None for trial in trials),
    )


def _mean(values: Sequence[float], *, positive: bool) -> float:
    if len(values) == 1:
        return values[0]
    return float(np.exp(np.log(values).mean()) if positive else np.mean(values))


def metric_side(trials: Sequence[TrialRecord], metric: Metric, role: Role) -> Side:
    """The same for a metric, by the measurement of a role; a percentile of too few requests is no figure."""
    return side(
        trials,
        lambda trial: metric.value(trial, role),
        limits=metric.limits,
        distorting=DISTORTING - metric.undisturbed_by,
        role=role,
        fewest=fewest_requests(metric.percentile) if metric.percentile else 0,
    )


@dataclass(frozen=True)
class Control:
    """An A/A control against its own environment, in the units of the pairs. `server`: which one it ran, None where it
    is that of the pairs; `arm`: the control's.
    """

    same: Paired
    arm: Arm
    server: str | None = None

    @property
    def floor(self) -> float:
        """The largest effect that it cannot rule out; 0 without an interval."""
        return noise_floor(self.same) or 0.0


@dataclass(frozen=True)
class Pairs:
    """Two sides, block by block. `effect`: the log ratio compared ÷ baseline. `unequal`: blocks without a pair, because
    one side's percentile is of too many more requests. `series`: how much successive blocks of the page are alike, None
    where nobody asked (see `as_series`). `single`: the effect of one trial a side in each block, where the pairs fall
    into two modes: the mean of two trials less one trial is skewed then. `without_delay`: the delay of late clients
    is subtracted from the figures of the slower side; `delay_decides`: which side that is depends on the delay.
    """

    baseline: Side
    compared: Side
    control: Control | None = field(default=None, kw_only=True)
    unequal: int = field(default=0, kw_only=True)
    series: Autocorrelation | None = field(default=None, kw_only=True)
    single: Paired | None = field(default=None, kw_only=True)
    without_delay: bool = field(default=False, kw_only=True)
    delay_decides: bool = field(default=False, kw_only=True)

    @cached_property
    def blocks(self) -> tuple[int, ...]:
        """The blocks in which both sides have a figure."""
        return tuple(block for block in self.baseline.figures if block in self.compared.figures)

    @cached_property
    def boots(self) -> Mapping[int, int]:
        """Block → the boot of the machines in it."""
        return {trial.block: trial.boot for side in self.sides for trial in side.used if trial.block in self.blocks}

    @cached_property
    def logs(self) -> tuple[float, ...] | None:
        """The log ratio of each block; None without a pair, or where a figure is not above zero."""
        under, over = ([side.figures[block] for block in self.blocks] for side in self.sides)
        if not self.blocks or min(*under, *over) <= 0:
            return None
        return tuple(math.log(high / low) for low, high in zip(under, over, strict=True))

    @cached_property
    def effect(self) -> Paired | None:
        """Over blocks; over the means of boots where there are two of them or more, because what a boot draws (where
        pages and interrupts lie) stays for all of its blocks (Kalibera and Jones 2013). Blocks whose differences hang
        together have the wider interval of an autocorrelated series.
        """
        if self.logs is None:
            return None
        if len(self.by_boot) > 1:
            return paired([float(np.mean(logs)) for logs in self.by_boot.values()])
        return paired(self.logs, self.series.inflation if self.series else 1.0)

    @cached_property
    def by_boot(self) -> Mapping[int, Sequence[float]]:
        """Boot → the log ratios of its blocks."""
        boots: dict[int, list[float]] = {}
        for block, log in zip(self.blocks, self.logs or (), strict=False):
            boots.setdefault(self.boots[block], []).append(log)
        return boots

    @cached_property
    def modes(self) -> Modes | None:
        """Two groups of blocks, where the ratio is one of two."""
        return two_modes(self.logs) if self.logs else None

    @property
    def is_measured(self) -> bool:
        """Return whether the tool gives such figures; a tool that never does on either side does not measure them."""
        return any(side.is_measured for side in self.sides)

    @property
    def sides(self) -> tuple[Side, Side]:
        return self.baseline, self.compared

    @property
    def n(self) -> int:
        return len(self.blocks)

    @property
    def limited(self) -> tuple[int, int]:
        """Number of pairs that are client-limited or link-limited, for each side."""
        return self.baseline.limited_blocks(self.blocks), self.compared.limited_blocks(self.blocks)

    @property
    def limits(self) -> frozenset[Code]:
        """The findings that say so of trials of the pairs."""
        return frozenset(
            code
            for side in self.sides
            for trial in side.limited
            if trial.block in self.blocks
            for code in side.limits & trial.limits(side.role)
        )

    def limited_by(self, codes: Collection[Code]) -> tuple[int, int]:
        """Number of pairs, for each side, in which a trial has one of these findings among its limits."""
        baseline, compared = (
            len({t.block for t in side.limited if not t.limits(side.role).isdisjoint(codes)} & set(self.blocks))
            for side in self.sides
        )
        return baseline, compared

    @cached_property
    def clean_blocks(self) -> tuple[int, ...]:
        """The blocks in which nothing distorts a trial of either side."""
        distorted = {trial.block for side in self.sides for trial in side.distorted_in(self.blocks)}
        return tuple(block for block in self.blocks if block not in distorted)

    @property
    def distorted(self) -> bool:
        """Return whether too many pairs are distorted for the effect to be that of the two sides.

        That is more than a third of them, or those of one side more often than chance explains.
        """
        if self.n - len(self.clean_blocks) > DISTORTED_SHARE * self.n:
            return True
        used = [[trial for trial in side.used if trial.block in self.blocks] for side in self.sides]
        hits = [len(side.distorted_in(self.blocks)) for side in self.sides]
        return fisher((hits[0], hits[1]), (len(used[0]), len(used[1]))) < SUSPICIOUS

    def within(self, blocks: Collection[int]) -> "Pairs":
        """The pairs of these blocks alone; what became of the other trials stays known."""
        figures = [{b: value for b, value in side.figures.items() if b in blocks} for side in self.sides]
        return replace(
            self,
            baseline=replace(self.baseline, figures=figures[0]),
            compared=replace(self.compared, figures=figures[1]),
        )

    @cached_property
    def clean(self) -> "Pairs":
        """The pairs in which nothing distorts a trial of either side."""
        return self.within(self.clean_blocks)

    @property
    def lost(self) -> tuple[int, int]:
        """Blocks in which only the baseline, and only the compared side, lost all of its trials."""
        first, second = (side.lost_blocks for side in self.sides)
        return len(first - second), len(second - first)

    @property
    def lost_more(self) -> Side | None:
        """The side that lost trials, or needed second attempts, clearly more often than the other; None without one.

        Clearly: in two blocks' worth of trials or more, or by more than a tenth of all.
        """
        first, second = (side.troubled for side in self.sides)
        blocks = len({trial.block for side in self.sides for trial in side.trials})
        apart = abs(first - second)
        if apart <= UNEQUAL_SHARE and apart * blocks < UNEQUAL_BLOCKS:
            return None
        return self.baseline if first > second else self.compared

    def worst_case(self, metric: Metric, *, retried: bool = False) -> LogInterval | None:
        """The interval if lost trials had been the worst of all; `retried`: also those that were tried again."""
        lost = [side.lost_blocks | (side.retried_blocks if retried else frozenset()) for side in self.sides]
        only = [lost[0] - lost[1], lost[1] - lost[0]]
        logs = [log for b, log in zip(self.blocks, self.logs or (), strict=False) if b not in only[0] | only[1]]
        baseline, compared = len(only[0]), len(only[1])
        low, high = (compared, baseline) if metric.higher_is_better else (baseline, compared)
        return worst_case(logs, low, high)

    @property
    def noise_floor(self) -> float | None:
        """The largest effect that the control cannot rule out between an environment and itself."""
        return noise_floor(self.control.same) if self.control else None

    @property
    def counts(self) -> tuple[SideCounts, SideCounts]:
        """Counts of each side's trials by outcome."""
        return self.baseline.counts(self.blocks), self.compared.counts(self.blocks)


def replicates(run: Run, scenario: Scenario, arm: Arm) -> list[TrialRecord]:
    """The trials of an environment in a scenario: those of the arm, and of its A/A control."""
    return run.trials_of(scenario, arm) + run.trials_of(scenario, Arm(arm.environment, arm.replicate + 1))


def pair_arms(run: Run, scenario: Scenario, arm: Arm, metric: Metric, role: Role, baseline: Arm = BASELINE) -> Pairs:
    """Two arms of a run in one scenario. The A/A control of an environment joins its side as a second replicate."""
    control = noisiest(find_control(run, scenario, each, metric, role) for each in (baseline, arm))

    def pairs_of(trials_of: Callable[[Scenario, Arm], list[TrialRecord]]) -> Pairs:
        sides = [metric_side(trials_of(scenario, each), metric, role) for each in (baseline, arm)]
        return Pairs(*sides, control=control)

    pairs = pairs_of(run.trials_of if arm.environment == baseline.environment else partial(replicates, run))
    if pairs.modes:
        pairs = replace(pairs, single=pairs_of(run.trials_of).effect)
    return of_equal_requests(run, pairs, metric.percentile) if metric.percentile else pairs


def of_equal_requests(run: Run, pairs: Pairs, percentile: float) -> Pairs:
    """The same pairs with percentiles of about equally many requests: a percentile of fewer is too low on average.

    Where one side of a block has over a fifth more requests than the other, its trials count with the percentile that
    a random choice of as many of their requests has on average; without their histograms the block has no pair.
    """
    figures: list[dict[int, float]] = [dict(side.figures) for side in pairs.sides]
    unequal = 0
    for block in pairs.blocks:
        used = [[trial for trial in side.used if trial.block == block] for side in pairs.sides]
        counts = [
            [requests_of(trial, side.role) or 0 for trial in trials]
            for side, trials in zip(pairs.sides, used, strict=True)
        ]
        fewest = min(min(numbers) for numbers in counts)
        if fewest == 0 or max(max(each) for each in counts) <= UNEQUAL_REQUESTS * fewest:
            continue
        for side, trials, of_side, values in zip(pairs.sides, used, counts, figures, strict=True):
            if max(of_side) <= UNEQUAL_REQUESTS * fewest:
                continue
            thinner = [thinned(run.path, trial, side.role, fewest, percentile) for trial in trials]
            thinned_values = [value for value in thinner if value is not None]
            if len(thinned_values) < len(thinner):
                del values[block]
                unequal += 1
            else:
                values[block] = _mean(thinned_values, positive=True)
    baseline, compared = (replace(side, figures=values) for side, values in zip(pairs.sides, figures, strict=True))
    return replace(pairs, baseline=baseline, compared=compared, unequal=unequal)


def as_series(family: Sequence[Pairs]) -> list[Pairs]:
    """The pairs of a page, with the autocorrelation of its successive blocks.

    If blocks resemble their predecessors, the cause is one machine in one stretch of time: twenty comparisons show it
    where one does not. Boots decide by their means, and need none.
    """
    single = [pairs for pairs in family if pairs.logs and len(pairs.by_boot) < 2]
    blocks = Counter(pairs.blocks for pairs in single).most_common(1)
    series_of_logs = [pairs.logs or () for pairs in single if pairs.blocks == blocks[0][0]]
    series = autocorrelation(series_of_logs) if series_of_logs else None
    return [replace(pairs, series=series) if len(pairs.by_boot) < 2 else pairs for pairs in family]


def decisive(pairs: Pairs, metric: Metric) -> Pairs:
    """The pairs that a verdict rests on: where the client or the link limited trials of both sides, those whose slower
    side was free, if six are left. A bound needs a slower side that is known. Of a tail, the pairs without the delay of
    a late client on the slower side.
    """
    if pairs.effect is None:
        return pairs
    slower = pairs.compared if (pairs.effect.mean < 0) == metric.higher_is_better else pairs.baseline
    if metric.is_tail:
        return _without_delay(pairs, slower, metric) if any(pairs.limited_by(metric.delaying)) else pairs
    if min(pairs.limited) == 0:
        return pairs
    limited = {trial.block for trial in slower.limited}
    free = pairs.within([block for block in pairs.blocks if block not in limited])
    return free if free.n >= MIN_BLOCKS else pairs


def _without_delay(pairs: Pairs, slower: Side, metric: Metric) -> Pairs:
    """The same pairs, with the delay of late clients taken off the slower side; `delay_decides` if no effect is left.

    Each trial of the slower side whose client was late has the percentile of its response time less that of the
    client's delay: about the least that the server needed. The faster side needed at most what was measured, so the
    difference is at least the one that is left.

    No pair is left out: a client counts as late where its delay is a tenth of the response time, so the pairs without a
    late client would be those in which the slower side happened to be slow.
    """
    logs: dict[int, list[float]] = {}
    for trial, value in zip(slower.used, slower.values, strict=True):
        is_late = not trial.limits(slower.role).isdisjoint(metric.delaying)
        share = min(_delay_us(trial, slower.role) / value, LARGEST_DELAY) if is_late else 0.0
        logs.setdefault(trial.block, []).append(math.log1p(-share))
    figures = {block: value * math.exp(np.mean(logs[block])) for block, value in slower.figures.items()}
    least = replace(slower, figures=figures)
    baseline, compared = (least if side is slower else side for side in pairs.sides)
    undelayed = replace(pairs, baseline=baseline, compared=compared, without_delay=True)
    before, after = (each.effect.mean if each.effect else 0.0 for each in (pairs, undelayed))
    return undelayed if before * after > 0 else replace(pairs, delay_decides=True)


def _delay_us(trial: TrialRecord, role: Role) -> float:
    measured = trial.measurement(role)
    return (measured.lateness_p99_us if measured else None) or 0.0


def noisiest(controls: Iterable[Control | None]) -> Control | None:
    """The control with the highest noise floor, where each side of a comparison has one."""
    return max((control for control in controls if control), key=lambda control: control.floor, default=None)


def find_control(run: Run, scenario: Scenario, arm: Arm, metric: Metric, role: Role) -> Control | None:
    """The control of an arm's environment that tells this scenario's noise.

    Where the scenario has none: the noisiest of other servers under the same load, else of the same kind of loop.
    """
    named = (scenario.workload, scenario.load)
    same_load = [other for other in run.compared if other != scenario and (other.workload, other.load) == named]
    same_loop = [other for other in run.compared if loop_of(other.load) is loop_of(scenario.load)]
    for candidates in ([scenario], same_load, same_loop):
        controls = [control_in(run, candidate, arm, metric, role) for candidate in candidates]
        if control := noisiest(controls):
            return replace(control, server=None) if candidates == [scenario] else control
    return None


def control_in(run: Run, scenario: Scenario, arm: Arm, metric: Metric, role: Role) -> Control | None:
    """The control of an arm's environment in one scenario, against the first replicate; None without an interval."""
    control = Arm(arm.environment, 2)
    first, second = (metric_side(run.trials_of(scenario, each), metric, role) for each in (arm, control))
    same = Pairs(first, second).effect
    return Control(same, control, scenario.server) if same and same.t else None


def choose_role(run: Run, scenario: Scenario, arm: Arm) -> Role:
    """Role whose figures are compared: the primary's, unless the (cheaper) cross-check was limited no more often.

    The primary's count as well if neither the client nor the link limited it. In an open loop it is always the
    primary's: the cross-check there is not the cheaper of the two.
    """
    if loop_of(scenario.load) is Loop.OPEN:
        return Role.PRIMARY
    primary, crosscheck = (_throughput(run, scenario, arm, role) for role in (Role.PRIMARY, Role.CROSSCHECK))
    return less_limited((primary.n, sum(primary.limited)), (crosscheck.n, sum(crosscheck.limited)))


def _throughput(run: Run, scenario: Scenario, arm: Arm, role: Role) -> Pairs:
    baseline, compared = (metric_side(run.trials_of(scenario, each), THROUGHPUT, role) for each in (BASELINE, arm))
    return Pairs(baseline, compared)


def less_limited(primary: tuple[int, int], crosscheck: tuple[int, int]) -> Role:
    """Role whose figures count, by the pairs of each and how many of their trials the client or the link limited."""
    if crosscheck[0] == 0 or (primary[0] and primary[1] == 0):
        return Role.PRIMARY
    if primary[0] == 0 or crosscheck[1] / crosscheck[0] <= primary[1] / primary[0]:
        return Role.CROSSCHECK
    return Role.PRIMARY


def role_of(metric: Metric, chosen: Role, trials: Iterable[TrialRecord]) -> Role:
    """Role whose figures of a metric are compared, where those of `chosen` are for throughput.

    Service times are the cross-check's where it logs them, else the primary's.
    """
    if metric is not LATENCY_P99:
        return chosen
    logged = any(metric.value(trial, Role.CROSSCHECK) is not None for trial in trials)
    return Role.CROSSCHECK if logged else Role.PRIMARY

"""Judge a family of comparisons: decide for each one whether its sides differ, are equivalent, or neither is shown.

Verdicts of runs, tuning steps, campaigns, replays and the simulations in docs are all decided here; claims have their
own rule (`claims.decide`). They differ in the unit that a series counts (blocks, boots, test beds) and in whether a
margin of equivalence applies. All values are advantages: log ratios above zero where the compared side is better. In
pseudo-code:

for each comparison:                        # pairs, sets
        low, mid, high = advantage by block: worst against best, as measured, best against worst
        a lost trial counts only in the series where it counts against its side
    weight[ρ] = prior · likelihood of all mids of the family        # series.autocorrelation
    for each comparison:
        p_better = Σρ weight · T(−mean(low) / error(low))           # findings explain none of it
        p_worse  = Σρ weight · T(+mean(high) / error(high))
        if the mids are skewed and a side has replicates: the larger of each p and that of the first replicates
        p = 2 · min(p_better, p_worse)
        p_unequal = 2 · max(P(low ≤ −margin), P(high ≥ margin))
    Holm over the comparisons of the family that can be tested, by weight and share of the look
    every_block = in every block low > log F (or high < −log F); F = 2, or A² if two A/A trials differ by a factor A and
            that is more, twice that where the expected ρ is 0.5 or more; 4 A² with 4 or 5 blocks
    kind = equivalent       if p_unequal survives
           faster, slower   if p survives, or every_block
           undecided        else, because of: no look yet, few blocks, limit, findings, noise
    interval = lower limit of the lows, upper limit of the highs, at the level that Holm left, so that it excludes zero
               exactly where Holm rejects; a range instead where `every_block` alone decided


"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from scipy import special

from vmtoll.analysis.pairs import Bounds
from vmtoll.model.metric import Metric
from vmtoll.model.verdict import Estimate, Judged, Kind, Region, Tests, VerdictReason
from vmtoll.statistics.holm import Adjusted, holm
from vmtoll.statistics.series import (
    INDEPENDENT,
    RHOS,
    Fits,
    Floats,
    Series,
    above,
    autocorrelation,
    below,
    critical_distance,
    fit,
    is_skewed,
    lower_limit,
    upper_limit,
)
from vmtoll.statistics.student import Interval
from vmtoll.statistics.thresholds import (
    ALPHA,
    CORRELATED,
    ENOUGH_EVERY_BLOCKS,
    EVERY_BLOCK_FACTOR,
    FACTOR_OF_FEW,
    FEW_EVERY_BLOCKS,
    MARGIN,
    MAX_BLOCKS,
    MIN_BLOCKS,
    MIN_BOOTS,
    MIN_EQUIVALENT_BLOCKS,
    MIN_EQUIVALENT_BOOTS,
    POWER,
    PRIMARY_SHARE,
    UNKNOWN_NOISE,
)

_TOO_LARGE_TO_PLAN = math.log(1000)  # nobody plans for a difference of this size


@dataclass(frozen=True)
class Evidence:
    """The evidence of one comparison of a family."""

    metric: Metric
    bounds: Bounds
    boots: Mapping[int, int] = field(default_factory=dict)  # block → boot
    first_replicates: Bounds | None = None  # by one trial of each side, where there are replicates
    noise: float | None = None  # the largest log ratio of two A/A trials in any block; None without a control
    control_difference: float = 0.0  # how far `bounds` are widened for a control that differs from itself, in logs
    share: float = 1.0  # fraction of ALPHA that this look may spend; 0 before the first look
    limited: bool = False  # the client or the link left an end open in every block
    capped: tuple[bool, bool] = (False, False)  # see Pairs
    excluded: VerdictReason | None = None  # why the comparison is not judged
    fewest: tuple[int, int] = (MIN_BLOCKS, MIN_EQUIVALENT_BLOCKS)  # units for a difference, for equivalence
    independent: bool = False  # the units are not a series in time

    @cached_property
    def has_boots(self) -> bool:
        """Return whether the units are boots: all blocks of a boot share what it drew (Kalibera and Jones 2013)."""
        return len({self.boots.get(block, 1) for block in self.bounds.mid.blocks}) > 1

    @property
    def fewest_units(self) -> tuple[int, int]:
        return (MIN_BOOTS, MIN_EQUIVALENT_BOOTS) if self.has_boots else self.fewest

    @property
    def unit_blocks(self) -> int:
        """Number of blocks in a unit, on average."""
        boots = len({self.boots.get(block, 1) for block in self.bounds.mid.blocks})
        return max(1, round(self.bounds.mid.n / boots)) if self.has_boots else 1

    def units(self, series: Series) -> Series:
        """The means of the series by boot if the units are boots, else the series itself."""
        if not self.has_boots:
            return series
        by_boot: dict[int, list[float]] = {}
        for block, value in zip(series.blocks, series.values, strict=True):
            by_boot.setdefault(self.boots.get(block, 1), []).append(value)
        return Series(tuple(by_boot), tuple(float(np.mean(values)) for values in by_boot.values()))

    def mids_by_boot(self) -> list[Series]:
        """The mids as one series per boot."""
        mid = self.bounds.mid
        boots = [self.boots.get(block, 1) for block in mid.blocks]
        rows = [(b, v, boot) for b, v, boot in zip(mid.blocks, mid.values, boots, strict=True)]
        return [
            Series(
                tuple(b for b, _, row_boot in rows if row_boot == boot),
                tuple(v for _, v, row_boot in rows if row_boot == boot),
            )
            for boot in dict.fromkeys(boots)
        ]


def weights_of(metrics: Sequence[Metric]) -> list[float]:
    """Holm's weights of the comparisons of a family, by their metrics: half of the 5% for primary metrics, half for all
    others; all of it for one kind if the other is missing.
    """
    primary = sum(metric.is_primary for metric in metrics)
    if primary in (0, len(metrics)):
        return [1 / len(metrics)] * len(metrics) if metrics else []
    others = (1 - PRIMARY_SHARE) / (len(metrics) - primary)
    return [PRIMARY_SHARE / primary if metric.is_primary else others for metric in metrics]


class Family:
    """Comparisons that are judged together. `margin`: of equivalence, a fraction, None where none applies.

    `weights`: Holm's, by default `weights_of` the metrics; `correlation`: the weights of the blocks' autocorrelation,
    by default estimated from these comparisons.
    """

    def __init__(
        self, evidence: Sequence[Evidence], margin: float | None, weights: Sequence[float] | None = None,
        correlation: Floats | None = None,
    ) -> None:  # fmt: skip
        self.evidence, self.margin = evidence, margin
        self.tested = [row for row in evidence if row.excluded is None]
        self.weights = weights or weights_of([row.metric for row in self.tested])
        if correlation is None:
            series = [each for e in self.tested if not e.independent for each in e.mids_by_boot()]
            correlation = autocorrelation(series) if series else INDEPENDENT
        self.correlation = correlation

    def decide(self) -> list[Kind]:
        """Only the kinds, of the comparisons that can be tested."""
        return [self._kind(index) for index in range(len(self.tested))]

    def judge(self) -> list[Judged]:
        """Judge every comparison of the family, in its order."""
        tested = iter(range(len(self.tested)))
        return [self._unjudged(each) if each.excluded else self._judged(next(tested)) for each in self.evidence]

    # ---- p-values, for all comparisons at once

    @cached_property
    def rho_weights(self) -> Floats:
        """The weights of RHOS of each comparison, shape (comparisons, RHOS)."""
        rows = [INDEPENDENT if e.has_boots or e.independent else self.correlation for e in self.tested]
        return np.array(rows).reshape(len(rows), len(RHOS))

    def _fit(self, name: str, *, first_replicates: bool = False) -> Fits:
        bounds = [(e.first_replicates or e.bounds) if first_replicates else e.bounds for e in self.tested]
        return fit([e.units(getattr(b, name)) for e, b in zip(self.tested, bounds, strict=True)])

    @cached_property
    def _low(self) -> Fits:
        return self._fit("low")

    @cached_property
    def _mid(self) -> Fits:
        return self._fit("mid")

    @cached_property
    def _high(self) -> Fits:
        return self._fit("high")

    @cached_property
    def skewed(self) -> list[bool]:
        """For each comparison, whether its blocks are skewed, so that its first replicates count as well."""
        return [e.first_replicates is not None and not e.has_boots and is_skewed(e.bounds.mid) for e in self.tested]

    @cached_property
    def _first(self) -> tuple[Fits, Fits]:
        """The lows and the highs of first replicates where the mids are skewed, else those of all."""
        if not any(self.skewed):
            return self._low, self._high
        bounds = [
            e.first_replicates if use and e.first_replicates else e.bounds
            for e, use in zip(self.tested, self.skewed, strict=True)
        ]
        return (
            fit([e.units(b.low) for e, b in zip(self.tested, bounds, strict=True)]),
            fit([e.units(b.high) for e, b in zip(self.tested, bounds, strict=True)]),
        )

    def _has_enough_units(self, fits: Fits, which: int) -> Floats:
        fewest = np.array([e.fewest_units[which] for e in self.tested])
        return np.asarray(np.isfinite(fits.error).all(axis=1) & (fits.freedom + 1 >= fewest))

    @cached_property
    def _p(self) -> Floats:
        low, high = self._low, self._high
        better, worse = above(low, self.rho_weights), below(high, self.rho_weights)
        if any(self.skewed):
            first_low, first_high = self._first
            better = np.maximum(better, above(first_low, self.rho_weights))
            worse = np.maximum(worse, below(first_high, self.rho_weights))
        better, worse = (
            np.where(self._has_enough_units(fits, 0), p, 1.0) for fits, p in ((low, better), (high, worse))
        )  # fmt: skip
        return np.asarray(np.minimum(1.0, 2 * np.minimum(better, worse)))

    @cached_property
    def _p_unequal(self) -> Floats:
        if self.margin is None:
            return np.ones(len(self.tested))
        limit = math.log1p(self.margin)
        outside = np.maximum(above(self._low, self.rho_weights, -limit), below(self._high, self.rho_weights, limit))
        has_enough = np.logical_and(self._has_enough_units(self._low, 1), self._has_enough_units(self._high, 1))
        return np.asarray(np.where(has_enough, np.minimum(1.0, 2 * outside), 1.0))

    @cached_property
    def difference(self) -> list[Adjusted]:
        """Each comparison's p of no difference, before and after Holm's correction."""
        return holm(self._p.tolist(), self.weights, [e.share for e in self.tested])

    @cached_property
    def equivalence(self) -> list[Adjusted]:
        """Each comparison's p of a difference beyond the margin, before and after Holm's correction."""
        return holm(self._p_unequal.tolist(), self.weights, [e.share for e in self.tested])

    @property
    def mean_correlation(self) -> float:
        """The expected ρ of successive blocks."""
        return float(self.correlation @ RHOS)

    # ---- decisions

    def _factor(self, evidence: Evidence, blocks: int) -> float:
        """The log ratio that every block must exceed; infinite with too few blocks."""
        noise = math.log(UNKNOWN_NOISE) if evidence.noise is None else abs(evidence.noise)
        if blocks < max(FEW_EVERY_BLOCKS, evidence.fewest[0]):
            return math.inf
        if blocks < ENOUGH_EVERY_BLOCKS:
            return math.log(FACTOR_OF_FEW) + 2 * noise
        doubled = math.log(2) if self.mean_correlation >= CORRELATED else 0.0
        return max(math.log(EVERY_BLOCK_FACTOR), 2 * noise) + doubled

    def _every_block(self, evidence: Evidence, *, as_measured: bool = False) -> int:
        """1 if the compared side is better beyond the factor in every block, whatever findings allow; −1 if worse;
        else 0. `as_measured`: leave the findings out.
        """
        bounds = evidence.bounds
        low, high = (bounds.mid, bounds.mid) if as_measured else (bounds.low, bounds.high)
        if not evidence.share:
            return 0
        if low.n and min(low.values) > self._factor(evidence, low.n):
            return 1
        return -1 if high.n and max(high.values) < -self._factor(evidence, high.n) else 0

    def _kind(self, index: int) -> Kind:
        if self.equivalence[index].rejects:
            return Kind.EQUIVALENT
        if self.difference[index].rejects:
            return Kind.FASTER if self._low.mean[index] @ self.rho_weights[index] > 0 else Kind.SLOWER
        direction = self._every_block(self.tested[index])
        return {0: Kind.UNDECIDED, 1: Kind.FASTER, -1: Kind.SLOWER}[direction]

    def _unjudged(self, evidence: Evidence) -> Judged:
        """What a comparison has without a judgement."""
        blocks = evidence.bounds.mid.blocks
        return Judged(
            kind=Kind.NOT_JUDGED,
            because=evidence.excluded,
            open_in_every_block=evidence.limited,
            widened=math.expm1(evidence.control_difference),
            blocks=len(blocks),
            boots=max(1, len({evidence.boots.get(block, 1) for block in blocks})),
            margin=self.margin or 0.0,
            noise_floor=None if evidence.noise is None else math.expm1(evidence.noise),
            correlation=self.mean_correlation,
            tests=Tests(family=len(self.tested)),
        )

    def _judged(self, index: int) -> Judged:
        evidence, kind = self.tested[index], self._kind(index)
        difference, equivalence = self.difference[index], self.equivalence[index]
        by_every_block = kind in (Kind.FASTER, Kind.SLOWER) and not difference.rejects
        adjusted = equivalence if kind is Kind.EQUIVALENT else difference
        limits = self.interval(index, adjusted.level, with_first_replicates=kind is not Kind.EQUIVALENT)
        interval = None if by_every_block else _finite_interval(limits, evidence.bounds, kind)
        bounds, sign = evidence.bounds, 1 if evidence.metric.higher_is_better else -1
        estimate = self._mean(self._mid, bounds.mid, index)
        open_low, open_high = (_open_ends(evidence.capped, limits) if interval else evidence.capped)[::sign]
        means = self._mean(self._low, bounds.low, index), self._mean(self._high, bounds.high, index)
        mean_low, mean_high = [None if log is None else math.exp(sign * log) for log in means][::sign]
        blocks_range, half_width = _blocks_range(bounds, kind), float(self.half_widths[index])
        has_margin = self.margin is not None
        judged = replace(
            self._unjudged(evidence),
            kind=kind,
            by_every_block=by_every_block,
            also_different=kind is Kind.EQUIVALENT and difference.rejects and _excludes_zero(interval),
            estimate=None if estimate is None else in_ratio(estimate, interval, sign),
            confidence=1 - adjusted.level if interval else None,
            blocks_range=in_ratio(estimate or 0.0, blocks_range, sign) if blocks_range else None,
            open_low=open_low,
            open_high=open_high,
            mean_low=mean_low,
            mean_high=mean_high,
            half_width=math.expm1(half_width) if math.isfinite(half_width) else None,
            standard_error=self._standard_error(index),
            rho_weights=tuple(self.rho_weights[index].tolist()),
            tests=Tests(
                len(self.tested),
                difference.p,
                difference.holm,
                equivalence.p if has_margin else None,
                equivalence.holm if has_margin else None,
                weight=self.weights[index],
                share=evidence.share,
            ),
        )
        if kind is not Kind.UNDECIDED:
            assert by_every_block or kind is Kind.EQUIVALENT or _excludes_zero(interval)
            return judged
        assert not _excludes_zero(interval)
        needed, detectable = self.needed_and_detectable(index)
        return replace(judged, because=self._because(index), blocks_needed=needed, detectable=detectable)

    def _mean(self, fits: Fits, series: Series, index: int) -> float | None:
        return float(fits.mean[index] @ self.rho_weights[index]) if series.n else None

    def interval(self, index: int, level: float, *, with_first_replicates: bool = True) -> Interval | None:
        """From the lower limit of a comparison's lows to the upper limit of its highs, in logs. An end is infinite if
        its series has too few units; None if both are. `with_first_replicates`: extend it to the limits of the first
        replicates where blocks are skewed.
        """
        if level <= 0:
            return None
        half, rho_weights = np.array([level / 2]), self.rho_weights[[index]]
        ends = []
        for fits, first_fits, limit, side in (
            (self._low, self._first[0], lower_limit, -1), (self._high, self._first[1], upper_limit, 1),
        ):  # fmt: skip
            rows = [_row(each, index) for each in ((fits, first_fits) if with_first_replicates else (fits,))]
            farthest = max(side * float(limit(each, rho_weights, half)[0]) for each in rows)
            ends.append(side * farthest if self._has_enough_units(fits, 0)[index] else side * math.inf)
        return None if np.isinf(ends).all() else Interval(*ends)

    @cached_property
    def estimates(self) -> Floats:
        """The mean advantage of each comparison as measured, in logs."""
        return np.asarray((self._mid.mean * self.rho_weights).sum(axis=1))

    @cached_property
    def half_widths(self) -> Floats:
        """Half the width of each comparison's 95% interval by sampling alone, in logs; infinite for a single unit."""
        level = np.full(len(self.tested), ALPHA / 2)
        low, high = (limit(self._mid, self.rho_weights, level) for limit in (lower_limit, upper_limit))
        return np.asarray((high - low) / 2)

    def _standard_error(self, index: int) -> float | None:
        """The geometric mean over ρ, because the largest ρ dominates the arithmetic one."""
        error = self._mid.error[index]
        return math.exp(float(np.log(error) @ self.rho_weights[index])) if np.isfinite(error).all() else None

    def _because(self, index: int) -> VerdictReason:
        evidence = self.tested[index]
        if not evidence.share:
            return VerdictReason.NO_LOOK_YET
        if max(evidence.units(s).n for s in (evidence.bounds.low, evidence.bounds.high)) < evidence.fewest_units[0]:
            return VerdictReason.FEW_BLOCKS
        if evidence.limited:
            return VerdictReason.LIMIT
        if evidence.bounds.low == evidence.bounds.mid == evidence.bounds.high:  # nothing widens them
            return VerdictReason.NOISE
        mid, rho_weights = _row(self._mid, index), self.rho_weights[[index]]
        p = 2 * min(float(above(mid, rho_weights)[0]), float(below(mid, rho_weights)[0]))
        limit = math.log1p(self.margin or 0.0)
        p_unequal = 2 * max(float(above(mid, rho_weights, -limit)[0]), float(below(mid, rho_weights, limit)[0]))
        is_settled = (
            p < self.difference[index].level or (self.margin and p_unequal < self.equivalence[index].level)
            or self._every_block(evidence, as_measured=True)
        )  # fmt: skip
        return VerdictReason.FINDINGS if is_settled else VerdictReason.NOISE

    def needed_and_detectable(self, index: int) -> tuple[int | None, float | None]:
        """(how many more blocks would show the margin, the least difference that these blocks could have shown, a
        fraction), both with 80% power. None if no number of blocks helps, or the difference is too large to plan for.
        """
        evidence, level = self.tested[index], self.difference[index].level or ALPHA
        mid, rho_weights = _row(self._mid, index), self.rho_weights[[index]]
        units = evidence.units(evidence.bounds.mid)
        fewest = max(evidence.fewest_units)
        if units.n < 2:
            return max(1, fewest - units.n) * evidence.unit_blocks, None
        sd = mid.sd[0]
        detectable_logs = [_least_shown(sd, units.n - 1, rho_weights, units.n, level)]
        if math.isfinite(factor := self._factor(evidence, evidence.bounds.mid.n)):
            spread = float(np.std(evidence.bounds.mid.values, ddof=1))
            detectable_logs.append(factor + spread * float(special.ndtri(POWER ** (1 / evidence.bounds.mid.n))))
        upper_sd = sd * math.sqrt((units.n - 1) / float(special.chdtri(units.n - 1, POWER)))
        margin_log = math.log1p(self.margin or MARGIN)
        low, high = max(units.n, fewest - 1), MAX_BLOCKS
        if low >= high:
            return None, _plannable_difference(min(detectable_logs))
        while high - low > 1:  # more blocks never show less
            middle = (low + high) // 2
            is_shown = _least_shown(upper_sd, middle - 1, rho_weights, middle, level) <= margin_log
            low, high = (low, middle) if is_shown else (middle, high)
        suffices = _least_shown(upper_sd, high - 1, rho_weights, high, level) <= margin_log
        needed = (high - units.n) * evidence.unit_blocks if suffices else None
        return needed, _plannable_difference(min(detectable_logs))


def _plannable_difference(log: float) -> float | None:
    """A difference as a fraction; None if it is too large to plan for."""
    return math.expm1(log) if log < _TOO_LARGE_TO_PLAN else None


def _row(fits: Fits, index: int) -> Fits:
    rows = [index]
    return Fits(
        fits.mean[rows], fits.error[rows], fits.information[rows], fits.likelihood[rows], fits.freedom[rows],
        fits.varies[rows],
    )  # fmt: skip


def _least_shown(sd: Floats, freedom: int, rho_weights: Floats, blocks: int, level: float) -> float:
    """The least difference that this number of blocks shows with 80% power at `level`."""
    return critical_distance(sd, freedom, rho_weights, blocks, level / 2) + critical_distance(
        sd, freedom, rho_weights, blocks, 1 - POWER
    )


def _finite_interval(limits: Interval | None, bounds: Bounds, kind: Kind) -> Interval | None:
    """The interval of a verdict. With an infinite end: None if undecided, else that end moves to the farthest block."""
    if limits is None or (kind is Kind.UNDECIDED and math.isinf(limits.high - limits.low)):
        return None
    low, high = limits.low, limits.high
    if math.isinf(low):
        low = min(high, *bounds.low.values, *bounds.mid.values)
    if math.isinf(high):
        high = max(low, *bounds.high.values, *bounds.mid.values)
    return Interval(low, high)


def _open_ends(capped: tuple[bool, bool], limits: Interval | None) -> tuple[bool, bool]:
    ends = (limits.low, limits.high) if limits else (0.0, 0.0)
    return capped[0] or math.isinf(ends[0]), capped[1] or math.isinf(ends[1])


def _excludes_zero(interval: Interval | None) -> bool:
    return interval is not None and (interval.low > 0 or interval.high < 0)


def _blocks_range(bounds: Bounds, kind: Kind) -> Interval | None:
    """The least and the largest advantage of a block; the end nearer to zero as far as findings allow."""
    if not bounds.mid.n:
        return None
    low, high = min(bounds.mid.values), max(bounds.mid.values)
    if kind is Kind.FASTER and bounds.low.n:
        low = min(bounds.low.values)
    if kind is Kind.SLOWER and bounds.high.n:
        high = max(bounds.high.values)
    return Interval(low, high)


def control_differences(controls: Sequence[Evidence]) -> list[float]:
    """How far each A/A control differs from itself for sure, in logs: the end of its interval nearer to zero, 0 if the
    interval contains zero. The controls of a family share the 5% evenly: with Holm's steps, the verdict on one control
    would make the width of another jump.
    """
    family, level = Family(controls, None), ALPHA / max(1, len(controls))
    intervals = [family.interval(index, level) if d.p < level else None for index, d in enumerate(family.difference)]
    return [min(abs(each.low), abs(each.high)) if each and _excludes_zero(each) else 0.0 for each in intervals]


def in_ratio(log: float, interval: Interval | None = None, sign: int = 1) -> Estimate:
    """An advantage with its interval as a ratio, compared ÷ baseline; `sign`: −1 where less is better."""
    if interval is None:
        return Estimate(math.exp(sign * log))
    low, high = sorted((math.exp(sign * interval.low), math.exp(sign * interval.high)))
    return Estimate(math.exp(sign * log), low, high)


def region(low: float, high: float, least: float, most: float) -> Region:
    """Location of an interval relative to `least` and `most`."""
    if low > most:
        return Region.ABOVE
    if high < least:
        return Region.BELOW
    return Region.WITHIN if least <= low and high <= most else Region.ACROSS

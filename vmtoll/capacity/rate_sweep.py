"""The capacity of one machine: the highest rate of a sweep up to which it meets an objective, and the step it fails."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import pandas as pd
from scipy import stats

from vmtoll.analysis.availability import availability, success_counts
from vmtoll.analysis.histograms import growth_within
from vmtoll.analysis.run import Run, frame_of
from vmtoll.capacity.estimate import End, Ends, Estimate, geometric
from vmtoll.capacity.isotonic import Pool, rising
from vmtoll.capacity.objective import Part, Slo
from vmtoll.model.finding import OPEN_LOOP_LIMITS, Code, Role
from vmtoll.model.hardware import Hardware
from vmtoll.model.load import NeighbourLoad
from vmtoll.model.tail import log_p99, may_count, p99_of_planned_us
from vmtoll.model.trial import Accelerator, Arm, Scenario, TrialRecord
from vmtoll.model.workload import SearchWorkload
from vmtoll.statistics.ranks import value_at
from vmtoll.statistics.student import half_width
from vmtoll.statistics.thresholds import ALPHA, CONFIDENCE, MIN_EQUIVALENT_BLOCKS


@dataclass(frozen=True)
class Step:
    """One offered rate on one arm. `p99s_us`: block → p99 of all planned requests, a failed one being slower than any
    other; `trials`: all but those invalid for other reasons than failed requests; `growing`: the number of trials whose
    response times grow.

    `rate_rps`: the lowest that any of its trials was offered. `limits`: the findings in more than half of the trials
    that mean that it is client-limited or link-limited.
    """

    rate_rps: float
    p99s_us: Mapping[int, float]
    requests: int
    available: Estimate | None
    limits: tuple[Code, ...]
    trials: pd.DataFrame
    growing: int = 0

    @property
    def blocks(self) -> int:
        """Number of blocks with a p99."""
        return len(self.p99s_us)

    @cached_property
    def p99_us(self) -> Estimate | None:
        """p99 from this step alone."""
        return geometric(pd.Series(self.p99s_us, dtype=float))

    def misses(self, slo: Slo, end: End, p99_us: Estimate | None = None, blocks: int | None = None) -> Part | None:
        """Return the part of the objective that is missed, judged by that end; None when all of it is met.

        `p99_us` and the number of its `blocks`: this step's own unless given. Below six blocks the p99 is never
        shown to be met.
        """
        if self.available is not None and 100 * self.available[end] < slo.availability_pct:
            return Part.AVAILABILITY
        if 2 * self.growing > len(self.trials):
            return Part.GROWTH
        p99_us = p99_us or self.p99_us
        if p99_us is None or self.available is None:
            return Part.NO_FIGURES
        if end is End.LOW and (self.blocks if blocks is None else blocks) < MIN_EQUIVALENT_BLOCKS:
            return Part.P99
        unfavourable = {End.LOW: End.HIGH, End.MID: End.MID, End.HIGH: End.LOW}[end]
        return Part.P99 if p99_us[unfavourable] > 1000 * slo.p99_ms else None

    def too_few(self, slo: Slo) -> bool:
        """Return whether there were too few requests to show the availability, although none failed."""
        flawless = self.blocks > 1 and self.available is not None and self.available.mid == 1
        return flawless and self.misses(slo, End.LOW) is Part.AVAILABILITY


@dataclass(frozen=True)
class RateSweep:
    """The rates offered to one server on one arm, lightest first, with one number of guests and one neighbour load.

    `search`: the workload, if a search chose the rates.
    """

    server: str
    workload: str
    tool: str
    arm: Arm
    accelerator: Accelerator
    hardware: Hardware
    guests: int | None
    neighbour: NeighbourLoad | None
    search: SearchWorkload | None
    steps: list[Step]

    @property
    def is_disturbed(self) -> bool:
        """Return whether a neighbour had a load."""
        return bool(self.neighbour and self.neighbour.value)

    @property
    def is_alone(self) -> bool:
        """Return whether one machine had the whole load, and no neighbour had any."""
        return self.guests in (None, 1) and not self.is_disturbed


def rate_sweeps(run: Run) -> list[RateSweep]:
    """The sweeps of two rates or more, and the searches, of tools that count percentiles from the intended send."""
    with_tails = {t.scenario.workload for t in run.trials if t.primary and t.primary.response_time_p99_us is not None}
    groups: dict[tuple[str, int | None, NeighbourLoad | None], list[Scenario]] = {}
    for scenario in run.scenarios:
        if scenario.load.is_open and scenario.workload in with_tails:
            load = scenario.load
            groups.setdefault((scenario.workload, load.guests, load.neighbour), []).append(scenario)
    sweeps = []
    for (name, guests, neighbour), scenarios in sorted(
        groups.items(), key=lambda group: (group[0][0], group[1][0].load.sort_key[2:])
    ):
        search = run.manifest.searches.get(name)
        if search is None and len({scenario.load for scenario in scenarios}) < 2:
            continue
        for server in sorted({scenario.server for scenario in scenarios}):
            for arm in (arm for arm in run.arms if not arm.is_control):
                of_server = [scenario for scenario in scenarios if scenario.server == server]
                measured = [step for scenario in of_server if (step := _step(run, run.trials_of(scenario, arm)))]
                if steps := sorted(measured, key=lambda step: step.rate_rps):
                    below = run.accelerator(arm), run.hardware(arm)
                    tool = run.tool(scenarios[0])
                    sweeps.append(RateSweep(server, name, tool, arm, *below, guests, neighbour, search, steps))
    return sweeps


def _p99_us(run: Run, record: TrialRecord) -> float | None:
    """The p99 of all planned requests, from the trial's histogram if requests failed."""
    primary = record.primary
    logged = run.latencies(record, Role.PRIMARY) if primary and primary.successful != primary.requests else None
    return p99_of_planned_us(record, partial(value_at, *logged) if logged else None)


def _step(run: Run, records: Sequence[TrialRecord]) -> Step | None:
    rates = [record.offered.offered_rps for record in records]
    if not (offered := [rate_rps for rate_rps in rates if rate_rps is not None]):
        return None
    used = [record for record in records if may_count(record)]
    p99s_us = {record.block: p99 for record in used if (p99 := _p99_us(run, record)) is not None}
    codes = Counter(code for record in used for code in record.limits(Role.PRIMARY) & OPEN_LOOP_LIMITS)
    trials = frame_of(used)
    return Step(
        rate_rps=min(offered), p99s_us=p99s_us, requests=int(trials["requests"].sum()), available=available(records),
        limits=tuple(sorted(code for code, count in codes.items() if 2 * count > len(trials))), trials=trials,
        growing=sum(bool(g and g.is_overload) for g in (growth_within(run.path, trial) for trial in used)),
    )  # fmt: skip


def available(records: Sequence[TrialRecord]) -> Estimate | None:
    """The share of requests that succeeded, with the widest of three intervals, because failures come in clusters.

    Wilson's allows for the number of requests, the t interval over trials for how much these differ. The third bounds
    the share of trials in which requests fail (Clopper and Pearson 1934), and takes each of them as bad as the worst.
    None of the three allows for failures that no trial has shown yet: see `unseen_share`.
    """
    pooled = availability(records, Role.PRIMARY)
    if pooled is None:
        return None
    shares = np.array(
        [successful / planned for successful, planned in success_counts(records, Role.PRIMARY) if planned]
    )
    half = half_width(float(shares.std(ddof=1)), len(shares)) if len(shares) > 1 else 1.0
    low, high = float(shares.mean()) - half, float(shares.mean()) + half
    struck = stats.binomtest(int((shares < 1).sum()), len(shares)).proportion_ci(CONFIDENCE, method="exact")
    by_trials = 1 - float(struck.high) * (1 - float(shares.min()))
    return Ends(max(0.0, min(pooled.low, low, by_trials)), pooled.share, min(1.0, max(pooled.high, high)))


def requests_to_show(availability_pct: float) -> int:
    """The fewest requests that, if none fails, have a 95% interval (Wilson) above an availability."""
    z, share = float(stats.norm.ppf((1 + CONFIDENCE) / 2)), availability_pct / 100
    return math.ceil(z**2 * share / (1 - share))


def unseen_share(trials: int) -> float:
    """The 95% upper limit of the share of trials with failures if none of these has any: about 3 ÷ trials."""
    return 1 - ALPHA ** (1 / trials) if trials else 1.0


@dataclass(frozen=True)
class UnitCapacity:
    """Capacity of one machine (or guest) with one server.

    `rates`: by each end, the highest rate of the sweep up to which the objective is met; None if the lowest rate misses
    it. `open_ends`: the ends at which even the highest rate meets it, so the true capacity is larger by an amount that
    was not measured. `at`: the step of the low rate, or the lowest step without one; `broken`: the step above
    the low rate, the lowest one without a low rate, None if the low end is open; `broken_by`: the part of the objective
    that it misses, by each end.
    """

    steps: list[Step]
    rates: Ends[float | None]
    open_ends: tuple[End, ...]
    at: Step
    broken: Step | None
    broken_by: Ends[Part | None]


def unit_capacity(steps: Sequence[Step], slo: Slo, *, searched: bool = False) -> UnitCapacity:
    """Go up until a step misses the objective for the first time; steps above it that meet it count as chance.

    The p99 of a step is pooled with those of neighboring steps that contradict its order (see `isotonic`); a step that
    is shown to miss by itself still ends the sweep. `searched`: the steps are those of a search, which tries rates far
    below its end less often.
    """
    limit_us = 1000 * slo.p99_ms
    pools = rising([{block: log_p99(p99, limit_us) for block, p99 in step.p99s_us.items()} for step in steps])
    judged = [_judged(step, pool, slo) for step, pool in zip(steps, pools, strict=True)]

    def met(end: End) -> int:
        return next((index for index, missed in enumerate(judged) if missed[end]), len(steps))

    counts = {end: met(end) for end in End}
    if searched:  # what is shown at a rate holds at lower ones too
        shown = (i for i, missed in enumerate(judged[: counts[End.MID]], start=1) if not missed.low)
        counts[End.LOW] = max(shown, default=0)
    low = counts[End.LOW]
    return UnitCapacity(
        steps=list(steps),
        rates=Ends.of(lambda end: steps[counts[end] - 1].rate_rps if counts[end] else None),
        open_ends=tuple(end for end in End if counts[end] == len(steps)),
        at=steps[max(low - 1, 0)],
        broken=steps[low] if low < len(steps) else None,
        broken_by=judged[low] if low < len(steps) else Ends(None, None, None),
    )


def _judged(step: Step, pool: Pool | None, slo: Slo) -> Ends[Part | None]:
    """Return the part of the objective that a step misses, by each end."""
    if pool is None or (missed := step.misses(slo, End.HIGH)):
        return Ends.of(lambda end: step.misses(slo, end) if pool is None else missed)
    p99_us = Ends(*(float(np.exp(log)) for log in pool.estimate.all))
    return Ends.of(lambda end: step.misses(slo, end, p99_us, pool.blocks))

"""The capacity of one machine: the highest rate of a sweep up to which it meets an objective, and the step it fails."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import pandas as pd
import scipy

from vmtoll.analysis.availability import success_counts
from vmtoll.analysis.histograms import growth_within
from vmtoll.analysis.run import Run, frame_of
from vmtoll.capacity.estimate import ByEnd, End, Estimate, geometric
from vmtoll.capacity.isotonic import Pool, pool_rising
from vmtoll.capacity.objective import Slo, SloPart
from vmtoll.model.finding import OPEN_LOOP_LIMITS, Code, Role
from vmtoll.model.hardware import Hardware
from vmtoll.model.load import NeighbourLoad
from vmtoll.model.tail import log_p99, may_count, p99_of_planned_us
from vmtoll.model.trial import Accelerator, Arm, MachineKind, Scenario, TrialRecord
from vmtoll.model.workload import SearchWorkload
from vmtoll.statistics.proportions import clopper_pearson, wilson
from vmtoll.statistics.ranks import value_at
from vmtoll.statistics.student import half_width
from vmtoll.statistics.thresholds import ALPHA, CONFIDENCE, MIN_EQUIVALENT_BLOCKS


@dataclass(frozen=True)
class RateStep:
    """One offered rate on one arm."""

    rate_rps: float  # the lowest that any of its trials was offered
    p99s_us: Mapping[int, float]  # block → p99 of all planned requests, a failed one being slower than any other
    requests: int
    available: Estimate | None
    # the findings in more than half of the trials that mean that it is client-limited or link-limited
    limits: tuple[Code, ...]
    trials: pd.DataFrame  # all but those invalid for other reasons than failed requests
    growing_trials: int = 0  # the number of trials whose response times grow

    @property
    def blocks(self) -> int:
        """Number of blocks with a p99."""
        return len(self.p99s_us)

    @cached_property
    def p99_us(self) -> Estimate | None:
        """p99 from this step alone."""
        return geometric(pd.Series(self.p99s_us, dtype=float))

    def misses(self, slo: Slo, end: End, p99_us: Estimate | None = None, blocks: int | None = None) -> SloPart | None:
        """Return the part of the objective that is missed, judged by that end; None when all of it is met.

        `p99_us` and the number of its `blocks`: this step's own unless given. Below six blocks the p99 is never
        shown to be met.
        """
        if self.available is not None and 100 * self.available[end] < slo.availability_pct:
            return SloPart.AVAILABILITY
        if 2 * self.growing_trials > len(self.trials):
            return SloPart.GROWTH
        p99_us = p99_us or self.p99_us
        if p99_us is None or self.available is None:
            return SloPart.NO_FIGURES
        if end is End.LOW and (self.blocks if blocks is None else blocks) < MIN_EQUIVALENT_BLOCKS:
            return SloPart.P99
        unfavourable = {End.LOW: End.HIGH, End.MID: End.MID, End.HIGH: End.LOW}[end]
        return SloPart.P99 if p99_us[unfavourable] > 1000 * slo.p99_ms else None

    def has_too_few_requests(self, slo: Slo) -> bool:
        """Return whether there were too few requests to show the availability, although none failed."""
        is_flawless = self.blocks > 1 and self.available is not None and self.available.mid == 1
        return is_flawless and self.misses(slo, End.LOW) is SloPart.AVAILABILITY


@dataclass(frozen=True)
class RateSweep:
    """The rates offered to one server on one arm, lightest first, with one number of guests and one neighbour load."""

    server: str
    workload: str
    tool: str
    arm: Arm
    kind: MachineKind
    accelerator: Accelerator
    hardware: Hardware
    guests: int | None
    neighbour: NeighbourLoad | None
    search: SearchWorkload | None  # the workload, if a search chose the rates
    steps: list[RateStep]

    @property
    def is_disturbed(self) -> bool:
        """Return whether a neighbour had a load."""
        return bool(self.neighbour and self.neighbour.value)

    @property
    def is_alone(self) -> bool:
        """Return whether one machine had the whole load, and no neighbour had any."""
        return self.guests in (None, 1) and not self.is_disturbed


def rate_sweeps(run: Run) -> Sequence[RateSweep]:
    """The sweeps of two rates or more, and the searches, of tools that count percentiles from the intended send.

    Derived once for a run: they read the histograms of all of its trials.
    """
    if "rate sweeps" not in run.derived:
        run.derived["rate sweeps"] = tuple(_rate_sweeps(run))
    sweeps: tuple[RateSweep, ...] = run.derived["rate sweeps"]
    return sweeps


def _rate_sweeps(run: Run) -> list[RateSweep]:
    tail_workloads = {
        t.scenario.workload for t in run.trials if t.primary and t.primary.response_time.p99_us is not None
    }
    groups: dict[tuple[str, int | None, NeighbourLoad | None], list[Scenario]] = {}
    for scenario in run.scenarios:
        if scenario.load.is_open and scenario.workload in tail_workloads:
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
                server_scenarios = [scenario for scenario in scenarios if scenario.server == server]
                steps_of_arm = [
                    step for scenario in server_scenarios if (step := _step(run, run.trials_of(scenario, arm)))
                ]
                if steps := sorted(steps_of_arm, key=lambda step: step.rate_rps):
                    platform = run.kind(arm), run.accelerator(arm), run.hardware(arm)
                    tool = run.tool(scenarios[0])
                    sweeps.append(RateSweep(server, name, tool, arm, *platform, guests, neighbour, search, steps))
    return sweeps


def _p99_us(run: Run, record: TrialRecord) -> float | None:
    """The p99 of all planned requests, from the trial's histogram if requests failed."""
    primary = record.primary
    logged = run.latencies(record, Role.PRIMARY) if primary and primary.successful != primary.requests else None
    return p99_of_planned_us(record, partial(value_at, *logged) if logged else None)


def _step(run: Run, records: Sequence[TrialRecord]) -> RateStep | None:
    rates = [record.offered.offered_rps for record in records]
    if not (offered_rates := [rate_rps for rate_rps in rates if rate_rps is not None]):
        return None
    used = [record for record in records if may_count(record)]
    p99s_us = {record.block: p99 for record in used if (p99 := _p99_us(run, record)) is not None}
    codes = Counter(code for record in used for code in record.limits(Role.PRIMARY) & OPEN_LOOP_LIMITS)
    trials = frame_of(used)
    return RateStep(
        rate_rps=min(offered_rates), p99s_us=p99s_us, requests=int(trials["requests"].sum()),
        available=success_share(records),
        limits=tuple(sorted(code for code, count in codes.items() if 2 * count > len(trials))), trials=trials,
        growing_trials=sum(bool(g and g.is_overload) for g in (growth_within(run.path, trial) for trial in used)),
    )  # fmt: skip


def success_share(records: Sequence[TrialRecord]) -> Estimate | None:
    """The share of requests that succeeded in these trials, see share_of; None without a count."""
    return share_of(success_counts(records, Role.PRIMARY))


def share_of(counts: Sequence[tuple[int, int]]) -> Estimate | None:
    """The share of requests that succeeded, with the widest of three intervals, because failures come in clusters.
    `counts`: requests that succeeded and requests planned, by trial; None without a request.

    Wilson's allows for the number of requests, the t interval over trials for how much these differ. The third bounds
    the share of trials in which requests fail (Clopper and Pearson 1934), and takes each of them as bad as the worst.
    None of the three allows for failures that no trial has shown yet: see `unseen_share`.
    """
    all_successful, all_planned = (sum(column) for column in zip(*counts, strict=True)) if counts else (0, 0)
    if not all_planned:
        return None
    pooled, share = wilson(all_successful, all_planned), all_successful / all_planned
    shares = np.array([successful / planned for successful, planned in counts if planned])
    half = half_width(float(shares.std(ddof=1)), len(shares)) if len(shares) > 1 else 1.0
    low, high = float(shares.mean()) - half, float(shares.mean()) + half
    by_trials = 1 - clopper_pearson(int((shares < 1).sum()), len(shares)).high * (1 - float(shares.min()))
    return ByEnd(max(0.0, min(pooled.low, low, by_trials)), share, min(1.0, max(pooled.high, high)))


def requests_to_show(availability_pct: float) -> int:
    """The fewest requests that, if none fails, have a 95% interval (Wilson) above an availability."""
    z, share = float(scipy.stats.norm.ppf((1 + CONFIDENCE) / 2)), availability_pct / 100
    return math.ceil(z**2 * share / (1 - share))


def unseen_share(trials: int) -> float:
    """The 95% upper limit of the share of trials with failures if none of these has any: about 3 ÷ trials."""
    return 1 - ALPHA ** (1 / trials) if trials else 1.0


@dataclass(frozen=True)
class UnitCapacity:
    """Capacity of one machine (or guest) with one server."""

    steps: list[RateStep]
    # by each end, the highest rate of the sweep up to which the objective is met; None if the lowest rate misses it
    rates: ByEnd[float | None]
    # the ends at which even the highest rate meets it, so the true capacity is larger by an amount that was not
    # measured
    open_ends: tuple[End, ...]
    low_step: RateStep  # the step of the low rate, or the lowest step without one
    # the step above the low rate, the lowest one without a low rate, None if the low end is open
    missed_step: RateStep | None
    missed_parts: ByEnd[SloPart | None]  # the part of the objective that it misses, by each end


def unit_capacity(steps: Sequence[RateStep], slo: Slo, *, searched: bool = False) -> UnitCapacity:
    """Go up until a step misses the objective for the first time; steps above it that meet it count as chance.

    The p99 of a step is pooled with those of neighboring steps that contradict its order (see `isotonic`); a step that
    is shown to miss by itself still ends the sweep. `searched`: the steps are those of a search, which tries rates far
    below its end less often.
    """
    limit_us = 1000 * slo.p99_ms
    pools = pool_rising([{block: log_p99(p99, limit_us) for block, p99 in step.p99s_us.items()} for step in steps])
    missed_parts = [_missed_parts(step, pool, slo) for step, pool in zip(steps, pools, strict=True)]

    def steps_met(end: End) -> int:
        return next((index for index, missed in enumerate(missed_parts) if missed[end]), len(steps))

    counts = {end: steps_met(end) for end in End}
    if searched:  # what is shown at a rate holds at lower ones too
        shown_counts = (i for i, missed in enumerate(missed_parts[: counts[End.MID]], start=1) if not missed.low)
        counts[End.LOW] = max(shown_counts, default=0)
    low = counts[End.LOW]
    return UnitCapacity(
        steps=list(steps),
        rates=ByEnd.of(lambda end: steps[counts[end] - 1].rate_rps if counts[end] else None),
        open_ends=tuple(end for end in End if counts[end] == len(steps)),
        low_step=steps[max(low - 1, 0)],
        missed_step=steps[low] if low < len(steps) else None,
        missed_parts=missed_parts[low] if low < len(steps) else ByEnd(None, None, None),
    )


def _missed_parts(step: RateStep, pool: Pool | None, slo: Slo) -> ByEnd[SloPart | None]:
    """Return the part of the objective that a step misses, by each end."""
    if pool is None or (missed := step.misses(slo, End.HIGH)):
        return ByEnd.of(lambda end: step.misses(slo, end) if pool is None else missed)
    p99_us = ByEnd(*(float(np.exp(log)) for log in pool.estimate.all))
    return ByEnd.of(lambda end: step.misses(slo, end, p99_us, pool.blocks))

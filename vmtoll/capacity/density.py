"""How many guests a host carries, each with its own load: the most of them whose objective holds on every guest.

In each trial the worst guest counts: the one whose p99 is furthest above its deadline, or nearest below it. Over the
number of guests that margin does not fall, so numbers whose means contradict the order are pooled (see `isotonic`). A
number of guests is carried by an end of the interval if that end of its pool, and of those of all smaller numbers, is
within the deadline, and enough of every guest's requests succeed. With one host at hand the interval is over blocks: it
is of this host.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from vmtoll.analysis.histograms import growth_within
from vmtoll.analysis.run import Run
from vmtoll.capacity.estimate import ByEnd, End, Estimate
from vmtoll.capacity.isotonic import Pool, pool_rising
from vmtoll.capacity.rate_sweep import share_of
from vmtoll.model.density import HostFigures
from vmtoll.model.finding import FINDINGS, OPEN_LOOP_LIMITS, Code, Role, Validity
from vmtoll.model.hardware import Hardware
from vmtoll.model.tail import margin_of, may_count
from vmtoll.model.trial import Accelerator, TrialRecord, is_shape_only
from vmtoll.statistics.student import mean_of
from vmtoll.statistics.thresholds import MIN_EQUIVALENT_BLOCKS


@dataclass(frozen=True)
class GuestCount:
    """One number of guests."""

    guests: int
    worst: Mapping[int, float]  # block → log(p99 / deadline) of the worst guest, whose p99 counts all planned requests
    ratio: Estimate  # the mean of exp(worst) with its interval, from this number alone
    available: Estimate  # of the guest with the fewest successes (see `rate_sweep.share_of`)
    kept: int  # trials in which every guest kept its objective
    trials: int
    host: HostFigures  # means
    # findings in more than half of the trials that say that the client or the link was the limit
    limits: tuple[Code, ...] = ()
    growing_trials: int = 0  # those whose response times grow, so that their p99 depends on how long they last

    @property
    def vcpus_per_cpu(self) -> float | None:
        return self.host.vcpus / self.host.cpus if self.host.vcpus and self.host.cpus else None


@dataclass(frozen=True)
class CarriedGuests:
    """One environment."""

    environment: str
    accelerator: Accelerator
    hardware: Hardware
    availability_pct: float
    guests: ByEnd[int]  # by each end, the most guests that the host carries, 0 for none
    open_ends: tuple[End, ...]  # those at which even `at_most` are carried, so that there may be room for more
    counts: tuple[GuestCount, ...]  # fewest guests first
    # the numbers of guests without a trial that counts → the findings that say why, most frequent first
    failed: Mapping[int, tuple[Code, ...]] = field(default_factory=dict)

    @property
    def missed(self) -> GuestCount | None:
        """The first number above those that are shown to be carried."""
        return next((count for count in self.counts if count.guests > self.guests.low), None)


def carried_guests(run: Run) -> list[CarriedGuests]:
    """One answer for each environment of an experiment with `density`; empty for another, and without trials."""
    density = run.manifest.experiment.density
    if density is None:
        return []
    answers = []
    for arm in run.arms:
        trials: dict[int, list[TrialRecord]] = {}
        others: dict[int, list[TrialRecord]] = {}
        for record in (record for record in run.trials if record.arm == arm):
            counted = trials if may_count(record) and margin_of(record) is not None else others
            counted.setdefault(record.scenario.load.guests or 1, []).append(record)
        counts = tuple(
            replace(count_of(guests, records, density.availability_pct), growing_trials=_growing(run, records))
            for guests, records in sorted(trials.items())
        )
        if counts:
            carried, open_ends = most_carried(counts, density.availability_pct)
            answers.append(
                CarriedGuests(
                    environment=arm.environment, accelerator=run.accelerator(arm), hardware=run.hardware(arm),
                    availability_pct=density.availability_pct, guests=carried, open_ends=open_ends, counts=counts,
                    failed={guests: _whys(others[guests]) for guests in sorted(others.keys() - trials.keys())},
                )
            )  # fmt: skip
    return answers


def _whys(records: Sequence[TrialRecord]) -> tuple[Code, ...]:
    codes = Counter(code for record in records for code in record.codes if FINDINGS[code].severity is Validity.INVALID)
    return tuple(code for code, _ in codes.most_common())


def hosts_for(guests: int, carried: CarriedGuests, spare: int = 1) -> ByEnd[int | None] | None:
    """The hosts for this many such guests, `spare` included: None by an end that carries none. Nothing follows from an
    emulated guest or host.
    """
    if is_shape_only(carried.accelerator, carried.hardware):
        return None
    return ByEnd.of(lambda end: -(-guests // carried.guests[end]) + spare if carried.guests[end] else None)


def most_carried(counts: Sequence[GuestCount], availability_pct: float) -> tuple[ByEnd[int], tuple[End, ...]]:
    """The most guests that are carried by each end, and the ends at which all numbers are; fewest guests first."""
    pools = pool_rising([count.worst for count in counts])

    def carried(end: End) -> list[int]:
        numbers = []
        for count, pool in zip(counts, pools, strict=True):
            if not _holds(count, pool, end, availability_pct):
                break
            numbers.append(count.guests)
        return numbers

    by_end = ByEnd.of(carried)
    open_ends = tuple(end for end in End if len(by_end[end]) == len(counts))
    return ByEnd.of(lambda end: max(by_end[end], default=0)), open_ends


def _holds(count: GuestCount, pool: Pool | None, end: End, availability_pct: float) -> bool:
    """Return whether a number of guests keeps its objective, judged by that end."""
    if (
        pool is None
        or 2 * count.growing_trials > count.trials
        or (end is End.LOW and pool.blocks < MIN_EQUIVALENT_BLOCKS)
    ):
        return False
    unfavourable = {End.LOW: End.HIGH, End.MID: End.MID, End.HIGH: End.LOW}[end]
    return pool.estimate[unfavourable] <= 0 and 100 * count.available[end] >= availability_pct


def count_of(guests: int, records: Sequence[TrialRecord], availability_pct: float) -> GuestCount:
    """One number of guests, from its trials, which have a margin."""
    worst = {record.block: margin for record in records if (margin := margin_of(record)) is not None}
    mean = mean_of(list(worst.values()))
    low, high = (-math.inf, math.inf) if mean.t is None else (mean.t.low, mean.t.high)
    codes = [code for record in records for code in record.limits(Role.PRIMARY) & OPEN_LOOP_LIMITS]
    return GuestCount(
        guests=guests,
        worst=worst,
        ratio=ByEnd(math.exp(low), math.exp(mean.mean), math.exp(high)),
        available=min(_available(records), key=lambda share: share.low),
        kept=sum(_keeps(record, availability_pct) for record in records),
        trials=len(records),
        host=_mean_host(records),
        limits=tuple(code for code in sorted(set(codes)) if 2 * codes.count(code) > len(records)),
    )


def _growing(run: Run, records: Sequence[TrialRecord]) -> int:
    return sum(bool(growth and growth.is_overload) for record in records if (growth := growth_within(run.path, record)))


def _keeps(record: TrialRecord, availability_pct: float) -> bool:
    margin, tiles = margin_of(record), record.density.tiles if record.density else ()
    is_available = all(100 * tile.successful >= availability_pct * tile.requests for tile in tiles)
    return margin is not None and margin <= 0 and is_available


def _available(records: Sequence[TrialRecord]) -> list[Estimate]:
    """The share of each guest's requests that succeeded, with its interval; a load that timed out has no count."""
    counts: dict[str, list[tuple[int, int]]] = {}
    for record in records:
        for tile in record.density.tiles if record.density else ():
            counts.setdefault(tile.guest, []).append((tile.successful, tile.requests))
    return [share for guest in counts.values() if (share := share_of(guest))] or [ByEnd(0.0, 0.0, 1.0)]


def _mean_host(records: Sequence[TrialRecord]) -> HostFigures:
    """The means of the host's figures over trials."""
    hosts = [record.density.host for record in records if record.density]

    def figures(name: str) -> Iterator[float]:
        return (value for host in hosts if (value := getattr(host, name)) is not None)

    means = {each.name: list(figures(each.name)) for each in fields(HostFigures)}
    known: dict[str, Any] = {name: float(np.mean(values)) for name, values in means.items() if values}
    known |= {name: round(known[name]) for name in ("vcpus", "cpus") if name in known}
    if "ksm" in known:
        known["ksm"] = known["ksm"] > 0.5  # in most trials
    return HostFigures(**known)

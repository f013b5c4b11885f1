"""The blocks that a run measures: a fixed number or, with `until`, as many as its comparisons need."""

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby, pairwise
from pathlib import Path
from statistics import median

from vmtoll.machines.session import Session
from vmtoll.model.errors import ResultsError
from vmtoll.model.event import Listener, LookEnded
from vmtoll.model.run import Manifest
from vmtoll.model.tail import margin_of
from vmtoll.model.trial import Arm, Scenario, TrialRecord, TrialSpec, last_attempts
from vmtoll.model.until import ComparisonState, Look, LookComparison, Stop, Until, look_share, next_look
from vmtoll.runner.plan import block_of

# Judges the comparisons of a run so far, from its folder and its looks, the one that is due included.
Judge = Callable[[Path, Sequence[Look]], Sequence[LookComparison]]

# Blocks in which a number of guests must have missed its objective before larger numbers are left out.
BREAK_BLOCKS = 3


class Blocks(ABC):
    """The blocks of a run, in order; a block ends when the caller takes the next one."""

    # `scheduled`, `total`: the number of trials and of blocks in the run, as far as known
    scheduled: int
    total: int

    @abstractmethod
    def __iter__(self) -> Iterator[Sequence[TrialSpec]]:
        """The trials of each block."""

    @abstractmethod
    def left_s(self, number: int, done: int) -> float:
        """Expected seconds from the start of trial `number` to the run's end; this process has done `done` trials."""


class FixedBlocks(Blocks):
    """The number of blocks that the experiment fixes."""

    def __init__(self, trials: Sequence[TrialSpec], expected_s: float) -> None:
        self._trials, self._expected_s = trials, expected_s
        self._ends_s: dict[int, float] = {}  # trials done → time at which they were done
        self.scheduled, self.total = len(trials), len({trial.block for trial in trials})

    def __iter__(self) -> Iterator[Sequence[TrialSpec]]:
        for _, trials in groupby(self._trials, lambda trial: trial.block):
            yield list(trials)

    def left_s(self, number: int, done: int) -> float:
        self._ends_s.setdefault(done, time.monotonic())
        durations_s = [end_s - begin_s for begin_s, end_s in pairwise(self._ends_s.values())]
        # The median, because the first trials include one-time work such as measuring the capacity.
        each_s = median(durations_s) if durations_s else self._expected_s / self.scheduled
        return each_s * (self.scheduled - number + 1)


class BlocksToBreak(FixedBlocks):
    """The number of blocks that the experiment fixes, for numbers of guests: those far beyond the break, by the blocks
    before, are measured no more. The same records leave out the same trials, so a resumed run goes on alike.
    """

    def __init__(self, session: Session, trials: Sequence[TrialSpec], expected_s: float) -> None:
        super().__init__(trials, expected_s)
        self._store = session.store

    def __iter__(self) -> Iterator[Sequence[TrialSpec]]:
        for trials in super().__iter__():
            breaks = breaks_before(trials[0].block, self._store.records())
            kept = [trial for trial in trials if guests_of(trial) <= breaks.get(trial.arm, math.inf) + 1]
            self.scheduled -= len(trials) - len(kept)
            if kept:
                yield kept
        if manifest := self._store.manifest():
            count = len(last_attempts(self._store.records()))
            self._store.write_manifest(manifest.model_copy(update={"trials_planned": count}))


def guests_of(trial: TrialSpec | TrialRecord) -> int:
    """The number of guests in a trial."""
    return trial.scenario.load.guests or 1


def breaks_before(block: int, records: Sequence[TrialRecord]) -> dict[Arm, int]:
    """Arm → the fewest guests that missed their objective in each of the blocks before this one, and in at least three.

    The break and one more guest are measured in all blocks, so that three slow trials by chance decide nothing.
    """
    margins: dict[tuple[Arm, int], list[float]] = {}
    for record in last_attempts(list(records)):
        margin = margin_of(record)
        if record.block < block and margin is not None:
            margins.setdefault((record.arm, guests_of(record)), []).append(margin)
    broken = [key for key, values in margins.items() if len(values) >= BREAK_BLOCKS and min(values) > 0]
    return {arm: min(guests for other, guests in broken if other == arm) for arm, _ in broken}


class BlocksUntil(Blocks):
    """Blocks until no comparison is open or the time is spent. A scenario without open comparisons is measured no more.

    run.json keeps the looks, so that a resumed run continues from them.
    """

    def __init__(self, session: Session, until: Until, judge: Judge, tell: Listener) -> None:
        self._session, self._until, self._judge, self._tell = session, until, judge, tell
        self._begin_s, self._earlier_s = time.monotonic(), self._manifest().measured_s or 0.0
        self.total = self._next_look(0)
        self.scheduled = sum(len(self._trials(block)) for block in range(1, self.total + 1))

    def __iter__(self) -> Iterator[Sequence[TrialSpec]]:
        self.scheduled, block = 0, 0
        self._schedule_until(0, self._next_look(0))
        if self._manifest().stopped:
            self._trim(self._manifest().looks[-1].blocks)
        while not self._manifest().stopped:
            block += 1
            begin_s = self.measured_s
            yield self._trials(block)
            self._update_manifest(measured_s=self.measured_s)
            self._look_after(block, self.measured_s - begin_s)

    def left_s(self, number: int, done: int) -> float:
        return max(0.0, self._until.at_most_s - self.measured_s)

    @property
    def measured_s(self) -> float:
        """Seconds spent on blocks by all processes that have measured this run."""
        return self._earlier_s + time.monotonic() - self._begin_s

    def _manifest(self) -> Manifest:
        manifest = self._session.store.manifest()
        if manifest is None:
            raise ResultsError(
                f"{self._session.store.manifest_file} was deleted during the run; trials.jsonl keeps the trials"
            )
        return manifest

    def _update_manifest(self, **update: object) -> None:
        self._session.store.write_manifest(self._manifest().model_copy(update=update))

    def _next_look(self, blocks: int) -> int:
        experiment = self._session.resolved.experiment
        return next_look(blocks, experiment.blocks, experiment.boot_blocks)

    def _trials(self, block: int) -> list[TrialSpec]:
        """The trials of a block, of only the scenarios that the last look before it left open."""
        trials = block_of(self._session.resolved, self._session.order_seed, block)
        earlier_looks = [look for look in self._manifest().looks if look.blocks < block]
        if not earlier_looks:
            return trials
        open_scenarios = scenarios_of(earlier_looks[-1])
        return [trial for trial in trials if trial.scenario in open_scenarios]

    def _schedule_until(self, after: int, last: int) -> None:
        self.scheduled += sum(len(self._trials(block)) for block in range(after + 1, last + 1))
        self.total = last

    def _look_after(self, block: int, block_s: float) -> None:
        """Record the look after this block if it is due and not recorded yet; stop the run if the look says so."""
        looks = self._manifest().looks
        if looks and block <= looks[-1].blocks:
            if any(look.blocks == block for look in looks):
                self._schedule_until(block, self._next_look(block))
            return
        measured_s, first = self.measured_s, self._next_look(0)
        is_time_up = block >= first and measured_s + block_s > self._until.at_most_s
        if not is_time_up and block != self._next_look(block - 1):
            return
        look = Look(
            blocks=block,
            measured_s=round(measured_s, 3),
            share=look_share(looks, measured_s / self._until.at_most_s, last=is_time_up),
        )
        look = with_counts(look, self._judge(self._session.store.run_dir, [*looks, look]))
        stopped = _stop_reason(look, is_time_up=is_time_up)
        self._update_manifest(looks=[*looks, look], stopped=stopped)
        if not stopped:
            self._schedule_until(block, self._next_look(block))
        else:
            self._trim(block)
        self._update_manifest(trials_planned=self.scheduled)
        self._tell(LookEnded(look, None if stopped else self._next_look(block), stopped))

    def _trim(self, block: int) -> None:
        """Take the blocks after this one out of the plan: the run has stopped."""
        self.scheduled = sum(len(self._trials(number)) for number in range(1, block + 1))
        self.total = block


def scenarios_of(look: Look) -> frozenset[Scenario]:
    """Scenarios that the open comparisons of a look need."""
    return frozenset(scenario for compared in look.open for scenario in compared.scenarios)


def with_counts(look: Look, compared: Sequence[LookComparison]) -> Look:
    """The look with the numbers of its comparisons by standing, and the open ones."""
    count = {standing: sum(comparison.standing is standing for comparison in compared) for standing in ComparisonState}
    update = {
        "decided": count[ComparisonState.DECIDED],
        "narrow": count[ComparisonState.NARROW],
        "refused": count[ComparisonState.REFUSED],
        "open": [comparison for comparison in compared if comparison.standing is ComparisonState.OPEN],
    }
    return look.model_copy(update=update)


def _stop_reason(look: Look, *, is_time_up: bool) -> Stop | None:
    if scenarios_of(look):
        return Stop.TIME if is_time_up else None
    return Stop.NARROW if look.narrow else Stop.DECIDED

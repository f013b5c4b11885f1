"""The runs of one experiment on one test bed, night after night: where a figure's level changed, and what else did."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import scipy

from vmtoll.analysis.equality import scenario_facts
from vmtoll.analysis.run import Run
from vmtoll.model.agreement import RunDifference
from vmtoll.model.facts import Facts, flatten, kvm_hosts
from vmtoll.model.finding import Role, Validity
from vmtoll.model.metric import METRICS, Metric, loop_of
from vmtoll.model.trial import Arm, Scenario
from vmtoll.model.verdict import Estimate
from vmtoll.statistics.change_points import FEWEST_NIGHTS, change_points
from vmtoll.statistics.thresholds import CONFIDENCE

MOST_NIGHTS = 120  # further back, a test bed is another one


@dataclass(frozen=True)
class Night:
    """One run."""

    run: str
    started_at: str
    figure: float  # the median over its trials


@dataclass(frozen=True)
class LevelChange:
    """A new level of a figure."""

    first: int  # number of its first night, from 0
    ratio: Estimate  # it ÷ the level before, with its 95% interval
    is_worse: bool  # the new level is the worse one
    facts: tuple[RunDifference, ...] = ()  # what else differs between the two nights around the change

    @property
    def size(self) -> float:
        """How far the levels are apart, as a fraction of the one before."""
        return abs(self.ratio.value - 1)

    def is_better(self, least: float) -> bool:
        """Return whether the new level is better, by at least this fraction of the one before."""
        return not self.is_worse and self.size >= least


@dataclass(frozen=True)
class FigureHistory:
    """The nights of one figure of one environment under one load, the oldest first, and the changes of its level."""

    scenario: Scenario
    arm: Arm
    metric: Metric
    nights: tuple[Night, ...]
    changes: tuple[LevelChange, ...] = ()
    # the newest run has no such figure, because its trials failed, or the client or the link limited them
    is_missing: bool = False

    @property
    def needed(self) -> int:
        """How many more nights it needs to be judged."""
        return max(0, FEWEST_NIGHTS - len(self.nights))

    def steps(self, least: float) -> tuple[LevelChange, ...]:
        """The changes since the level last became better by at least this fraction, the oldest first."""
        better = [number for number, change in enumerate(self.changes, 1) if change.is_better(least)]
        return self.changes[max(better, default=0) :]

    def ratio(self, least: float) -> float:
        """The present level ÷ that before these steps."""
        return math.prod(change.ratio.value for change in self.steps(least))

    def is_worse(self, least: float) -> bool:
        """Return whether the present level is worse than the one before these steps, by at least this fraction of it.
        A small change after a large one, or many small ones, are no way back.
        """
        ratio = self.ratio(least)
        return ratio != 1 and (ratio < 1) == self.metric.higher_is_better and abs(ratio - 1) >= least


def histories(runs: Sequence[Run], metrics: Sequence[str] = ()) -> list[FigureHistory]:
    """The figures of the newest run through all of these, the oldest first; by default the main one of each loop.

    A figure's history begins anew where the experiment, the lab or the platform changed: what was before is another
    question. Searches and A/A controls are left out.
    """
    found = [
        (scenario, arm, metric, _nights(runs, scenario, arm, metric))
        for scenario in runs[-1].compared_scenarios
        for arm in runs[-1].arms
        if not arm.is_control
        for metric in METRICS.values()
        if (metric.name in metrics if metrics else metric.is_primary) and loop_of(scenario.load) in metric.loops
    ]
    among = max(1, sum(len(nights) >= FEWEST_NIGHTS for *_, nights in found))
    by_name = {run.path.name: run for run in runs}
    return [
        FigureHistory(
            scenario, arm, metric, nights, tuple(_changes(nights, metric, among, by_name, arm)),
            is_missing=nights[-1].run != runs[-1].path.name,
        )
        for scenario, arm, metric, nights in found
        if nights
    ]  # fmt: skip


def _nights(runs: Sequence[Run], scenario: Scenario, arm: Arm, metric: Metric) -> tuple[Night, ...]:
    premises = _premises(runs[-1], scenario, arm)
    nights: list[Night] = []
    for run in reversed(runs[-MOST_NIGHTS:]):
        if scenario not in run.scenarios or arm not in run.arms:
            continue
        if _premises(run, scenario, arm) != premises:
            break
        values = [
            value
            for trial in run.trials_of(scenario, arm)
            if trial.validity is not Validity.INVALID and not metric.is_limited(trial, Role.PRIMARY)
            if (value := metric.value(trial, Role.PRIMARY))
        ]
        if values:
            nights.append(Night(run.path.name, run.manifest.started_at, float(np.median(values))))
    return tuple(reversed(nights))


def _premises(run: Run, scenario: Scenario, arm: Arm) -> Facts:
    """What makes it another question when it differs; a load tool's version only changes the answer."""
    facts = scenario_facts(run, scenario, arm)
    return {name: value for name, value in facts.items() if not name.startswith("version of ")}


def _changes(
    nights: Sequence[Night], metric: Metric, among: int, runs: dict[str, Run], arm: Arm
) -> Iterator[LevelChange]:
    figures = [night.figure for night in nights]
    firsts = change_points(figures, among)
    ends = [0, *firsts, len(figures)]
    for before, first, end in zip(ends, ends[1:], ends[2:], strict=False):
        ratio = _ratio(figures[before:first], figures[first:end])
        facts = _differences(runs[nights[first - 1].run], runs[nights[first].run], arm)
        yield LevelChange(first, ratio, (ratio.value < 1) == metric.higher_is_better, facts)


def _ratio(before: Sequence[float], after: Sequence[float]) -> Estimate:
    """after ÷ before, of geometric means, with Welch's interval; a bit narrow, because the search chose the night."""
    test = scipy.stats.ttest_ind(np.log(after), np.log(before), equal_var=False)
    low, high = test.confidence_interval(CONFIDENCE)
    return Estimate(
        float(np.exp(np.mean(np.log(after)) - np.mean(np.log(before)))), float(np.exp(low)), float(np.exp(high))
    )


def _differences(before: Run, after: Run, arm: Arm) -> tuple[RunDifference, ...]:
    first, second = _facts(before, arm), _facts(after, arm)
    names = sorted(name for name in first.keys() | second.keys() if first.get(name) != second.get(name))
    return tuple(RunDifference(name, first.get(name), second.get(name)) for name in names)


def _facts(run: Run, arm: Arm) -> dict[str, str]:
    """The facts of an arm's machine, of its KVM host, and the versions of vmtoll and its tools."""
    facts = dict(flatten(run.machine(arm.environment).recorded))
    for name, host in kvm_hosts(run.hosts).items():
        facts |= {f"{name}: {fact}": value for fact, value in flatten(host.recorded)}
        facts |= {f"{name}: QEMU": str(host.qemu_version), f"{name}: libvirt": str(host.libvirt_version)}
    return facts | {f"version of {tool}": str(version) for tool, version in run.manifest.versions.items()}

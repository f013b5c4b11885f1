"""Measure a sitting: a run whose arms are candidates on one machine, until its comparisons answer."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vmtoll.analysis.anchors import answer_of, is_narrow, judge_sitting
from vmtoll.analysis.run import Run, load_run
from vmtoll.bisect.builds import BuildError, Builds
from vmtoll.bisect.search import step
from vmtoll.bisect.store import BisectionStore, slug
from vmtoll.model.bisection import BAD, GOOD, Contrast, Sitting, SittingAnswer, SittingResult, Task
from vmtoll.model.errors import UserError, VmtollError
from vmtoll.model.event import Event, Listener, TrialEnded
from vmtoll.model.finding import Code, Validity
from vmtoll.model.metric import METRICS, Metric, loop_of
from vmtoll.model.trial import Arm, Scenario, TrialRecord
from vmtoll.model.until import ComparisonState, Look, LookComparison, Until
from vmtoll.model.verdict import Kind
from vmtoll.model.workload import SearchWorkload
from vmtoll.runner.run import Plan, on_machines, plan
from vmtoll.runner.run import run as measure
from vmtoll.runs.folder import runs_of
from vmtoll.spec.catalog import Registry
from vmtoll.spec.documents import drafted, write
from vmtoll.spec.experiment import load


class ArmFailedError(VmtollError):
    """A candidate cannot be applied, or its server does not start."""

    def __init__(self, arm: str, why: str) -> None:
        super().__init__(why)
        self.arm = arm


@dataclass(frozen=True)
class Design:
    """How each sitting of a bisection measures."""

    keys: Mapping[str, Any]  # of its experiments
    change: Mapping[str, Any]  # keys of each arm's change but `apply`
    apply: str  # the command, with its placeholders
    metric: Metric | None  # None for the main one of the load
    until: Until
    registry: Registry


def experiment_of(design: Design, sitting: Sitting, builds: Builds) -> dict[str, Any]:
    """The keys of a sitting's experiment."""
    changes = {
        arm: {**design.change, "apply": builds.filled(design.apply, candidate)}
        for arm, candidate in sitting.arms.items()
    }
    question = f"is {sitting.candidate} good or bad?" if sitting.task is Task.STEP else "which side is worse?"
    return {
        **design.keys, "question": question, "environments": list(changes), "baseline": GOOD, "changes": changes,
        "noise_floor": None,
    }  # fmt: skip


def preview(
    design: Design, store: BisectionStore, builds: Builds, inventory: Path | None, limit: str | None
) -> tuple[Plan, Metric]:
    """The plan of a sitting with a candidate, read from a draft, and the metric that decides. Raises UserError unless
    there is a single one.
    """
    sitting = step(store.bisection, store.bisection.candidates[1])
    with drafted(experiment_of(design, sitting, builds), "bisect.yml") as file:
        draft = plan(load(file, design.registry), inventory, limit, until=design.until)
    scenarios = {trial.scenario for trial in draft.trials}
    if len(scenarios) != 1 or any(isinstance(w, SearchWorkload) for w in draft.resolved.workloads.values()):
        raise UserError(
            f"--workload {design.keys['workloads'][0]}: has {len(scenarios)} loads, or searches for its rate; give a "
            "workload with one load"
        )
    return draft, metric_of(design, scenarios.pop())


def metric_of(design: Design, scenario: Scenario) -> Metric:
    """The metric that decides: the one that was asked for, else the main one of the load. Raises UserError."""
    loop = loop_of(scenario.load)
    if design.metric is None:
        return next(metric for metric in METRICS.values() if metric.is_primary and loop in metric.loops)
    if loop not in design.metric.loops:
        raise UserError(f"--metric {design.metric.name}: {scenario.workload} does not measure it; give another")
    return design.metric


# An arm that has never served and ends this many trials with one of these codes is broken.
_BROKEN_AFTER = {Code.SERVER_FAILED: 1, Code.WRONG_BODY: 2, Code.FAILED_REQUESTS: 2, Code.TIMED_OUT: 2}


class FailureWatch:
    """Listener that ends a sitting when an arm has never served and fails for good. Raises ArmFailedError."""

    def __init__(self, listener: Listener) -> None:
        self._listener, self._served, self._failed = listener, set[str](), Counter[tuple[str, Code]]()

    def __call__(self, event: Event) -> None:
        self._listener(event)
        if isinstance(event, TrialEnded) and not event.again:
            self._watch(event.record)

    def _watch(self, record: TrialRecord) -> None:
        arm = record.arm.environment
        broken = [f for f in record.findings if f.severity is Validity.INVALID and f.code in _BROKEN_AFTER]
        if not broken:
            self._served.add(arm)
        for finding in broken if arm not in self._served else ():
            self._failed[arm, finding.code] += 1
            if self._failed[arm, finding.code] >= _BROKEN_AFTER[finding.code]:
                raise ArmFailedError(arm, f"{finding.code.value}: {finding.detail}".rstrip(": "))


@dataclass(frozen=True)
class Sitter:
    """Measures the sittings of a bisection."""

    store: BisectionStore
    design: Design
    builds: Builds
    machines: Callable[[Plan], Path]  # gives the inventory for a plan
    limit: str | None
    listener: Listener  # of its runs

    def sit_and_keep(self, sitting: Sitting) -> SittingResult:
        """Measure a sitting and keep what it found; after a kill the same sitting goes on."""
        self.store.begin(sitting)
        finding = self.sit(sitting)
        self.store.end(finding)
        return finding

    def sit(self, sitting: Sitting) -> SittingResult:
        """Measure a sitting, or the rest of one that was interrupted, and judge it.

        A candidate that cannot be built or started is skipped. Raises UserError when an anchor cannot.
        """
        for arm, candidate in sitting.arms.items():
            try:
                self.builds.ensure(candidate)
            except BuildError as error:
                return self._skipped(sitting, arm, str(error))
        file = self._experiment(sitting)
        try:
            folder = self._measured(sitting, file)
        except ArmFailedError as error:
            return self._skipped(sitting, error.arm, f"does not start ({error})", self._left(file, ended=False))
        run = load_run(folder)
        contrasts = judge_sitting(run, sitting, metric_of(self.design, *run.compared_scenarios))
        answer = answer_of(sitting.task, [contrast.kind for contrast in contrasts])
        return SittingResult(
            sitting=sitting, answer=answer, contrasts=contrasts, run=self._relative(folder),
            measured_s=run.manifest.measured_s or 0.0,
        )  # fmt: skip

    def _experiment(self, sitting: Sitting) -> Path:
        return self.store.folder / "sittings" / f"{sitting.number:02d}-{slug(sitting.candidate)}.yml"

    def _left(self, file: Path, *, ended: bool) -> Path | None:
        """The newest run of a sitting that has, or has not, ended."""
        status = "complete" if ended else "running"
        runs = [run for run in runs_of(self.store.runs / file.stem) if load_run(run).manifest.status == status]
        return runs[-1] if runs else None

    def _measured(self, sitting: Sitting, file: Path) -> Path:
        if done := self._left(file, ended=True):
            return done
        resume = self._left(file, ended=False)
        resolved = load(write(file, experiment_of(self.design, sitting, self.builds)), self.design.registry)
        draft = plan(resolved, until=None if resume else self.design.until, resume=resume)
        return measure(
            on_machines(draft, self.machines(draft), self.limit), self.store.runs, resume,
            listener=FailureWatch(self.listener), judge=lambda folder, looks: self.look(sitting, folder, looks),
        )  # fmt: skip

    def look(self, sitting: Sitting, folder: Path, looks: Sequence[Look]) -> list[LookComparison]:
        """The comparisons of a sitting at a look: all of them decided once they answer, else open."""
        run = load_run(folder)
        run = Run(run.path, run.manifest.model_copy(update={"looks": list(looks)}), run.hosts, run.records)
        contrasts = judge_sitting(run, sitting, metric_of(self.design, *run.compared_scenarios))
        answer = answer_of(sitting.task, [contrast.kind for contrast in contrasts])
        return [_compared(run, self.design, contrast, self._standing(answer, contrasts)) for contrast in contrasts]

    def _standing(self, answer: SittingAnswer, contrasts: Sequence[Contrast]) -> ComparisonState:
        is_other_way = contrasts[0].kind is Kind.FASTER
        if answer is not SittingAnswer.UNDECIDED or is_other_way:
            return ComparisonState.DECIDED
        return (
            ComparisonState.NARROW if is_narrow(contrasts, self.design.until.half_width_pct) else ComparisonState.OPEN
        )

    def _skipped(self, sitting: Sitting, arm: str, why: str, folder: Path | None = None) -> SittingResult:
        candidate = sitting.arms[arm]
        if arm in (GOOD, BAD):
            raise UserError(f"the known {arm} {candidate} {why}")
        return SittingResult(sitting=sitting, answer=SittingAnswer.SKIPPED, why=why, run=self._relative(folder))

    def _relative(self, folder: Path | None) -> str | None:
        return str(folder.resolve().relative_to(self.store.folder.resolve())) if folder else None


def _compared(run: Run, design: Design, contrast: Contrast, standing: ComparisonState) -> LookComparison:
    return LookComparison(
        standing=standing, metric=metric_of(design, *run.compared_scenarios).name,
        scenarios=list(run.compared_scenarios),
        arms=[Arm(contrast.baseline), Arm(contrast.arm)], half_width_pct=contrast.half_width_pct,
    )  # fmt: skip

"""The measured effect of the tuning steps that a guest lacks, from stored tuning runs."""

from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path

from vmtoll.analysis.run import Run, load_run
from vmtoll.analysis.tuning_steps import tuning_steps
from vmtoll.model.diagnosis import Tuning, TuningRun, Worth
from vmtoll.model.errors import LoadError
from vmtoll.model.facts import kvm_hosts
from vmtoll.model.verdict import StepKind, TuningResult, TuningStep
from vmtoll.runs.folder import read_manifest, runs_in

PRIVATE_FILE = "private.json"  # the runner writes it; committed and published runs have none

StepsBetween = Callable[[str, str], frozenset[Tuning]]


def tuning_runs(*results: Path) -> list[Path]:
    """The folders of all complete tuning runs in folders of results: those measured here first, then the committed
    ones, newest first.
    """
    runs = []
    for folder in {run.resolve(): run for each in results for run in runs_in(each)}.values():
        try:
            manifest = read_manifest(folder)
        except LoadError:
            continue  # not a run that this version can read
        if manifest.status == "complete" and manifest.experiment.tuning_steps:
            runs.append((is_local(folder), manifest.started_at, folder))
    return [folder for *_, folder in sorted(runs, reverse=True)]


def is_local(folder: Path) -> bool:
    """Return whether a run was measured here."""
    return (folder / PRIVATE_FILE).exists()


def worth_of(
    lacking: Collection[Tuning], folders: Iterable[Path], steps_between: StepsBetween
) -> tuple[Mapping[Tuning, tuple[Worth, ...]], tuple[TuningRun, ...]]:
    """Gain of each lacking step in the first run that measured it, and those runs.

    `steps_between`: gives the steps from one profile to another. Of several comparisons in a run the one with the
    fewest steps counts; among equals a single change comes before a cumulative step.
    """
    worth: dict[Tuning, tuple[Worth, ...]] = {}
    runs: list[TuningRun] = []
    for folder in folders:
        missing = [tuning for tuning in lacking if tuning not in worth]
        if not missing:
            break
        try:
            run = load_run(folder)
        except LoadError:
            continue
        result = tuning_steps(run)
        name = f"{folder.parent.name}/{folder.name}"
        measured = (
            {tuning: _worth_in_run(tuning, name, run, result, steps_between) for tuning in missing} if result else {}
        )
        worth |= {tuning: results for tuning, results in measured.items() if results}
        if any(measured.values()):
            runs.append(_tuning_run(name, folder, run))
    return worth, tuple(runs)


def _worth_in_run(
    tuning: Tuning, name: str, run: Run, result: TuningResult, steps_between: StepsBetween
) -> tuple[Worth, ...]:
    worths = []
    for scenario in result.scenarios:
        for entry in scenario.metrics.values():
            steps = [step for step in entry.steps if tuning in _steps(step, steps_between)]
            if steps:
                step = min(steps, key=lambda s: (len(_steps(s, steps_between)), s.step is not StepKind.SINGLE))
                other_steps = tuple(sorted(_steps(step, steps_between) - {tuning}))
                worths.append(Worth(name, scenario.scenario, entry.tool, entry.metric, step, other_steps))
    return tuple(worths)


def _steps(step: TuningStep, steps_between: StepsBetween) -> frozenset[Tuning]:
    return steps_between(step.before.environment, step.after.environment)


def _tuning_run(name: str, folder: Path, run: Run) -> TuningRun:
    models = tuple(dict.fromkeys(facts.cpu_model for facts in kvm_hosts(run.hosts).values() if facts.cpu_model))
    kinds = tuple(kind.value for kind in run.kvm_hardware)
    return TuningRun(name, run.manifest.started_at, is_local(folder), run.emulated, kinds, models)

"""The verb `run`: one experiment, or all that repeat published ones."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from vmtoll.commands import batch
from vmtoll.commands.conclude import conclude, judge
from vmtoll.commands.options import (
    InventoryOption,
    JsonOption,
    LimitOption,
    ResultsOption,
    ResumeOption,
    ScaleOption,
    UntilOption,
    size_of,
)
from vmtoll.commands.progress import Progress
from vmtoll.lab import embedded
from vmtoll.model.errors import UserError, WrongLinkError
from vmtoll.model.experiment import Scale
from vmtoll.model.until import Until
from vmtoll.paths import RESULTS
from vmtoll.runner.run import Plan, on_machines, plan, unmeasured
from vmtoll.runner.run import run as measure
from vmtoll.shell import say
from vmtoll.spec.catalog import Registry

_DRAWN = "the order of a run is drawn at random and recorded"
_RESUMED = "what the run already has is not measured again"

ExperimentArgument = Annotated[
    str,
    typer.Argument(
        help="Name of an experiment (`vmtoll list`), or `all`: every experiment that repeats a published one."
    ),
]


def run(
    experiment: ExperimentArgument,
    inventory: InventoryOption = None,
    limit: LimitOption = None,
    scale: ScaleOption = None,
    until: UntilOption = None,
    resume: ResumeOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the schedule and the time it will take.")] = False,
    results: ResultsOption = RESULTS,
    as_json: JsonOption = False,
) -> None:
    """Run an experiment and write its report. In the embedded lab, vmtoll sets the link to the experiment's rate.

    `all` resumes where it was interrupted, and continues with the next experiment after one that fails (exit code 1).
    """
    size = size_of(scale, inventory)
    if as_json and experiment == "all":
        raise UserError("--json gives the schedule or the result of one experiment; leave it out with `run all`")
    if experiment == "all":
        if resume:
            raise UserError("--resume cannot be combined with `run all`, which resumes automatically")
        if dry_run:
            _print_batch(batch.plans(size, until=until), inventory, limit)
            return
        if not inventory:
            embedded.need_root()
        raise SystemExit(batch.run_all(size, inventory, results, limit=limit, until=until))
    if dry_run:
        registry = Registry()
        preview = _previewed(experiment, inventory, registry, limit=limit, scale=scale, resume=resume, until=until)
        if as_json:
            print(json.dumps(_schedule(preview), indent=1, ensure_ascii=False))
        else:
            _print_plan(preview, resumed=resume is not None)
        return
    folder = run_one(experiment, inventory, results, limit=limit, scale=scale, resume=resume, until=until)
    conclusion = conclude(folder)
    print(conclusion.to_json() if as_json else conclusion)


def run_one(
    experiment: str,
    inventory: Path | None,
    results: Path,
    *,
    limit: str | None = None,
    scale: Scale | None = None,
    resume: Path | None = None,
    registry: Registry | None = None,
    until: Until | None = None,
) -> Path:
    """Measure one experiment of a registry, on the embedded lab without an inventory; the run's folder."""
    registry = registry or Registry()
    resolved = _planned(experiment, inventory, scale, registry).resolved
    machines = inventory or embedded.ready(resolved, say)
    with Progress() as progress:
        return measure(
            registry.experiment_file(experiment), machines, results, resume,
            listener=progress, registry=registry, scale=size_of(scale, inventory), limit=limit, until=until,
            judge=judge,
        )  # fmt: skip


def _planned(
    experiment: str, inventory: Path | None, scale: Scale | None, registry: Registry, until: Until | None = None
) -> Plan:
    file = registry.experiment_file(experiment)
    planned = plan(file, registry, scale=size_of(scale, inventory), until=until)
    if scale and planned.resolved.experiment.scale is None:
        raise UserError(f"{file}: defines no scales, so --scale does not apply; remove it")
    return planned


def _previewed(
    experiment: str,
    inventory: Path | None,
    registry: Registry,
    *,
    limit: str | None,
    scale: Scale | None,
    resume: Path | None,
    until: Until | None,
) -> Plan:
    """What the same command would measure without --dry-run; no machine is contacted and no file is written."""
    planned = _planned(experiment, inventory, scale, registry, until)
    if inventory:
        planned = on_machines(planned, inventory, registry, limit)
    return unmeasured(planned, resume) if resume else planned


def _schedule(planned: Plan) -> dict[str, object]:
    """What --dry-run prints, for programs. `total_s`: with `until` the most that it may take."""
    trials = [
        {"block": trial.block, "order": trial.order, "arm": str(trial.arm), "server": trial.scenario.server,
         "workload": trial.scenario.workload, "load_kind": trial.scenario.load.kind.value,
         "load_value": trial.scenario.load.value}
        for trial in planned.trials
    ]  # fmt: skip
    skipped = [skip.model_dump(exclude_none=True) for skip in planned.resolved.skipped]
    return {"trials": trials, "skipped": skipped, "total_s": round(planned.total_s, 1)}


def _print_plan(planned: Plan, *, resumed: bool) -> None:
    from vmtoll.report.words import load_text  # noqa: PLC0415 (loads pandas)

    for trial in planned.trials:
        scenario = trial.scenario
        print(
            f"block {trial.block}  {trial.order:3d}  {trial.arm!s:12}  {scenario.server:18}  "
            f"{scenario.workload:16}  {load_text(scenario.load)}"
        )
    for skip in planned.resolved.skipped:
        print(f"skipped: {skip.name}: {skip.why}")
    minutes, until = planned.total_s / 60, planned.resolved.experiment.until
    size = f"{len(planned.trials)} trials, about {minutes:.1f} minutes"
    if until:
        size = (
            f"{len(planned.trials)} trials up to the first look, more until every comparison is decided or known "
            f"within ±{until.half_width_pct:g}%, at most {minutes:.1f} minutes"
        )
    print(f"{size}; {_RESUMED if resumed else _DRAWN}")


def _print_batch(plans: Mapping[str, Plan], inventory: Path | None, limit: str | None) -> None:
    """What `run all` would measure; on an inventory whose link is another one, an experiment is skipped."""
    measured, registry = list[Plan](), Registry()
    for name, planned in plans.items():
        try:
            plan_here = on_machines(planned, inventory, registry, limit) if inventory else planned
        except WrongLinkError as error:
            print(f"{name:24}  skipped: {error}")
            continue
        measured.append(plan_here)
        minutes, link = plan_here.total_s / 60, plan_here.resolved.experiment.link
        print(f"{name:24}  {len(plan_here.trials):4d} trials  {minutes:5.1f} minutes  link {link}")
    minutes = sum(planned.total_s for planned in measured) / 60
    print(f"{len(measured)} experiments, about {minutes:.0f} minutes")

"""The command `run`: one experiment, or all that repeat published ones."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from vmtoll.commands import batch, values
from vmtoll.commands.answer import print_either
from vmtoll.commands.help import NOTHING_VALID, describe
from vmtoll.commands.measure_service import measured_service
from vmtoll.commands.measured import finish, measured
from vmtoll.commands.options import (
    DryRunOption,
    InventoryOption,
    JsonOption,
    LimitOption,
    ResultsOption,
    ResumeOption,
    ScaleOption,
    UntilOption,
    size_of,
)
from vmtoll.commands.plans import boots_text, show
from vmtoll.guests import profiles
from vmtoll.lab import embedded
from vmtoll.model.errors import UserError, WrongLinkError
from vmtoll.model.experiment import Scale
from vmtoll.model.until import Until
from vmtoll.paths import RESULTS
from vmtoll.runner.run import Plan, in_embedded_lab, on_machines, plan, remaining_plan, with_recorded_restarts
from vmtoll.runs.folder import runs_of
from vmtoll.shell import say
from vmtoll.spec.catalog import Registry
from vmtoll.spec.experiment import load

ExperimentArgument = Annotated[
    str,
    typer.Argument(
        help="Name of an experiment (`vmtoll list`), or `all`: every experiment that repeats a published one.",
        autocompletion=values.experiments,
    ),
]


describe(
    "run",
    "vmtoll run tails",
    "vmtoll run tails -i lab.yml --until 2,60",
    "vmtoll run all --dry-run",
    exits={1: "an experiment of `run all` failed", NOTHING_VALID: "no trial is valid"},
)


def run(
    experiment: ExperimentArgument,
    inventory: InventoryOption = None,
    limit: LimitOption = None,
    scale: ScaleOption = None,
    until: UntilOption = None,
    resume: ResumeOption = None,
    dry_run: DryRunOption = False,
    results: ResultsOption = RESULTS,
    as_json: JsonOption = False,
) -> None:
    """Run an experiment and write its report. In the embedded lab, vmtoll sets the link to the experiment's rate.

    `all` resumes where it was interrupted, and continues with the next experiment after one that fails.
    """
    size = size_of(scale, inventory)
    if experiment == "all":
        if resume:
            raise UserError("--resume cannot be combined with `run all`, which resumes automatically")
        if dry_run:
            previews = _preview_batch(batch.plans(size, until=until), inventory, limit)
            print_either(as_json, lambda: _schedules(previews), lambda: _batch_text(previews))
            return
        if not inventory:
            embedded.require_root()
        raise SystemExit(batch.run_all(size, inventory, results, limit=limit, until=until, as_json=as_json))
    if dry_run:
        planned = _planned(experiment, inventory, limit, scale, Registry(), until, resume)
        planned = planned if inventory else in_embedded_lab(planned)
        planned = remaining_plan(planned, resume) if resume else planned
        earlier = reversed(runs_of(results / experiment))
        planned = with_recorded_restarts(planned, [*filter(None, [resume]), *earlier])
        show(planned, resumed=resume is not None, as_json=as_json)
        return
    folder = run_one(experiment, inventory, results, limit=limit, scale=scale, resume=resume, until=until)
    finish(folder, as_json=as_json)


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
    """Measure one experiment of a registry, in the embedded lab if there is no inventory; return the run's folder."""
    planned = _planned(experiment, inventory, limit, scale, registry or Registry(), until, resume)
    if planned.resolved.requests:
        return measured_service(planned, results, resume, limit)
    if not inventory:
        planned = on_machines(planned, embedded.prepare(planned.resolved, say), limit)
    return measured(planned, results, resume)


def _planned(
    experiment: str, inventory: Path | None, limit: str | None, scale: Scale | None, registry: Registry,
    until: Until | None, resume: Path | None,
) -> Plan:  # fmt: skip
    resolved = load(registry.experiment_file(experiment), registry, size_of(scale, inventory))
    if scale and resolved.experiment.scale is None:
        raise UserError(f"{resolved.file}: defines no scales, so --scale does not apply; remove it")
    if not inventory:  # else the guests are made already, maybe from another machine
        profiles.check(resolved.machines)
    return plan(resolved, inventory, limit, until=until, resume=resume)


def _preview_batch(plans: Mapping[str, Plan], inventory: Path | None, limit: str | None) -> dict[str, Plan | str]:
    """The plan of each experiment of `run all`; the reason instead where it would skip one (a wrong link)."""
    previews = dict[str, Plan | str]()
    for name, planned in plans.items():
        try:
            previews[name] = on_machines(planned, inventory, limit) if inventory else in_embedded_lab(planned)
        except WrongLinkError as error:
            previews[name] = str(error)
    return previews


def _schedules(previews: Mapping[str, Plan | str]) -> dict[str, object]:
    """The output of `run all --dry-run`, for programs."""
    experiments = [
        {"experiment": name, "skipped": planned}
        if isinstance(planned, str)
        else {
            "experiment": name, "trials": len(planned.trials), "total_s": round(planned.total_s, 1),
            "link": planned.resolved.experiment.link, "boots": planned.resolved.experiment.boots,
        }
        for name, planned in previews.items()
    ]  # fmt: skip
    return {"experiments": experiments, "total_s": round(_total_s(previews), 1)}


def _batch_text(previews: Mapping[str, Plan | str]) -> str:
    lines = [
        f"{name:24}  skipped: {planned}"
        if isinstance(planned, str)
        else f"{name:24}  {len(planned.trials):4d} trials  {planned.total_s / 60:5.1f} minutes  "
        f"link {planned.resolved.experiment.link:8}  {_boots(planned)}".rstrip()
        for name, planned in previews.items()
    ]
    count = sum(not isinstance(planned, str) for planned in previews.values())
    return "\n".join([*lines, f"{count} experiments, about {_total_s(previews) / 60:.0f} minutes"])


def _boots(planned: Plan) -> str:
    boots = planned.resolved.experiment.boots
    return f"{boots} boots" if boots > 1 else boots_text(planned)


def _total_s(previews: Mapping[str, Plan | str]) -> float:
    return sum(planned.total_s for planned in previews.values() if not isinstance(planned, str))

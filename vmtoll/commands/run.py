"""The command `run`: one experiment, or all that repeat published ones."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from vmtoll.commands import batch, values
from vmtoll.commands.answer import print_json
from vmtoll.commands.conclude import judge
from vmtoll.commands.help import NOTHING_VALID, describe
from vmtoll.commands.measure_service import cost_text, run_service
from vmtoll.commands.measured import finish
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
from vmtoll.guests import profiles
from vmtoll.lab import embedded
from vmtoll.model.errors import UserError, WrongLinkError
from vmtoll.model.experiment import Scale
from vmtoll.model.until import Until
from vmtoll.paths import RESULTS
from vmtoll.runner.plan import BOOT_S, EXPLAINED_TRIALS, explained
from vmtoll.runner.run import Plan, in_embedded_lab, on_machines, plan, remaining_plan, with_recorded_restarts
from vmtoll.runner.run import run as measure
from vmtoll.runs.folder import runs_of
from vmtoll.shell import say
from vmtoll.spec.catalog import Registry
from vmtoll.spec.experiment import load

_DRAWN = "the order of a run is drawn at random and recorded"
_RESUMED = "what the run already has is not measured again"

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
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the schedule and how long it takes; measure nothing.")
    ] = False,
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
            if as_json:
                print_json(_schedules(previews))
            else:
                print(_batch_text(previews))
            return
        if not inventory:
            embedded.require_root()
        raise SystemExit(batch.run_all(size, inventory, results, limit=limit, until=until, as_json=as_json))
    if dry_run:
        registry = Registry()
        preview = _preview(experiment, inventory, registry, limit=limit, scale=scale, resume=resume, until=until)
        earlier = reversed(runs_of(results / experiment))
        preview = with_recorded_restarts(preview, [*filter(None, [resume]), *earlier])
        if as_json:
            print_json(schedule(preview))
        else:
            print_plan(preview, resumed=resume is not None)
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
    planned = _planned(experiment, inventory, scale, registry or Registry(), until, resume)
    if planned.resolved.requests:
        return run_service(planned, inventory, results, resume, limit=limit)
    machines = inventory or embedded.prepare(planned.resolved, say)
    with Progress() as progress:
        return measure(planned, machines, results, resume, listener=progress, limit=limit, judge=judge)


def _planned(
    experiment: str,
    inventory: Path | None,
    scale: Scale | None,
    registry: Registry,
    until: Until | None,
    resume: Path | None,
) -> Plan:
    resolved = load(registry.experiment_file(experiment), registry, size_of(scale, inventory))
    if scale and resolved.experiment.scale is None:
        raise UserError(f"{resolved.file}: defines no scales, so --scale does not apply; remove it")
    if not inventory:  # else the guests are made already, maybe from another machine
        profiles.check(resolved.machines)
    return plan(resolved, until=until, resume=resume)


def _preview(
    experiment: str,
    inventory: Path | None,
    registry: Registry,
    *,
    limit: str | None,
    scale: Scale | None,
    resume: Path | None,
    until: Until | None,
) -> Plan:
    """The plan of the same command without --dry-run; contacts no machine and writes no file."""
    planned = _planned(experiment, inventory, scale, registry, until, resume)
    planned = on_machines(planned, inventory, limit) if inventory else in_embedded_lab(planned)
    return remaining_plan(planned, resume) if resume else planned


def schedule(planned: Plan) -> dict[str, object]:
    """The output of --dry-run, for programs. `total_s`: with `until`, the maximum."""
    trials = [
        {"block": trial.block, "order": trial.order, "arm": str(trial.arm), "server": trial.scenario.server,
         "workload": trial.scenario.workload, "load_kind": trial.scenario.load.kind.value,
         "load_value": trial.scenario.load.value}
        for trial in planned.trials
    ]  # fmt: skip
    skipped = [skip.model_dump(exclude_none=True) for skip in planned.resolved.skipped]
    one_boot = planned.resolved.one_boot
    boots = {
        "count": planned.resolved.experiment.boots, "restarts": planned.restarts, "restart_s": planned.restart_s,
        "why_one": one_boot.text if one_boot else None,
    }  # fmt: skip
    return {"trials": trials, "skipped": skipped, "boots": boots, "total_s": round(planned.total_s, 1)}


def boots_text(planned: Plan) -> str:
    """What the boots of a plan cost, or why it has one; empty for an experiment that has one in any case."""
    if one_boot := planned.resolved.one_boot:
        return f"one boot: {one_boot.text}"
    if not planned.restarts:
        return ""
    experiment, inventory, restart_s = planned.resolved.experiment, planned.inventory, planned.restart_s
    in_lab = inventory is None or inventory.client.vars.lab == "embedded"
    restarted = "guest and container (the host is not rebooted)" if in_lab else "each machine under test and its host"
    boots = f"{experiment.boots} boots up to the first look" if experiment.until else f"{experiment.boots} boots"
    text = f"{boots}: {planned.restarts} restart{'s' * (planned.restarts != 1)} of {restarted}, "
    if restart_s is None:
        return f"{text}for which the time counts {BOOT_S:.0f} s each"
    return f"{text}{planned.restarts * restart_s / 60:.1f} minutes at {restart_s:.0f} s each as in an earlier run"


def print_plan(planned: Plan, *, resumed: bool) -> None:
    from vmtoll.report.words import load_text  # noqa: PLC0415 (loads pandas)

    for trial in planned.trials:
        scenario = trial.scenario
        print(
            f"block {trial.block}  {trial.order:3d}  {trial.arm!s:12}  {scenario.server:18}  "
            f"{scenario.workload:16}  {load_text(scenario.load)}"
        )
    if pairs := explained(planned.resolved):
        print(f"then {EXPLAINED_TRIALS * len(pairs)} trials in which exits are traced")
    for skip in planned.resolved.skipped:
        print(f"skipped: {skip.name}: {skip.why}")
    if text := boots_text(planned):
        print(text)
    if planned.resolved.requests:
        print(cost_text(planned))
        return
    minutes, until = planned.total_s / 60, planned.resolved.experiment.until
    size = f"{len(planned.trials)} trials, about {minutes:.1f} minutes"
    if until:
        size = (
            f"{len(planned.trials)} trials up to the first look, more until every comparison is decided or known "
            f"within ±{until.half_width_pct:g}%, at most {minutes:.1f} minutes"
        )
    print(f"{size}; {_RESUMED if resumed else _DRAWN}")


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

"""The commands of campaigns: campaign run, submit, status, report; partition."""

import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vmtoll.campaign.fan_out import FORKS
from vmtoll.commands import values
from vmtoll.commands.answer import answer, print_either, print_json
from vmtoll.commands.help import CommandGroup, describe, subcommand
from vmtoll.commands.options import InventoryOption, JsonOption, LimitOption, ScaleOption, outside_bundles, size_of
from vmtoll.lab import embedded
from vmtoll.model.errors import UserError
from vmtoll.model.experiment import Scale
from vmtoll.paths import RESULTS
from vmtoll.runner.run import Plan, plan
from vmtoll.shell import say
from vmtoll.spec.catalog import Registry, unknown
from vmtoll.spec.experiment import load

if TYPE_CHECKING:
    from vmtoll.campaign.campaign import Campaign
    from vmtoll.campaign.objects import Location
    from vmtoll.campaign.testbeds import Bed

CAMPAIGNS = RESULTS / "campaigns"
DATA = "data"  # the dataset within a campaign's folder

# Functions import the campaign's analysis themselves: `--help` should not wait for it.


EXPERIMENTS = typer.Argument(help="Names of experiments (`vmtoll list`).", autocompletion=values.experiments)
FOLDER_OPTION = typer.Option(
    help="Folder of the campaign, and its name (default: results/campaigns/<experiments>).", callback=outside_bundles
)


class _Group(CommandGroup):
    """The commands of a campaign. Once the group itself was the command that is now `run`."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            raise UserError(f"say `vmtoll campaign run {shlex.join(args)}`: campaign has {', '.join(self.commands)}")
        return super().resolve_command(ctx, args)


app = typer.Typer(
    cls=_Group,
    help="Run experiments on many test beds: here, or as jobs of a cluster; report them together.",
    epilog=describe(
        "campaign",
        "vmtoll campaign run demo tails -i lab.yml --dry-run",
        "vmtoll campaign submit demo -i lab.yml --output /shared/spring",
        "vmtoll campaign status /shared/spring",
        "vmtoll campaign report /shared/spring/data",
    ),
    no_args_is_help=True,
)


@subcommand(
    app,
    "campaign run",
    "vmtoll campaign run demo tails -i lab.yml --dry-run",
    "vmtoll campaign run demo --bed rack7 --inventory slices/rack7.json --output /shared/spring",
    exits={1: "a run is missing"},
)
def run_campaign(
    experiments: Annotated[list[str], EXPERIMENTS],
    inventory: InventoryOption = None,
    bed: Annotated[
        str | None,
        typer.Option(help="Measure only this test bed, as one job; the inventory must hold no other machine."),
    ] = None,
    limit: LimitOption = None,
    scale: ScaleOption = None,
    output: Annotated[Path | None, FOLDER_OPTION] = None,
    dataset: Annotated[
        str | None,
        typer.Option(
            help="Parquet dataset: a directory, or s3://bucket/folder; may be shared by campaigns (default: inside the "
            "campaign directory)."
        ),
    ] = None,
    forks: Annotated[int, typer.Option(min=1, help="Maximum number of test beds measured in parallel.")] = FORKS,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would run where, and for how long.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Run experiments on every test bed of an inventory (the child groups of `cells`), the test beds in parallel.

    A failed test bed does not stop the others. The same command resumes unfinished runs.
    Each finished run becomes Parquet in the dataset; campaign.html compares the test beds. With --bed it measures one
    test bed and writes no page: `vmtoll campaign report` does when all are there.
    """
    from vmtoll.campaign.testbeds import read_testbeds  # noqa: PLC0415

    machines = inventory or embedded.require()
    beds = read_testbeds(machines, limit)
    campaign = _campaign(experiments, machines, beds, size_of(scale, inventory), output, dataset, forks, bed)
    if dry_run:
        print_either(as_json, lambda: _schedule(campaign), lambda: _text(campaign))
        return
    if not inventory:
        embedded.equip(
            (each for planned in campaign.plans.values() for each in planned.resolved.workloads.values()), say
        )
    code = campaign.measure()
    if as_json:
        answer(result(campaign), as_json=True)
    elif campaign.page:
        answer({"page": campaign.page}, as_json=False)
    elif not code:
        print(f"dataset: {campaign.dataset}")
    raise SystemExit(code)


def _campaign(
    experiments: Sequence[str], machines: Path, beds: "Sequence[Bed]", scale: Scale, output: Path | None,
    dataset: str | None, forks: int = FORKS, bed: str | None = None,
) -> "Campaign":  # fmt: skip
    from vmtoll.campaign.campaign import Campaign  # noqa: PLC0415
    from vmtoll.campaign.objects import location  # noqa: PLC0415
    from vmtoll.campaign.store import check_name  # noqa: PLC0415

    registry = Registry()
    plans = {name: plan(load(registry.experiment_file(name), registry, scale)) for name in dict.fromkeys(experiments)}
    folder = output or CAMPAIGNS / "_".join(plans)
    check_name("campaign", folder.name)
    data = location(dataset) if dataset else folder / DATA
    if bed is None:
        return Campaign(folder, data, machines, plans, beds, forks)
    chosen = [each for each in beds if each.name == bed]
    if not chosen:
        raise UserError(f"{machines}: {unknown('test bed', bed, [each.name for each in beds])}")
    return Campaign(folder / "jobs" / bed, data, machines, plans, chosen, forks, of=folder.name)


@subcommand(
    app,
    "campaign submit",
    "vmtoll campaign submit demo -i lab.yml --output /shared/spring --dry-run",
    "vmtoll campaign submit demo -i lab.yml --output /shared/spring --sbatch=--partition=lab --at-once 200",
)
def submit_campaign(
    experiments: Annotated[list[str], EXPERIMENTS],
    inventory: InventoryOption = None,
    limit: LimitOption = None,
    scale: ScaleOption = None,
    output: Annotated[Path | None, FOLDER_OPTION] = None,
    dataset: Annotated[
        str | None, typer.Option(help="Parquet dataset: a directory, or s3://… (default: in the campaign's directory).")
    ] = None,
    sbatch: Annotated[
        list[str] | None,
        typer.Option(help="Option for sbatch, e.g. --sbatch=--partition=lab (repeatable)."),
    ] = None,
    at_once: Annotated[
        int | None, typer.Option(min=1, help="Maximum number of test beds measured in parallel.")
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Write the test beds' inventories and their list; submit nothing (for engines other than Slurm).",
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Submit a campaign to Slurm: an array with one task a test bed; the same command submits what is not done.

    The inventory is read once; each task gets the slice of its test bed. The campaign's folder is on a file system that
    all nodes see, and so is this installation of vmtoll. `vmtoll campaign status` reads the states back.
    """
    from vmtoll.campaign import slices, slurm  # noqa: PLC0415
    from vmtoll.campaign.testbeds import testbeds_in  # noqa: PLC0415
    from vmtoll.spec.inventory_faults import read_valid_inventory  # noqa: PLC0415

    if inventory is None:
        raise UserError("the jobs run on other machines than the embedded lab: give an --inventory")
    data = read_valid_inventory(inventory)
    size = size_of(scale, inventory)
    campaign = _campaign(experiments, inventory, testbeds_in(data, inventory, limit), size, output, dataset)
    folder = campaign.folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    with campaign.locked():
        active = slurm.active(folder, slurm.submitted(folder))
        busy = {bed.name: active[bed.name] for bed in campaign.testbeds if bed.name in active}
        beds = [bed for bed in campaign.testbeds if bed.name not in busy and not campaign.is_bed_done(bed.name)]
        names = [bed.name for bed in beds]
        slices.write_slices(data, beds, folder / "slices")
        listed = slices.write_list(names, folder) if names else None
        options = ["--scale", size, "--output", str(folder), "--dataset", _absolute(campaign.dataset)]
        command = [*campaign.program, "campaign", "run", *campaign.plans, *options]
        jobs = slurm.submit(folder, names, command, sbatch or (), at_once) if names and not dry_run else []
    if as_json:
        print_json({"beds": names, "list": listed, "jobs": [job.number for job in jobs], "busy": busy})
        return
    done = len(campaign.testbeds) - len(beds) - len(busy)
    print(f"{len(beds)} test beds to measure, {len(busy)} waiting or running, {done} done")
    if listed:
        print(f"list of test beds: {listed}")
    print(f"submitted as {', '.join(job.number for job in jobs)}" if jobs else "submitted: nothing")


def _absolute(dataset: "Location") -> str:
    return str(dataset.absolute() if isinstance(dataset, Path) else dataset)


@subcommand(app, "campaign status", "vmtoll campaign status /shared/spring")
def campaign_status(
    folder: Annotated[Path, typer.Argument(help="Folder of a submitted campaign.", exists=True, file_okay=False)],
    as_json: JsonOption = False,
) -> None:
    """Print the state of each test bed of a submitted campaign: done, running, pending, or why its job ended."""
    from vmtoll.campaign import slurm  # noqa: PLC0415
    from vmtoll.campaign.campaign import bed_states  # noqa: PLC0415

    jobs = slurm.submitted(folder)
    if not jobs:
        raise UserError(f"{folder}: no `vmtoll campaign submit` has written {slurm.SUBMITTED} there")
    states = bed_states(
        folder, [bed for job in jobs for bed in job.beds], slurm.active(folder, jobs), slurm.last_lines(folder, jobs)
    )
    if as_json:
        print_json(states)
        return
    counts = Counter(state["state"] for state in states.values())
    print(", ".join(f"{count} {state}" for state, count in counts.items()))
    for bed, state in states.items():
        if state["state"] == "ended":
            print(f"{bed}: {state['why']}")


describe(
    "partition",
    "vmtoll partition results/latest --output data --campaign spring --testbed rack1",
    "vmtoll partition --compact --output data --campaign spring",
)


def partition(
    output: Annotated[
        Path, typer.Option(help="Folder of the dataset; vmtoll keeps other runs in it.", callback=outside_bundles)
    ],
    campaign: Annotated[str, typer.Option(help="Name of the runs' campaign.")],
    runs: Annotated[
        list[Path] | None,
        typer.Argument(help="Folders of complete runs.", exists=True, file_okay=False, autocompletion=values.runs),
    ] = None,
    testbed: Annotated[str | None, typer.Option(help="Name of the runs' test bed.")] = None,
    is_to_compact: Annotated[
        bool, typer.Option("--compact", help="Then merge the campaign's small files into a few large ones.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Write runs as Parquet: <table>/campaign=…/testbed=…/experiment=…/<run-id>.parquet. Nothing is scrubbed.

    `--compact` merges the files of all runs of the campaign. The rows stay the same, and `vmtoll campaign report` may
    read meanwhile.
    """
    from vmtoll.campaign import store  # noqa: PLC0415
    from vmtoll.campaign.compaction import compact  # noqa: PLC0415
    from vmtoll.campaign.effects import MEMORY_MB  # noqa: PLC0415

    if not runs and not is_to_compact:
        raise UserError("no run given: name folders of runs, or merge the files of the dataset's runs with --compact")
    if runs and testbed is None:
        raise UserError("no test bed given: name the one that the runs were measured on with --testbed")
    for run in runs or ():
        store.partition(run, output, campaign, str(testbed))
        if not as_json:
            print(f"{run}: in {output}")
    document: dict[str, object] = {"dataset": output, "runs": runs or []}
    if is_to_compact:
        compaction = compact(output, campaign, MEMORY_MB)
        document["compaction"] = asdict(compaction)
        if not as_json:
            files = f"{compaction.files_before:,} files have become {compaction.files_after:,}"
            print(f"{output}: {compaction.runs:,} runs merged, {files}")
    if as_json:
        answer(document, as_json=True)


@subcommand(app, "campaign report", "vmtoll campaign report results/campaigns/demo_tails/data")
def campaign_report(
    dataset: Annotated[str, typer.Argument(help="Folder or URL (s3://…) of a dataset.")],
    campaign: Annotated[
        str | None, typer.Option(help="Name of the campaign (required if the dataset holds several).")
    ] = None,
    output: Annotated[
        Path, typer.Option(help="Folder that gets campaign.html and figures.json.", callback=outside_bundles)
    ] = Path(),
    memory_mb: Annotated[int, typer.Option(min=200, help="DuckDB's memory limit; the rest goes to TMPDIR.")] = 1000,
    as_json: JsonOption = False,
) -> None:
    """Report what virtualization costs over all test beds of a campaign, and how much the test beds differ."""
    from vmtoll.campaign.effects import campaign_figures  # noqa: PLC0415
    from vmtoll.campaign.store import write_page  # noqa: PLC0415

    if as_json:
        print(campaign_figures(dataset, campaign, memory_mb=memory_mb).to_json().decode())
    else:
        answer({"page": write_page(dataset, campaign, output, memory_mb)}, as_json=False)


def result(campaign: "Campaign") -> dict[str, object]:
    """The result of each run, for programs."""
    runs = [
        {"testbed": task[0], "experiment": task[1], **campaign.outcome(task).model_dump(mode="json")}
        for task in campaign.tasks
    ]  # fmt: skip
    return {"campaign": campaign.folder, "dataset": campaign.dataset, "page": campaign.page, "runs": runs}


def _schedule(campaign: "Campaign") -> dict[str, object]:
    """The output of --dry-run, for programs."""
    runs = [
        {
            "testbed": bed.name, "experiment": name, "trials": len(planned.trials),
            "is_complete": campaign.run_of((bed.name, name), "complete") is not None,
            "absent_environments": _absent(bed, planned), "total_s": round(planned.total_s, 1),
        }
        for bed in campaign.testbeds
        for name, planned in campaign.plans.items()
    ]  # fmt: skip
    beds = [{"name": bed.name, "hosts": list(bed.hosts)} for bed in campaign.testbeds]
    return {
        "campaign": campaign.folder, "testbeds": beds, "parallel": min(campaign.forks, len(beds)), "runs": runs,
        "total_s": round(campaign.total_s, 1),
    }  # fmt: skip


def _text(campaign: "Campaign") -> str:
    lines = list[str]()
    for bed in campaign.testbeds:
        lines.append(f"{bed.name:16}  {', '.join(bed.hosts)}")
        for name, planned in campaign.plans.items():
            absent = ", ".join(_absent(bed, planned))
            done = campaign.run_of((bed.name, name), "complete")
            state = "done" if done else f"no machine is {absent}" if absent else f"{planned.total_s / 60:.1f} minutes"
            lines.append(f"{'':16}  {name}: {len(planned.trials)} trials, {state}")
    beds, minutes = len(campaign.testbeds), campaign.total_s / 60
    parallel = min(campaign.forks, beds)
    lines.append(f"test beds: {beds}, {parallel} in parallel; runs: {len(campaign.tasks)}; about {minutes:.0f} minutes")
    return "\n".join([*lines, f"results in {campaign.folder}"])


def _absent(bed: "Bed", planned: Plan) -> list[str]:
    """The experiment's environments that no machine of a test bed has."""
    experiment = planned.resolved.experiment
    return sorted({experiment.machine_of(name) for name in experiment.environments} - bed.environments)

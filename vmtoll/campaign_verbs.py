"""The verbs of campaigns: campaign, partition, campaign-report."""

import json
from pathlib import Path
from typing import Annotated

import typer

from vmtoll import lab
from vmtoll.campaign import Campaign
from vmtoll.cells import cells
from vmtoll.dataset import check_name, figures, keep, write_page
from vmtoll.fan_out import FORKS
from vmtoll.options import InventoryOption, JsonOption, LimitOption
from vmtoll.paths import RESULTS
from workloads.runner.experiment import Scale
from workloads.runner.registry import Registry
from workloads.runner.run import plan

CAMPAIGNS = RESULTS / "campaigns"
DATA = "data"  # the dataset within a campaign's folder


def campaign(
    experiments: Annotated[list[str], typer.Argument(help="Names of experiments (`vmtoll list`).")],
    inventory: InventoryOption = None,
    limit: LimitOption = None,
    scale: Annotated[
        Scale | None, typer.Option(help="Size of the experiments (default: small in the lab, full with --inventory).")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(help="Folder of the campaign, and its name (default: results/campaigns/<experiments>)."),
    ] = None,
    dataset: Annotated[
        Path | None, typer.Option(help="Folder of the Parquet dataset, of many campaigns if you like (default: in it).")
    ] = None,
    forks: Annotated[int, typer.Option(min=1, help="So many cells measure at once.")] = FORKS,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would run where, and for how long.")] = False,
) -> None:
    """Run experiments in every cell of an inventory (its child groups of `cells`), the cells at the same time.

    A cell that fails is said and does not stop the others (exit code 1); the same command goes on with what is
    unfinished, inside of a run too. Each finished run becomes Parquet in the dataset; campaign.html sets the cells
    beside each other.
    """
    size: Scale = scale or ("full" if inventory else "small")
    registry, machines = Registry(), inventory or lab.require()
    plans = {name: plan(registry.experiment_file(name), scale=size) for name in dict.fromkeys(experiments)}
    folder = output or CAMPAIGNS / "_".join(plans)
    check_name("campaign", folder.name)
    asked = Campaign(folder, dataset or folder / DATA, machines, plans, cells(machines, limit), forks)
    if dry_run:
        _print(asked)
        return
    raise SystemExit(asked.measure())


def partition(
    runs: Annotated[list[Path], typer.Argument(help="Folders of complete runs.", exists=True, file_okay=False)],
    output: Annotated[Path, typer.Option(help="Folder of the dataset; what is there of other runs stays.")],
    campaign: Annotated[str, typer.Option(help="Name of the campaign that they belong to.")],
    cell: Annotated[str, typer.Option(help="Name of the cell that they were measured in.")],
) -> None:
    """Write runs as Parquet into a dataset: <table>/campaign=…/cell=…/experiment=…/<run-id>.parquet. Not scrubbed."""
    for run in runs:
        keep(run, output, campaign, cell, anew=True)
        print(f"{run}: in {output}")


def campaign_report(
    dataset: Annotated[str, typer.Argument(help="Folder or URL (s3://…) of a dataset.")],
    campaign: Annotated[str | None, typer.Option(help="Which one, where the dataset holds several.")] = None,
    output: Annotated[Path, typer.Option(help="Folder that gets campaign.html and figures.json.")] = Path(),
    memory_mb: Annotated[int, typer.Option(min=200, help="What DuckDB may hold; the rest goes to TMPDIR.")] = 1000,
    as_json: JsonOption = False,
) -> None:
    """Say what virtualization costs over all cells of a campaign, and how much the cells differ."""
    if as_json:
        print(json.dumps(figures(dataset, campaign, memory_mb), indent=1, ensure_ascii=False))
    else:
        print(f"page: {write_page(dataset, campaign, output, memory_mb)}")


def register(app: typer.Typer) -> None:
    """Add the verbs to the program."""
    app.command("campaign")(campaign)
    app.command("partition")(partition)
    app.command("campaign-report")(campaign_report)


def _print(asked: Campaign) -> None:
    wanted = {name: set(planned.resolved.experiment.environments) for name, planned in asked.plans.items()}
    for cell in asked.cells:
        print(f"{cell.name:16}  {', '.join(cell.hosts)}")
        for name, planned in asked.plans.items():
            lacks = ", ".join(sorted(wanted[name] - cell.environments))
            done = asked.run_of((cell.name, name), "complete")
            state = "done" if done else f"no machine is {lacks}" if lacks else f"{planned.total_s / 60:.1f} minutes"
            print(f"{'':16}  {name}: {len(planned.trials)} trials, {state}")
    at_once, minutes = min(asked.forks, len(asked.cells)), asked.total_s / 60
    print(f"cells: {len(asked.cells)}, {at_once} at once; runs: {len(asked.tasks)}; about {minutes:.0f} minutes")
    print(f"results in {asked.folder}")

"""vmtoll: what a KVM guest costs against bare metal, for a web workload, with evidence."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from vmtoll import batch, campaign_verbs, lab, lab_verbs, tuning
from vmtoll.conclude import conclude, replication_page
from vmtoll.options import InventoryOption, JsonOption, LimitOption
from vmtoll.paths import RESULTS
from vmtoll.preflight.verb import preflight
from vmtoll.progress import Progress, say
from vmtoll.shell import UserError
from workloads.runner.errors import RunnerError
from workloads.runner.experiment import Scale
from workloads.runner.registry import Registry
from workloads.runner.run import Plan, plan
from workloads.runner.run import run as measure

app = typer.Typer(help=__doc__, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
app.add_typer(lab_verbs.app, name="lab")
campaign_verbs.register(app)
for _verb in (preflight, tuning.tune, tuning.untune):
    app.command()(_verb)
workload_app = typer.Typer(help="Workloads made of what your own servers saw.", no_args_is_help=True)
app.add_typer(workload_app, name="workload")

ExperimentArgument = Annotated[
    str, typer.Argument(help="Name of an experiment (`vmtoll list`), or `all`: each that repeats a published one.")
]
ScaleOption = Annotated[
    Scale | None,
    typer.Option(help="Published size or a size for the embedded lab (default: small there, full with --inventory)."),
]
RunArgument = Annotated[
    Path, typer.Argument(help="Folder of a run: results/<experiment>/<run-id>.", exists=True, file_okay=False)
]
BundleArgument = Annotated[Path, typer.Argument(help="Folder of a bundle.", exists=True, file_okay=False)]
ResumeOption = Annotated[
    Path | None, typer.Option(help="Folder of an interrupted run to go on with.", exists=True, file_okay=False)
]
ResultsOption = Annotated[Path, typer.Option(help="Folder that holds the results.")]


def main() -> None:
    """Entry point: what the user can mend is one message and exit code 2, never a traceback."""
    try:
        app()
    except (UserError, RunnerError) as error:
        print(f"vmtoll: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        print("vmtoll: interrupted; what was measured is kept", file=sys.stderr)
        raise SystemExit(130) from None


@app.command()
def provision(
    inventory: InventoryOption = None,
    limit: LimitOption = None,
    check: Annotated[bool, typer.Option("--check", help="Change nothing, say what would change.")] = False,
) -> None:
    """Bring every machine into the state in which it is measured (playbooks/site.yml)."""
    lab.provision(inventory, ["--check", "--diff"] if check else [], limit)


@app.command("list")
def list_all() -> None:
    """List experiments, workloads, servers and environments."""
    registry = Registry()
    for kind in ("experiments", "workloads", "servers", "environments"):
        print(f"{kind}: {', '.join(getattr(registry, kind)())}")


@app.command()
def run(
    experiment: ExperimentArgument,
    inventory: InventoryOption = None,
    limit: LimitOption = None,
    scale: ScaleOption = None,
    resume: ResumeOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the schedule and the time it will take.")] = False,
    results: ResultsOption = RESULTS,
) -> None:
    """Run an experiment, judge it and write its report; the embedded lab's link is changed as it wants.

    `all` goes on where it was interrupted, and with the next experiment after one that fails (exit code 1).
    """
    size: Scale = scale or ("full" if inventory else "small")
    if experiment == "all":
        if resume:
            raise UserError("`run all` finds by itself what is to go on with; leave out --resume.")
        if dry_run:
            _print_batch(batch.plans(size))
            return
        if not inventory:
            lab.need_root()
        raise SystemExit(batch.run_all(size, inventory, results, limit=limit))
    file = Registry().experiment_file(experiment)
    planned = plan(file, scale=size)
    wanted = planned.resolved.experiment
    if scale and wanted.scale is None:
        raise UserError(f"{file}: has one size, no `scales`; leave out --scale.")
    if dry_run:
        _print_plan(planned)
        return
    machines = inventory or lab.shaped(wanted.link, say)
    with Progress() as progress:
        folder = measure(file, machines, results, resume, progress=progress, scale=size, limit=limit)
    print(conclude(folder))


@app.command()
def report(folder: RunArgument) -> None:
    """Write the report of a run anew: verdict, report.html, trials.ods."""
    print(conclude(folder))


@app.command()
def replication(
    folders: Annotated[
        list[Path] | None, typer.Argument(help="Folders of runs (default: the newest `run all`).", exists=True)
    ] = None,
    output: Annotated[Path, typer.Option(help="The page; an earlier one is replaced.")] = RESULTS / batch.PAGE,
    results: ResultsOption = RESULTS,
) -> None:
    """Write the page over published claims anew: held, did not hold or cannot be told here."""
    print(f"page: {replication_page(folders or batch.newest(results), output)}")


@app.command()
def notebook(
    name: Annotated[str, typer.Argument(help="Name of a notebook: metal_vs_kvm, tails, capacity, replication.")],
    folder: RunArgument,
    chosen: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="In its cell `parameters`; may be repeated.")
    ] = None,
) -> None:
    """Run a notebook of analysis/notebooks on a run, without a browser, and write its page beside the report.

    What it goes by stands in its cell `parameters`: `vmtoll notebook capacity RUN --set RATE_RPS=500`.
    """
    from vmtoll import notebooks  # noqa: PLC0415 (loads the analysis)

    print(f"notebook: {notebooks.write(name, folder, chosen or [])}")


@app.command()
def site(
    output: Annotated[Path, typer.Option(help="Folder to write; an earlier site there is replaced.")] = Path("site"),
    results: ResultsOption = RESULTS,
) -> None:
    """Write a static page over all runs: filter, compare, link. It works from a file and from any web server."""
    from analysis.explorer import write_site  # noqa: PLC0415
    from analysis.load import LoadError  # noqa: PLC0415

    try:
        page = write_site(results, output)
    except LoadError as error:
        raise UserError(str(error)) from error
    print(f"site: {page}")


@app.command()
def demo(results: ResultsOption = RESULTS) -> None:
    """Build the embedded lab, provision it, run the experiment `demo`, write its report."""
    lab.need_root()
    file = Registry().experiment_file("demo")
    lab.up(plan(file).resolved.experiment.link, say)
    say("provisioning; what the image already has stays as it is")
    lab.provision(None, [], quiet=True)
    with Progress() as progress:
        folder = measure(file, lab.require(), results, progress=progress)
    print(conclude(folder))


@app.command()
def publish(
    folder: RunArgument,
    output: Annotated[Path, typer.Option(help="Folder of the bundle; an earlier bundle there is replaced.")],
    author: Annotated[list[str] | None, typer.Option(help="Author to cite; may be given more than once.")] = None,
) -> None:
    """Write a run as a data package that others can read, check, cite and run again; no name of a machine is in it."""
    from vmtoll import bundles  # noqa: PLC0415 (loads the analysis)

    bundles.publish(folder, output, author or [])


@app.command()
def compare(first: RunArgument, second: RunArgument, as_json: JsonOption = False) -> None:
    """Say of each scenario whether the second run (or bundle) reproduces the first; exit code 3 when one does not."""
    from vmtoll import bundles  # noqa: PLC0415

    raise SystemExit(bundles.compare(bundles.open_run(first), bundles.open_run(second), as_json=as_json))


@app.command()
def replay(
    bundle: BundleArgument,
    inventory: InventoryOption = None,
    blocks: Annotated[int | None, typer.Option(min=1, help="Fewer or more blocks than were published.")] = None,
    resume: ResumeOption = None,
    results: ResultsOption = RESULTS,
    as_json: JsonOption = False,
) -> None:
    """Run a published experiment again and say of each scenario: reproduced, not reproduced, or not comparable."""
    from vmtoll import bundles  # noqa: PLC0415
    from vmtoll.replay import replay as measure_again  # noqa: PLC0415

    published = bundles.open_bundle(bundle)
    machines = inventory or lab.require()
    with Progress() as progress:
        again = measure_again(published.meta, machines, results, blocks=blocks, resume=resume, progress=progress)
    print(conclude(again), file=sys.stderr)
    raise SystemExit(bundles.compare(published, bundles.open_run(again), as_json=as_json))


@app.command()
def capacity(
    folder: RunArgument,
    rate: Annotated[float, typer.Option(min=0.001, help="Requests per second that all machines together must answer.")],
    p99_ms: Annotated[float, typer.Option(min=0.001, help="Objective: 99% answered within so many milliseconds.")],
    availability: Annotated[
        float, typer.Option(min=0.001, max=99.9999, help="Objective: percent of requests answered with success.")
    ] = 99.9,
    headroom: Annotated[float, typer.Option(min=0, help="Plan for so many percent more than the rate.")] = 30,
    spare: Annotated[int, typer.Option(min=0, help="Machines (or guests) beyond those that are needed.")] = 1,
    guests_per_host: Annotated[int, typer.Option(min=1, help="How many guests share a host.")] = 1,
    host_cost_per_hour: Annotated[
        float | None, typer.Option(min=0, help="What a host costs per hour, in your currency.")
    ] = None,
    watts: Annotated[
        float | None, typer.Option(min=0, help="What a host draws under load; else what it counted itself (RAPL).")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Say how many metal hosts or guests an objective takes, by a run with a ladder of rates or a search.

    Of guests that shared a host also how many may, and of six numbers of users or more how throughput scales.
    """
    from vmtoll.capacity import show  # noqa: PLC0415 (loads the analysis)

    demand = {
        "rate_rps": rate, "headroom_pct": headroom, "spare": spare, "guests_per_host": guests_per_host,
        "host_cost_per_hour": host_cost_per_hour, "watts": watts,
    }  # fmt: skip
    show(folder, objective={"p99_ms": p99_ms, "availability_pct": availability}, demand=demand, as_json=as_json)


@workload_app.command("from-log")
def workload_from_log(
    logs: Annotated[
        list[Path],
        typer.Argument(help="Access logs in the combined format, plain, .gz or .zst; a series in any order."),
    ],
    output: Annotated[
        Path, typer.Option(help="Folder to write to; `workloads` of this project, and `vmtoll run` finds them.")
    ],
    name: Annotated[str, typer.Option(help="Name of the workload and of its site.")] = "from-log",
    lines: Annotated[int, typer.Option(min=1, max=100_000, help="Lines of the URL list; no more files.")] = 1000,
    idle_s: Annotated[int, typer.Option(min=0, help="A client's connection counts as closed after such a pause.")] = 5,
    largest_kib: Annotated[int, typer.Option(min=1, help="Larger bodies are cut to this size.")] = 16 * 1024,
    as_json: JsonOption = False,
) -> None:
    """Turn an access log into a workload and a site of the same sizes, weights and rates.

    Writes OUTPUT/NAME.yml (the rate of the busiest minute), NAME-ladder.yml (rising shares of what a machine can
    do), sites/NAME.yml and NAME.summary.json. No address, path, query, referrer or user agent of the log is in them.
    """
    from vmtoll.logs import make  # noqa: PLC0415 (loads duckdb)
    from workloads.from_log import Options  # noqa: PLC0415

    options = Options(name=name, lines=lines, idle_s=idle_s, largest_bytes=largest_kib * 1024)
    make(logs, output, options, as_json=as_json)


def _print_plan(planned: Plan) -> None:
    for trial in planned.trials:
        scenario = trial.scenario
        print(
            f"block {trial.block}  {trial.order:3d}  {scenario.environment:12}  {scenario.server:18}  "
            f"{scenario.workload:16}  {scenario.offer}"
        )
    for server, why in planned.resolved.skipped.items():
        print(f"skipped: {server}: {why}")
    minutes = planned.total_s / 60
    print(f"{len(planned.trials)} trials, about {minutes:.1f} minutes; the order of a run is drawn anew and recorded")


def _print_batch(plans: Mapping[str, Plan]) -> None:
    for name, planned in plans.items():
        minutes, link = planned.total_s / 60, planned.resolved.experiment.link
        print(f"{name:24}  {len(planned.trials):4d} trials  {minutes:5.1f} minutes  link {link}")
    minutes = sum(planned.total_s for planned in plans.values()) / 60
    print(f"{len(plans)} experiments, about {minutes:.0f} minutes")

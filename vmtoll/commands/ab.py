"""The command `ab`: compare two environments without an experiment file; one answer and an exit code."""

import math
from collections.abc import Iterator, Sequence
from enum import IntEnum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any
from xml.etree import ElementTree

import typer
import yaml

from vmtoll.commands import values
from vmtoll.commands.answer import print_json
from vmtoll.commands.conclude import judge, load_and_analyse, write_conclusion
from vmtoll.commands.help import describe
from vmtoll.commands.options import InventoryOption, JsonOption, LimitOption, ResultsOption, ResumeOption, UntilOption
from vmtoll.commands.progress import Progress
from vmtoll.commands.run import print_plan, schedule
from vmtoll.files import write_durably
from vmtoll.lab import embedded, topology
from vmtoll.model.errors import UserError
from vmtoll.model.metric import METRICS
from vmtoll.model.trial import METAL
from vmtoll.model.until import Until
from vmtoll.model.workload import ClosedWorkload
from vmtoll.paths import RESULTS
from vmtoll.runner.plan import ASSUMED_RPS
from vmtoll.runner.run import Plan, on_machines, plan
from vmtoll.runner.run import run as measure
from vmtoll.shell import say
from vmtoll.spec.catalog import Registry
from vmtoll.spec.experiment import load
from vmtoll.spec.inventory import environments_of

if TYPE_CHECKING:
    from vmtoll.analysis.run import Run
    from vmtoll.model.verdict import Comparison, RunAnalysis, Verdict

FOLDER = "ab"  # in the results folder: the experiments that the command wrote


class Exit(IntEnum):
    """Exit codes as `git bisect run` reads them: good, bad, cannot be judged."""

    NOT_WORSE = 0
    WORSE = 1
    UNDECIDED = 125


ERROR = 128  # git bisect ends at this code and above


describe(
    "ab",
    "vmtoll ab kvm-2009 kvm-default",
    "vmtoll ab metal kvm-default --server nginx --workload site-steady --until 2,30",
    "vmtoll ab old new --inventory hosts.yml --metric tail --at-most-min 20 --junit ab.xml",
    "vmtoll ab metal no-thp -i hosts.yml --apply 'thp never' --revert 'thp madvise'",
    exits={
        Exit.WORSE: "the second environment is worse in a figure that counts",
        Exit.UNDECIDED: "none is worse, and one is undecided",
        ERROR: "error",
        2: "",
    },
)


def ab(
    baseline: Annotated[
        str,
        typer.Argument(
            help="Environment that the other is compared with: metal, or a guest's.", autocompletion=values.environments
        ),
    ],
    other: Annotated[str, typer.Argument(help="Environment that is judged.", autocompletion=values.environments)],
    server: Annotated[
        list[str] | None,
        typer.Option(help="Server; several times for several (default: nginx).", autocompletion=values.servers),
    ] = None,
    workload: Annotated[
        list[str] | None,
        typer.Option(help="Workload, likewise (default: site-steady).", autocompletion=values.workloads),
    ] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option(help=f"Figure that counts, likewise: {', '.join(METRICS)} (default: the main one of each load)."),
    ] = None,
    blocks: Annotated[int, typer.Option(help="Pairs of trials; with --until, up to the first look.", min=6)] = 8,
    duration_s: Annotated[float, typer.Option(help="Load of a trial in seconds.", min=0.1)] = 2.0,
    until: UntilOption = None,
    at_most_min: Annotated[
        float | None, typer.Option(help="Measure nothing if it would take longer, in minutes.", min=0)
    ] = None,
    apply: Annotated[
        str | None,
        typer.Option(help="Command that makes the second environment, a name of your own, out of the first."),
    ] = None,
    revert: Annotated[str, typer.Option(help="Command that undoes --apply, between blocks and at the end.")] = "",
    link: Annotated[str, typer.Option(help="Rate of the client's link: unshaped, 100mbit, …")] = "unshaped",
    inventory: InventoryOption = None,
    limit: LimitOption = None,
    resume: ResumeOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the schedule and the time it will take.")] = False,
    junit: Annotated[Path | None, typer.Option(help="File for the verdicts as a JUnit report.", dir_okay=False)] = None,
    results: ResultsOption = RESULTS,
    as_json: JsonOption = False,
) -> None:
    """Compare two environments and answer in one sentence; the exit code says whether the second is worse.

    Without --inventory it measures in the embedded lab, and makes the guests that are missing there.
    """
    for name in metric or []:
        if name not in METRICS:
            raise UserError(f"--metric {name}: unknown metric; allowed: {', '.join(METRICS)}")
    if baseline == other:
        raise UserError(f"{baseline} is both sides; name two environments")
    if bool(apply) != bool(revert):
        raise UserError("--apply and --revert go together: the first environment is what --revert restores")
    keys = {
        "question": f"is {other} worse than {baseline}?",
        "environments": [baseline, other],
        "baseline": baseline,
        "servers": server or ["nginx"],
        "workloads": workload or ["site-steady"],
        "blocks": blocks,
        "warmup_s": min(0.5, duration_s),
        "duration_s": duration_s,
        "link": link,
        "shares_of": "slowest",
        **({"changes": {other: {"of": baseline, "apply": apply, "revert": revert}}} if apply else {}),
    }
    file = results / FOLDER / f"{baseline}-{other}.yml"
    planned = _planned(file, keys, until, resume)
    if inventory:
        planned = on_machines(planned, inventory, limit)
    _check_time(planned, at_most_min)
    if dry_run:
        if as_json:
            print_json(schedule(planned))
        else:
            print_plan(planned, resumed=resume is not None)
        return
    say(cost_text(planned))
    _write(file, keys)
    machines = inventory or lab_for(planned, link)
    with Progress() as progress:
        folder = measure(planned, machines, results, resume, listener=progress, limit=limit, judge=judge)
    raise SystemExit(_answer(folder, metric or [], junit, as_json=as_json))


def _planned(file: Path, keys: dict[str, Any], until: Until | None, resume: Path | None) -> Plan:
    """The plan of this experiment, read from a draft: vmtoll writes its file later."""
    with TemporaryDirectory(prefix="vmtoll-ab-") as folder:
        draft = Path(folder) / file.name
        _write(draft, keys)
        return plan(load(draft, Registry()), until=until, resume=resume)


def _write(file: Path, keys: dict[str, Any]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    write_durably(file, yaml.safe_dump(keys, sort_keys=False).encode())


def _check_time(planned: Plan, at_most_min: float | None) -> None:
    minutes = planned.total_s / 60
    if at_most_min is not None and minutes > at_most_min:
        raise UserError(
            f"it would take about {minutes:.0f} minutes, and --at-most-min is {at_most_min:g}: give fewer servers, "
            "workloads or --blocks, or a shorter --duration-s"
        )


def requests_of(planned: Plan) -> float:
    """The order of magnitude of a plan's requests, warm-ups included."""
    experiment = planned.resolved.experiment
    requests = 0.0
    for trial in planned.trials:
        load, workload = trial.scenario.load, planned.resolved.workloads[trial.scenario.workload]
        crosscheck_s = experiment.crosscheck_s if workload.crosscheck else 0.0
        seconds = experiment.warmup_s + experiment.duration_s + crosscheck_s
        request_count = workload.count(experiment.scale) if isinstance(workload, ClosedWorkload) else None
        requests += request_count or seconds * (load.value if load.kind.value == "rate" else ASSUMED_RPS)
    return requests


def requests_text(requests: float) -> str:
    """`1.2 million`, `270,000`."""
    return f"{requests / 1e6:.1f} million" if requests >= 1e6 else f"{requests:,.0f}"


def cost_text(planned: Plan) -> str:
    """`54 trials, about 9 minutes, in the order of 1.2 million requests to nginx: 10 users`; with `until` "at most"."""
    from vmtoll.report.words import load_text, plural  # noqa: PLC0415 (loads pandas)

    experiment = planned.resolved.experiment
    loads = sorted({trial.scenario.load for trial in planned.trials}, key=lambda load: load.sort_key)
    minutes = plural(math.ceil(planned.total_s / 60), "minute")
    qualifier = "at most" if experiment.until else "about"
    amount = requests_text(requests_of(planned))
    return (
        f"{len(planned.trials)} trials, {qualifier} {minutes}, in the order of {amount} requests to "
        f"{', '.join(experiment.servers)}: {', '.join(map(load_text, loads))}"
    )


def lab_for(planned: Plan, link: str) -> Path:
    """Bring up the embedded lab with the plan's environments, unless it has them; return its inventory."""
    embedded.require_root()
    environments = planned.resolved.machines
    if not embedded.status()["up"] or not set(environments) <= environments_of(embedded.require()):
        guests = [name for name in environments if name != METAL]
        embedded.up(link, say, topology.shape(profiles=guests))
    return embedded.prepare(planned.resolved, say)


def _answer(folder: Path, metrics: Sequence[str], junit: Path | None, *, as_json: bool) -> Exit:
    from vmtoll.model.verdict_columns import verdict_rows  # noqa: PLC0415

    run, analysis = load_and_analyse(folder)
    conclusion = write_conclusion(run, analysis)
    rows = list(counted_verdicts(analysis, metrics))
    code = exit_of([verdict for _, verdict in rows])
    if junit:
        write_durably(junit, junit_report(run, analysis, rows))
    if as_json:
        verdicts = list(verdict_rows(analysis, [verdict for _, verdict in rows]))
        print_json(conclusion.document() | {"exit": code, "verdicts": verdicts})
    else:
        conclusion.show()
        print(f"exit {code}: {_EXIT_TEXTS[code]}")
    return code


_EXIT_TEXTS = {
    Exit.NOT_WORSE: "not worse",
    Exit.WORSE: "worse",
    Exit.UNDECIDED: "undecided",
}


def counted_verdicts(analysis: "RunAnalysis", metrics: Sequence[str]) -> Iterator[tuple["Comparison", "Verdict"]]:
    """The verdicts that decide the exit code: those of these metrics, by default the primary ones, where they apply."""
    for comparison in analysis.comparisons:
        for name, verdict in comparison.verdicts.items():
            if verdict.applies and (name in metrics if metrics else verdict.metric.is_primary):
                yield comparison, verdict


def exit_of(verdicts: "Sequence[Verdict]") -> Exit:
    """WORSE if any verdict is; else UNDECIDED if any is undecided or not judged, or if there is none."""
    from vmtoll.model.verdict import Kind  # noqa: PLC0415

    kinds = {verdict.kind for verdict in verdicts}
    if Kind.SLOWER in kinds:
        return Exit.WORSE
    return Exit.UNDECIDED if not kinds or kinds & {Kind.UNDECIDED, Kind.NOT_JUDGED} else Exit.NOT_WORSE


def junit_report(run: "Run", analysis: "RunAnalysis", rows: "Sequence[tuple[Comparison, Verdict]]") -> bytes:
    """A test case for each verdict: worse fails, undecided is skipped."""
    from vmtoll.model.verdict import Kind  # noqa: PLC0415
    from vmtoll.report.words import METRIC_LABELS, labels_of, sides_of, verdict_text  # noqa: PLC0415

    labels, sides = labels_of([comparison.scenario for comparison, _ in rows]), sides_of(analysis.comparisons)
    suite = ElementTree.Element("testsuite", name=run.manifest.experiment.name, tests=str(len(rows)))
    for comparison, verdict in rows:
        name = f"{labels[comparison.scenario]}: {METRIC_LABELS[verdict.metric.name].label}"
        case = ElementTree.SubElement(suite, "testcase", classname=f"vmtoll.ab.{comparison.arm}", name=name)
        message = verdict_text(verdict, sides(comparison))
        if verdict.kind is Kind.SLOWER:
            ElementTree.SubElement(case, "failure", message=message)
        elif verdict.kind in (Kind.UNDECIDED, Kind.NOT_JUDGED):
            ElementTree.SubElement(case, "skipped", message=message)
    suite.set("failures", str(len(suite.findall("./testcase/failure"))))
    suite.set("skipped", str(len(suite.findall("./testcase/skipped"))))
    text: bytes = ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True)
    return text + b"\n"

"""The command `ab`: compare two environments without an experiment file; one answer and an exit code."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vmtoll.commands import values
from vmtoll.commands.adhoc import Adhoc, pair_keys
from vmtoll.commands.answer import print_json
from vmtoll.commands.conclude import load_and_analyse, write_conclusion
from vmtoll.commands.help import ERROR, describe
from vmtoll.commands.options import (
    DIFFERS_IN,
    AtMostOption,
    DryRunOption,
    DurationOption,
    InventoryOption,
    JsonOption,
    LimitOption,
    LinkOption,
    MetricsOption,
    OnOption,
    ResultsOption,
    ResumeOption,
    UntilOption,
    check_metrics,
)
from vmtoll.commands.outcome import Case, Exit, check_folders, write_junit
from vmtoll.commands.plans import show
from vmtoll.model.change import Change
from vmtoll.model.errors import UserError
from vmtoll.model.metric import METRICS, loop_of
from vmtoll.paths import RESULTS

if TYPE_CHECKING:
    from vmtoll.model.analysis import RunAnalysis
    from vmtoll.model.verdict import Comparison, Verdict
    from vmtoll.runner.run import Plan


describe(
    "ab",
    "vmtoll ab kvm-2009 kvm-default",
    "vmtoll ab metal kvm-default --server nginx --workload site-steady --until 2,30",
    "vmtoll ab old new -i lab.yml --metric tail --at-most-min 20 --junit ab.xml",
    "vmtoll ab metal no-thp -i lab.yml --apply 'echo never >/sys/kernel/mm/transparent_hugepage/enabled' \\\n"
    "        --revert 'echo madvise >/sys/kernel/mm/transparent_hugepage/enabled'",
    "vmtoll ab kvm-default fewer-exits -i lab.yml --on host --boots --apply 'virsh define new.xml' \\\n"
    "        --revert 'virsh define old.xml'",
    exits={
        Exit.WORSE: "the second environment is worse in a metric that counts",
        Exit.UNDECIDED: "no metric is worse, and at least one is undecided",
        ERROR: "error",
        2: "",
    },
)


def ab(
    baseline: Annotated[
        str,
        typer.Argument(help="Baseline: the environment to compare with.", autocompletion=values.environments),
    ],
    other: Annotated[str, typer.Argument(help="Environment to judge.", autocompletion=values.environments)],
    server: Annotated[
        list[str] | None,
        typer.Option(help="Server (repeatable; default: nginx).", autocompletion=values.servers),
    ] = None,
    workload: Annotated[
        list[str] | None,
        typer.Option(help="Workload (repeatable; default: site-steady).", autocompletion=values.workloads),
    ] = None,
    metric: MetricsOption = None,
    blocks: Annotated[
        int, typer.Option(help="Number of blocks: paired trials (with --until: before the first check).", min=6)
    ] = 8,
    duration_s: DurationOption = 2.0,
    until: UntilOption = None,
    at_most_min: AtMostOption = None,
    apply: Annotated[
        str | None,
        typer.Option(help="Command that turns the first environment into the second one, whose name you choose."),
    ] = None,
    revert: Annotated[str, typer.Option(help="Command that undoes --apply, between blocks and at the end.")] = "",
    differs_in: Annotated[list[str] | None, typer.Option(help=f"{DIFFERS_IN} Default: anything.")] = None,
    on: OnOption = "machine",
    boots: Annotated[
        bool,
        typer.Option(
            "--boots", help="Reboot the machine after --apply and after --revert; a guest gets a new QEMU process."
        ),
    ] = False,
    command_limit_s: Annotated[
        float, typer.Option(help="Time limit of --apply and of --revert in seconds.", min=1)
    ] = 600.0,
    link: LinkOption = "unshaped",
    inventory: InventoryOption = None,
    limit: LimitOption = None,
    resume: ResumeOption = None,
    dry_run: DryRunOption = False,
    junit: Annotated[
        Path | None, typer.Option(help="Write the verdicts to this file as a JUnit report.", dir_okay=False)
    ] = None,
    results: ResultsOption = RESULTS,
    as_json: JsonOption = False,
) -> None:
    """Compare two environments and answer in one sentence; the exit code says whether the second is worse.

    Without --inventory it measures in the embedded lab, and creates the guests that the lab lacks.
    """
    check_metrics(metric or [])
    if baseline == other:
        raise UserError(f"{baseline} is both sides; name two environments")
    if bool(apply) != bool(revert):
        raise UserError("--apply and --revert go together: the first environment is what --revert restores")
    if differs_in and not apply:
        raise UserError("--differs-in says what --apply changes; give that too, or leave it out")
    change = Change(
        apply=apply, revert=revert, differs_in=differs_in or None, on=on, boots=boots, limit_s=command_limit_s
    ) if apply else None  # fmt: skip
    keys = pair_keys(baseline, other, server, workload, blocks=blocks, duration_s=duration_s, link=link, change=change)
    check_folders({"--junit": junit})
    adhoc = Adhoc(keys, results, inventory, limit, resume)
    planned = adhoc.plan(until, at_most_min)
    _check_metrics(planned, metric or [])
    if dry_run:
        show(planned, resumed=resume is not None, as_json=as_json)
        return
    raise SystemExit(_answer(adhoc.measure(planned), metric or [], junit, as_json=as_json))


def _check_metrics(planned: "Plan", metrics: Sequence[str]) -> None:
    """Raise UserError for a metric that no load of the plan has: nothing would decide."""
    loops = {loop_of(trial.scenario.load) for trial in planned.trials}
    for name in metrics:
        if loops.isdisjoint(METRICS[name].loops):
            names = ", ".join(planned.resolved.workloads)
            raise UserError(f"--metric {name}: {names} does not measure it; give another --metric, or a --workload")


def _answer(folder: Path, metrics: Sequence[str], junit: Path | None, *, as_json: bool) -> Exit:
    from vmtoll.model.verdict_columns import verdict_rows  # noqa: PLC0415

    run, analysis = load_and_analyse(folder)
    conclusion = write_conclusion(run, analysis)
    rows = list(counted_verdicts(analysis, metrics))
    code = exit_of([verdict for _, verdict in rows])
    write_junit(junit, run.manifest.experiment.name, junit_cases(analysis, rows))
    if as_json:
        verdicts = list(verdict_rows(analysis, [verdict for _, verdict in rows]))
        print_json(conclusion.document() | {"exit": code, "verdicts": verdicts})
    else:
        conclusion.show()
        print(code.line)
    return code


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


def junit_cases(analysis: "RunAnalysis", rows: "Sequence[tuple[Comparison, Verdict]]") -> Iterator[Case]:
    """A test case for each verdict: worse fails, undecided is skipped."""
    from vmtoll.model.verdict import Kind  # noqa: PLC0415
    from vmtoll.report.words import METRIC_LABELS, labels_of, sides_of, verdict_text  # noqa: PLC0415

    labels, sides = labels_of([comparison.scenario for comparison, _ in rows]), sides_of(analysis.comparisons)
    outcomes = {Kind.SLOWER: "failure", Kind.UNDECIDED: "skipped", Kind.NOT_JUDGED: "skipped"}
    for comparison, verdict in rows:
        name = f"{labels[comparison.scenario]}: {METRIC_LABELS[verdict.metric.name].label}"
        message = verdict_text(verdict, sides(comparison))
        yield Case(f"vmtoll.ab.{comparison.arm}", name, outcomes.get(verdict.kind, ""), message)

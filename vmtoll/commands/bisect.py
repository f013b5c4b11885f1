"""The command `bisect`: find the first of many candidates that costs performance, with one error for all steps."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from vmtoll.bisect import search, store
from vmtoll.bisect.builds import Builds
from vmtoll.bisect.candidates import commit_of, of_file, of_git
from vmtoll.commands.adhoc import lab_for
from vmtoll.commands.answer import print_either
from vmtoll.commands.help import ERROR, describe
from vmtoll.commands.options import (
    DIFFERS_IN,
    DurationOption,
    InventoryOption,
    JsonOption,
    LimitOption,
    LinkOption,
    OnOption,
    ResultsOption,
    UntilOption,
    check_metrics,
)
from vmtoll.commands.outcome import Exit
from vmtoll.commands.plans import check_time, requests_of, requests_text
from vmtoll.commands.progress import Progress
from vmtoll.model.bisection import Bisection, SittingAnswer, SittingResult
from vmtoll.model.errors import UserError, VmtollError
from vmtoll.model.metric import METRICS
from vmtoll.model.trial import METAL
from vmtoll.model.until import Until
from vmtoll.paths import RESULTS
from vmtoll.runner.run import Plan
from vmtoll.shell import say
from vmtoll.spec.catalog import Registry
from vmtoll.spec.documents import Keys

# What a build changes that is put on the machine under test, and needs no boot.
SERVER_BINARY = "binary"
FOLDER = "bisect"  # in the results folder
DEFAULT_UNTIL = Until(half_width_pct=1.0, at_most_min=10.0)

describe(
    "bisect",
    "vmtoll bisect --git ~/src/lighttz --good v1.2 --bad main --build 'make -C {folder}' \\\n"
    "        --apply 'cp {folder}/build/lighttz /opt/lighttz' \\\n"
    "        --revert 'cp /opt/lighttz.installed /opt/lighttz' --server lighttz --metric cpu",
    "vmtoll bisect --candidates qemu.txt --apply 'ln -sfn {candidate} /usr/local/bin/qemu' \\\n"
    "        --revert 'ln -sfn /usr/bin/qemu-system-x86_64 /usr/local/bin/qemu' \\\n"
    "        --machine kvm-default --on host --boots -i lab.yml",
    "git bisect run vmtoll bisect --git . --good v1.2 --bad main --judge HEAD --build … --apply …",
    exits={
        Exit.WORSE: "with --judge: the candidate is bad",
        Exit.UNDECIDED: "several candidates are left (with --judge: undecided, or skipped)",
        ERROR: "error, or the known good and the known bad candidate do not differ",
        2: "",
    },
)


def bisect(
    apply: Annotated[
        str,
        typer.Option(help="Command that installs a candidate on the machine; may contain {candidate} and {folder}."),
    ],
    candidates: Annotated[
        Path | None,
        typer.Option(help="File with one candidate per line, from good to bad.", exists=True, dir_okay=False),
    ] = None,
    git: Annotated[
        Path | None,
        typer.Option(help="Repository whose commits from --good to --bad are the candidates.", file_okay=False),
    ] = None,
    good: Annotated[
        str | None, typer.Option(help="Known good candidate or commit (default: the first listed).")
    ] = None,
    bad: Annotated[str | None, typer.Option(help="Known bad candidate or commit (default: the last listed).")] = None,
    build: Annotated[
        str,
        typer.Option(
            help="Command that builds a candidate on this machine, in its {folder}; vmtoll skips candidates that fail."
        ),
    ] = "",
    revert: Annotated[
        str,
        typer.Option(
            help="Command that restores the machine, at the end and after a kill; without it the last candidate stays."
        ),
    ] = "",
    judge: Annotated[
        str | None, typer.Option(help="Judge only this candidate, with an exit code for `git bisect run`.")
    ] = None,
    skip: Annotated[list[str] | None, typer.Option(help="Candidate to skip (repeatable).")] = None,
    machine: Annotated[str, typer.Option(help="Environment whose machine gets the candidates.")] = METAL,
    differs_in: Annotated[
        list[str] | None,
        typer.Option(help=f"{DIFFERS_IN} Default: anything; with --build and without --boots: binary."),
    ] = None,
    on: OnOption = "machine",
    boots: Annotated[
        bool, typer.Option("--boots", help="Reboot the machine after --apply; a guest gets a new QEMU process.")
    ] = False,
    command_limit_s: Annotated[
        float, typer.Option(help="Time limit of --build, --apply and --revert in seconds.", min=1)
    ] = 600.0,
    server: Annotated[str, typer.Option(help="Server to load.")] = "nginx",
    workload: Annotated[str, typer.Option(help="Workload; must define exactly one load.")] = "site-steady",
    metric: Annotated[
        str | None, typer.Option(help=f"Metric that decides: {', '.join(METRICS)} (default: the load's main one).")
    ] = None,
    until: UntilOption = None,
    blocks: Annotated[int, typer.Option(help="Blocks of a step before its first check.", min=6)] = 8,
    duration_s: DurationOption = 2.0,
    at_most_min: Annotated[
        float | None, typer.Option(help="Refuse to start if it could take more than this many minutes.", min=0)
    ] = None,
    link: LinkOption = "unshaped",
    inventory: InventoryOption = None,
    limit: LimitOption = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Print the number of candidates and how long it could take; measure nothing."),
    ] = False,
    results: ResultsOption = RESULTS,
    as_json: JsonOption = False,
) -> None:
    """Find the first candidate that costs performance: kernel packages, QEMU binaries, commits of a server.

    Each step measures the known good and the known bad candidate again, and one other, until that one is decided or
    the step's minutes (--until, default 1,10) are over; the 5% of error is split over all steps. vmtoll stops if
    known good and known bad do not differ. The same command continues after a kill.
    """
    check_metrics([metric] if metric is not None else [])
    if (candidates is None) == (git is None):
        raise UserError("give either --candidates FILE or --git REPOSITORY")
    if "{candidate}" not in apply and "{folder}" not in apply:
        raise UserError("--apply: must contain {candidate} or {folder}; otherwise every candidate is the same")
    from vmtoll.bisect.course import Course  # noqa: PLC0415 (these load the analysis)
    from vmtoll.bisect.sitting import Design, Sitter, preview  # noqa: PLC0415

    keys = {
        "servers": [server], "workloads": [workload], "blocks": blocks, "warmup_s": min(0.5, duration_s),
        "duration_s": duration_s, "link": link,
    }  # fmt: skip
    change: Keys = {
        "of": machine, "revert": revert, "on": on, "boots": boots, "limit_s": command_limit_s,
        **({"differs_in": differs_in} if differs_in else {}),
    }  # fmt: skip
    listed = of_git(git, good, bad) if git else of_file(candidates, good, bad) if candidates else []
    # Everything that a kept bisection must agree with.
    asked = {
        "apply": apply, "build": build, "metric": metric or "", "inventory": inventory or "", **change, **keys,
        "git": git.resolve() if git else "",
    }  # fmt: skip
    request = {name: str(value) for name, value in asked.items()}
    if build and not differs_in and on == "machine" and not boots:
        change["differs_in"] = [SERVER_BINARY]
    design = Design(keys, change, apply, METRICS[metric] if metric else None, until or DEFAULT_UNTIL, Registry())
    with store.opened(results / FOLDER / store.name_of(listed, request), listed, request) as record:
        builds = Builds(record.builds, git, build, command_limit_s)
        planned, deciding = preview(design, record, builds, inventory, limit)
        takes = _takes(record.bisection, planned, design.until, is_one=judge is not None)
        minutes, way_out = takes["at_most_min"], "give --until fewer minutes per step, or fewer candidates"
        check_time(minutes, at_most_min, f"could take {minutes:g}", way_out)
        judged = _judged(git, listed, judge) if judge else None
        if dry_run:
            print_either(as_json, lambda: takes | {"candidates": listed}, lambda: _takes_text(takes))
            return
        _skip(record, git, skip or [])
        say(_takes_text(takes))
        try:
            with Progress() as progress:
                sitter = Sitter(record, design, builds, lambda of: inventory or lab_for(of), limit, progress)
                course = Course(sitter, deciding, git)
                if judged:
                    code = _EXITS.get(course.judge(judged), Exit.UNDECIDED)
                else:
                    code = Exit.NOT_WORSE if course.search() else Exit.UNDECIDED
        except VmtollError:
            record.remove_builds()
            raise
        record.remove_builds(keep=[listed[0], listed[-1]] if judged else [])
        result = {"exit": code, "judged": judged}
        print_either(as_json, lambda: course.document() | result, lambda: course.lines(judged))
    raise SystemExit(code)


# What a candidate is, as `git bisect run` reads it; undecided for all others.
_EXITS = {
    SittingAnswer.GOOD: Exit.NOT_WORSE, SittingAnswer.BAD: Exit.WORSE, SittingAnswer.BETWEEN: Exit.WORSE,
}  # fmt: skip


def _judged(repository: Path | None, listed: Sequence[str], judge: str) -> str:
    """The candidate to judge alone. A commit may be beside the first parents, as `git bisect` chooses them. Raises
    UserError for one that no list or repository has.
    """
    if repository:
        return commit_of(repository, judge)
    if judge not in listed:
        raise UserError(f"--judge {judge}: is not in the list of candidates; correct it, or add it there")
    return judge


def _skip(record: store.BisectionStore, repository: Path | None, skipped: Sequence[str]) -> None:
    """Record the candidates that the user wants to skip. Raises UserError for an anchor or an unknown one."""
    for text in skipped:
        candidate = commit_of(repository, text) if repository else text
        if candidate not in record.bisection.candidates[1:-1]:
            raise UserError(
                f"--skip {text}: is not between the known good and the known bad candidate; correct it, or leave it out"
            )
        if candidate not in record.bisection.answers():
            sitting = search.step(record.bisection, candidate)
            record.end(SittingResult(sitting=sitting, answer=SittingAnswer.SKIPPED, why="is to be skipped (--skip)"))


def _takes(bisection: Bisection, planned: Plan, until: Until, *, is_one: bool) -> dict[str, Any]:
    """What the bisection takes at most, for programs and people; `is_one`: a single candidate, after the anchors."""
    left = search.most_sittings(bisection)
    sittings = min(left, 1 + (not search.anchors_differ(bisection))) if is_one else left
    minutes = max(until.at_most_min, planned.total_s / 60)
    return {
        "sittings": sittings, "at_most_min": round(sittings * minutes, 1),
        "first_look_blocks": len({trial.block for trial in planned.trials}),
        "requests_to_first_looks": round(sittings * requests_of(planned)),
        "servers": planned.resolved.experiment.servers, "candidates_left": len(bisection.candidates) - 2,
    }  # fmt: skip


def _takes_text(takes: Mapping[str, Any]) -> str:
    from vmtoll.report.words import plural  # noqa: PLC0415 (loads pandas)

    requests = f"{requests_text(takes['requests_to_first_looks'])} requests to {', '.join(takes['servers'])}"
    return (
        f"{plural(takes['candidates_left'], 'candidate')} between known good and known bad: at most "
        f"{plural(takes['sittings'], 'step')} and {takes['at_most_min']:g} minutes, without builds; up to the first "
        f"checks in the order of {requests}"
    )

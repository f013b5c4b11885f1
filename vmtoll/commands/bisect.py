"""The command `bisect`: find the first of many candidates that costs performance, with one error for all steps."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from vmtoll.commands.answer import print_json
from vmtoll.commands.help import ERROR, describe
from vmtoll.commands.options import (
    DIFFERS_IN,
    InventoryOption,
    JsonOption,
    LimitOption,
    ResultsOption,
    UntilOption,
)
from vmtoll.commands.outcome import Exit
from vmtoll.commands.pair import lab_for, requests_of, requests_text
from vmtoll.commands.progress import Progress
from vmtoll.model.errors import UserError, VmtollError
from vmtoll.model.metric import METRICS
from vmtoll.model.trial import METAL
from vmtoll.model.until import Until
from vmtoll.paths import RESULTS
from vmtoll.runner.run import Plan, on_machines
from vmtoll.shell import run, say
from vmtoll.spec.catalog import Registry

if TYPE_CHECKING:
    from vmtoll.bisect.sitting import Sitter
    from vmtoll.bisect.store import BisectionStore
    from vmtoll.model.bisection import SittingResult
    from vmtoll.model.metric import Metric

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


@dataclass(frozen=True)
class Asked:
    """What the command asks for: everything that a kept bisection must agree with is in `request`."""

    candidates: list[str]
    repository: Path | None
    request: Mapping[str, str]


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
    on: Annotated[
        Literal["machine", "host"], typer.Option(help="Where --apply and --revert run: the machine, or its KVM host.")
    ] = "machine",
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
    duration_s: Annotated[float, typer.Option(help="Seconds of load in a trial.", min=0.1)] = 2.0,
    at_most_min: Annotated[
        float | None, typer.Option(help="Refuse to start if it could take more than this many minutes.", min=0)
    ] = None,
    link: Annotated[str, typer.Option(help="Rate of the client's link: unshaped, 100mbit, …")] = "unshaped",
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

    Every sitting measures the good and the bad anchor again beside one candidate, until it is decided or its minutes
    (--until, default 1,10) are over; the 5% of error is split over all sittings. It refuses to begin where the anchors
    do not differ. The same command continues after a kill.
    """
    if metric is not None and metric not in METRICS:
        raise UserError(f"--metric {metric}: unknown metric; allowed: {', '.join(METRICS)}")
    if (candidates is None) == (git is None):
        raise UserError("give either --candidates FILE or --git REPOSITORY")
    if "{candidate}" not in apply and "{folder}" not in apply:
        raise UserError("--apply: must contain {candidate} or {folder}; otherwise every candidate is the same")
    keys = {
        "servers": [server], "workloads": [workload], "blocks": blocks, "warmup_s": min(0.5, duration_s),
        "duration_s": duration_s, "link": link,
    }  # fmt: skip
    change: dict[str, Any] = {
        "of": machine, "revert": revert, "on": on, "boots": boots, "limit_s": command_limit_s,
        **({"differs_in": differs_in} if differs_in else {}),
    }  # fmt: skip
    asked = _asked(candidates, git, good, bad, {
        "apply": apply, "build": build, "metric": metric or "", "inventory": str(inventory or ""), **change, **keys,
    })  # fmt: skip
    if build and not differs_in and on == "machine" and not boots:
        change["differs_in"] = [SERVER_BINARY]
    _bisect(
        asked, keys, change, apply, build, until or DEFAULT_UNTIL,
        judge=judge, skip=skip or [], metric=metric, at_most_min=at_most_min, link=link, inventory=inventory,
        limit=limit, dry_run=dry_run, results=results, as_json=as_json,
    )  # fmt: skip


def _asked(
    file: Path | None, repository: Path | None, good: str | None, bad: str | None, request: Mapping[str, Any]
) -> Asked:
    from vmtoll.bisect.candidates import of_file, of_git  # noqa: PLC0415

    named = of_git(repository, good, bad) if repository else of_file(file, good, bad) if file else []
    texts = {name: str(value) for name, value in request.items()}
    return Asked(named, repository, texts | {"git": str(repository.resolve()) if repository else ""})


def _bisect(
    asked: Asked, keys: Mapping[str, Any], change: Mapping[str, Any], apply: str, build: str, until: Until, *,
    judge: str | None, skip: list[str], metric: str | None, at_most_min: float | None, link: str,
    inventory: Path | None, limit: str | None, dry_run: bool, results: Path, as_json: bool,
) -> None:  # fmt: skip
    from vmtoll.bisect import store  # noqa: PLC0415 (these load the analysis)
    from vmtoll.bisect.builds import Builds  # noqa: PLC0415
    from vmtoll.bisect.sitting import Design, Sitter, preview  # noqa: PLC0415

    design = Design(keys, change, apply, METRICS[metric] if metric else None, until, Registry())
    folder = results / FOLDER / store.name_of(asked.candidates, asked.request)
    with store.opened(folder, asked.candidates, asked.request) as kept:
        builds = Builds(kept.builds, asked.repository, build, float(change["limit_s"]))
        planned = preview(design, kept, builds)
        if inventory:
            planned = on_machines(planned, inventory, limit)
        takes = _takes(kept, planned, until, one=judge is not None)
        _check_time(takes, at_most_min)
        candidate = _judged(asked, judge) if judge else None
        if dry_run:
            print_json(takes | {"candidates": asked.candidates}) if as_json else print(_takes_text(takes))
            return
        _skip(kept, asked, skip)

        def machines(of: Plan) -> Path:
            return inventory or lab_for(of, link)

        say(_takes_text(takes))
        try:
            with Progress() as progress:
                sitter = Sitter(kept, design, builds, machines, limit, progress)
                shown = _Shown(kept, asked, design.metric or sitter.main_metric(planned))
                code = _judge(sitter, shown, candidate) if candidate else _search(sitter, shown)
        except VmtollError:
            kept.remove_builds()
            raise
        kept.remove_builds(keep=[asked.candidates[0], asked.candidates[-1]] if candidate else [])
        shown.answer(code, candidate, as_json=as_json)
    raise SystemExit(code)


def _named(asked: Asked, candidate: str) -> str:
    """A candidate as the list has it: a commit by its hash."""
    from vmtoll.bisect.candidates import commit_of  # noqa: PLC0415

    return commit_of(asked.repository, candidate) if asked.repository else candidate


def _judged(asked: Asked, judge: str) -> str:
    """The candidate to judge alone. A commit may be beside the first parents, as `git bisect` chooses them. Raises
    UserError for one that no list or repository has.
    """
    candidate = _named(asked, judge)
    if not asked.repository and candidate not in asked.candidates:
        raise UserError(f"--judge {judge}: is not in the list of candidates; correct it, or add it there")
    return candidate


def _skip(kept: "BisectionStore", asked: Asked, skipped: list[str]) -> None:
    """Record the candidates that the user wants to skip. Raises UserError for an anchor or an unknown one."""
    from vmtoll.bisect.search import step  # noqa: PLC0415
    from vmtoll.model.bisection import SittingAnswer, SittingResult  # noqa: PLC0415

    for text in skipped:
        candidate = _named(asked, text)
        if candidate not in kept.bisection.candidates[1:-1]:
            raise UserError(
                f"--skip {text}: is not between the known good and the known bad candidate; correct it, or leave it out"
            )
        if candidate not in kept.bisection.answers():
            sitting = step(kept.bisection, candidate)
            kept.end(SittingResult(sitting=sitting, answer=SittingAnswer.SKIPPED, why="is to be skipped (--skip)"))


def _takes(kept: "BisectionStore", planned: Plan, until: Until, *, one: bool) -> dict[str, Any]:
    """What the bisection takes at most, for programs and people; `one`: a single candidate, after the anchors."""
    from vmtoll.bisect.search import anchors_differ, most_sittings  # noqa: PLC0415

    left = most_sittings(kept.bisection)
    sittings = min(left, 1 + (not anchors_differ(kept.bisection))) if one else left
    minutes = max(until.at_most_min, planned.total_s / 60)
    blocks = len({trial.block for trial in planned.trials})
    return {
        "sittings": sittings, "at_most_min": round(sittings * minutes, 1), "first_look_blocks": blocks,
        "requests_to_first_looks": round(sittings * requests_of(planned)),
        "servers": planned.resolved.experiment.servers, "candidates_left": len(kept.bisection.candidates) - 2,
    }  # fmt: skip


def _takes_text(takes: Mapping[str, Any]) -> str:
    from vmtoll.report.words import plural  # noqa: PLC0415 (loads pandas)

    requests = f"{requests_text(takes['requests_to_first_looks'])} requests to {', '.join(takes['servers'])}"
    return (
        f"{plural(takes['candidates_left'], 'candidate')} between known good and known bad: at most "
        f"{plural(takes['sittings'], 'step')} and {takes['at_most_min']:g} minutes, without builds; up to the first "
        f"checks in the order of {requests}"
    )


def _check_time(takes: Mapping[str, Any], at_most_min: float | None) -> None:
    if at_most_min is not None and takes["at_most_min"] > at_most_min:
        raise UserError(
            f"it could take {takes['at_most_min']:g} minutes, and --at-most-min is {at_most_min:g}: give --until fewer "
            "minutes per step, or fewer candidates"
        )


def _search(sitter: "Sitter", shown: "_Shown") -> Exit:
    """Measure sitting after sitting to the end."""
    from vmtoll.bisect.search import next_sitting, suspects  # noqa: PLC0415

    while (sitting := next_sitting(sitter.store.bisection)) is not None:
        shown.tell(sitter.sit_and_keep(sitting))
    is_found = len(suspects(sitter.store.bisection)) == 1 and shown.is_confirmed
    return Exit.NOT_WORSE if is_found else Exit.UNDECIDED


def _judge(sitter: "Sitter", shown: "_Shown", candidate: str) -> Exit:
    """Judge one candidate, after the anchors; a kept answer is not measured again."""
    from vmtoll.bisect.search import anchors_differ, next_sitting, step  # noqa: PLC0415
    from vmtoll.model.bisection import SittingAnswer  # noqa: PLC0415

    kept = sitter.store
    while kept.bisection.pending or not anchors_differ(kept.bisection):
        if sitting := next_sitting(kept.bisection):
            shown.tell(sitter.sit_and_keep(sitting))
    answers = {
        kept.bisection.good: SittingAnswer.GOOD,
        kept.bisection.bad: SittingAnswer.BAD,
    } | kept.bisection.answers()
    if candidate not in answers:
        finding = sitter.sit_and_keep(step(kept.bisection, candidate))
        shown.tell(finding)
        answers[candidate] = finding.answer
    return {
        SittingAnswer.GOOD: Exit.NOT_WORSE, SittingAnswer.BAD: Exit.WORSE, SittingAnswer.BETWEEN: Exit.WORSE,
    }.get(answers[candidate], Exit.UNDECIDED)  # fmt: skip


class _Shown:
    """Prints what sittings find, and the answer."""

    def __init__(self, kept: "BisectionStore", asked: Asked, metric: "Metric") -> None:
        self.kept, self.repository, self.metric = kept, asked.repository, metric

    def named(self, candidate: str) -> str:
        """A candidate by name; a commit by its short hash and its subject."""
        if self.repository is None:
            return candidate
        return run(["git", "-C", self.repository, "log", "-1", "--format=%h %s", candidate]).strip()

    def tell(self, finding: "SittingResult") -> None:
        """Print a line on an ended sitting. Raises UserError if it says that the anchors do not differ."""
        from vmtoll.model.bisection import SittingAnswer, Task  # noqa: PLC0415
        from vmtoll.report.words.bisection import finding_text, refusal_text  # noqa: PLC0415

        if finding.sitting.task is Task.ANCHORS and finding.answer is not SittingAnswer.BAD:
            raise UserError(refusal_text(finding, self.metric, self.named))
        say(finding_text(finding, self.metric, self.named))

    @property
    def is_confirmed(self) -> bool:
        """Return whether no confirmation contradicts the suspect."""
        from vmtoll.bisect.search import confirmation  # noqa: PLC0415
        from vmtoll.model.bisection import SittingAnswer  # noqa: PLC0415

        confirmed = confirmation(self.kept.bisection)
        return confirmed is None or confirmed.answer is SittingAnswer.BAD

    def answer(self, code: Exit, judged: str | None, *, as_json: bool) -> None:
        """Print the answer: lines, or one object."""
        from vmtoll.bisect import search  # noqa: PLC0415
        from vmtoll.report.words.bisection import answer_lines  # noqa: PLC0415

        if as_json:
            print_json(self.document() | {"exit": code, "judged": judged})
            return
        bisection = self.kept.bisection
        lines = answer_lines(
            bisection, self.metric, self.named, judged, suspects=search.suspects(bisection),
            confirmed=search.confirmation(bisection), cost=search.cost_of(bisection),
            contradictions=search.contradictions(bisection), spent=search.spent(bisection),
        )  # fmt: skip
        print("\n".join([*lines, *self._inside(search.suspects(bisection))]))
        print(f"steps and runs: {self.kept.folder}")

    def _inside(self, suspects: Sequence[str]) -> list[str]:
        """For a merge as the answer: how to go on among the commits that it brought in."""
        from vmtoll.bisect.candidates import inside_of  # noqa: PLC0415

        if self.repository is None or len(suspects) != 1 or not (inside := inside_of(self.repository, suspects[0])):
            return []
        good, bad = (commit[:12] for commit in inside)
        return [f"it is a merge; to search its branch: the same command with --good {good} --bad {bad}"]

    def document(self) -> dict[str, Any]:
        """The answer for programs."""
        from vmtoll.bisect import search  # noqa: PLC0415
        from vmtoll.statistics.thresholds import ALPHA  # noqa: PLC0415

        bisection = self.kept.bisection
        confirmed = search.confirmation(bisection)
        return {
            "folder": self.kept.folder, "metric": self.metric.name, "good": bisection.good, "bad": bisection.bad,
            "suspects": search.suspects(bisection), "confirmed": self.is_confirmed if confirmed else None,
            "cost": cost.model_dump(mode="json") if (cost := search.cost_of(bisection)) else None,
            "error_spent": round(ALPHA * search.spent(bisection), 6),
            "contradictions": [finding.sitting.candidate for finding in search.contradictions(bisection)],
            "findings": [finding.model_dump(mode="json") for finding in bisection.findings],
        }  # fmt: skip

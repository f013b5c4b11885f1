"""The command `judge`: is the difference real, in what any benchmark recorded?"""

import itertools
import os
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vmtoll.agent.kvm_host import cpu_list
from vmtoll.commands.answer import print_either, print_json
from vmtoll.commands.help import ERROR, describe
from vmtoll.commands.options import JsonOption, UntilOption, percent
from vmtoll.commands.outcome import Case, Exit, check_folders, write_junit
from vmtoll.files import write_durably
from vmtoll.model.errors import UserError
from vmtoll.model.message import number
from vmtoll.model.until import Look, Until, look_share, next_look
from vmtoll.shell import say
from vmtoll.statistics.thresholds import MARGIN, MIN_BLOCKS

if TYPE_CHECKING:
    from vmtoll.analysis.recorded import RecordedComparison, RecordedPage
    from vmtoll.recordings.commands import Runner, Trial
    from vmtoll.recordings.rows import Better, Row, Value

FIRST_LOOK = 6  # blocks before the first look of --until

describe(
    "judge",
    "vmtoll judge results.csv",
    "vmtoll judge --blocks old-1.json:new-1.json old-2.json:new-2.json old-3.json:new-3.json",
    "vmtoll judge results.jsonl --baseline main --gate 'parse*' --worse-than 3 --junit judge.xml",
    "vmtoll judge --file-as benchmark jobs/*/rows.jsonl",
    "vmtoll judge --run './old --bench' --run './new --bench' --until 2,10 --save page.jsonl",
    exits={
        Exit.WORSE: "a row that counts is worse than the baseline",
        Exit.UNDECIDED: "no row is worse, and at least one is undecided or not judged",
        ERROR: "error",
        2: "",
    },
)


def judge(
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILE...]",
            help="Judge files: CSV or JSON lines with block, side, metric, value; with --blocks pairs of a tool's.",
        ),
    ] = None,
    blocks: Annotated[
        bool, typer.Option("--blocks", help="Each FILE is A:B, what a tool wrote for two sides measured in turn.")
    ] = False,
    names: Annotated[str, typer.Option(metavar="A,B", help="With --blocks or --run: names of the sides.")] = "A,B",
    run: Annotated[
        list[str] | None,
        typer.Option(metavar="COMMAND", help="Instead of files: measure this command (once per side, baseline first)."),
    ] = None,
    count: Annotated[int, typer.Option(help="With --run: number of blocks, one run of every side each.", min=3)] = 20,
    until: UntilOption = None,
    aa: Annotated[
        bool, typer.Option("--aa", help="With --run: run the baseline twice in each block, as an A/A control.")
    ] = False,
    value: Annotated[
        str,
        typer.Option(
            metavar="REGEX",
            help="With --run: numbers in the output, by a pattern with a group (default: time and CPU time).",
        ),
    ] = "",
    tool_output: Annotated[
        bool, typer.Option("--tool-output", help="With --run: the output is that of a benchmark tool vmtoll knows.")
    ] = False,
    setup: Annotated[
        list[str] | None, typer.Option(metavar="COMMAND", help="With --run: run this once, first (repeatable).")
    ] = None,
    prepare: Annotated[str, typer.Option(metavar="COMMAND", help="With --run: run this before each run.")] = "",
    timeout_s: Annotated[
        float | None, typer.Option("--timeout", metavar="SECONDS", help="With --run: longest time of a run.", min=0.001)
    ] = None,
    same_output: Annotated[
        bool, typer.Option("--same-output", help="With --run: a side that prints something else is worse.")
    ] = False,
    cpu: Annotated[str, typer.Option(metavar="LIST", help="With --run: CPUs of the runs, such as 2,4-5.")] = "",
    at_most_min: Annotated[
        float | None, typer.Option(help="With --run: refuse to start if it would take longer than this.", min=0)
    ] = None,
    save: Annotated[
        Path | None, typer.Option(help="With --run: write the rows to this judge file as they come.", dir_okay=False)
    ] = None,
    baseline: Annotated[str, typer.Option(metavar="SIDE", help="Side to compare with (default: the first one).")] = "",
    control: Annotated[
        str, typer.Option(metavar="SIDE", help="Side that is the baseline measured once more (A/A control).")
    ] = "",
    better: Annotated[
        str, typer.Option(metavar="higher|lower", help="What is better, where neither file nor tool says it.")
    ] = "",
    file_as: Annotated[
        str,
        typer.Option(
            metavar="benchmark|host",
            help="Judge files of a matrix: the name of each file is its rows' benchmark, or host.",
        ),
    ] = "",
    renames: Annotated[
        list[str] | None,
        typer.Option("--renamed", metavar="OLD=NEW", help="Compare a benchmark that has another name (repeatable)."),
    ] = None,
    gate: Annotated[
        list[str] | None,
        typer.Option(metavar="GLOB", help="Benchmark or metric that decides the exit code (repeatable; default: all)."),
    ] = None,
    worse_than: Annotated[
        float,
        typer.Option(
            parser=partial(percent, most=1000),
            metavar="PERCENT",
            help="Worse only if the whole interval lies beyond this many percent.",
        ),
    ] = 0.0,
    margin: Annotated[
        float,
        typer.Option(
            parser=partial(percent, most=99), metavar="PERCENT", help="Equal if the whole interval lies within this."
        ),
    ] = 100 * MARGIN,
    junit: Annotated[
        Path | None, typer.Option(help="Write the answers to this file as a JUnit report.", dir_okay=False)
    ] = None,
    markdown: Annotated[
        Path | None, typer.Option(help="Write the table to this file as Markdown, for a job's summary.", dir_okay=False)
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Judge what any benchmark recorded: is one side worse, and is the difference real?

    A block is one turn of each side, measured next to each other; a verdict needs three, equality six. Repetitions
    within a run are replicates, not blocks. The same engine judges vmtoll's own runs, at 5% of error for all rows
    together. The keys of a judge file: docs/how-to/judge-any-benchmark.md; the tools: docs/judge-files.md.
    """
    from vmtoll.analysis.recorded import judge_rows  # noqa: PLC0415 (loads scipy)
    from vmtoll.recordings.commands import Runner, WorseError, shell  # noqa: PLC0415
    from vmtoll.recordings.rows import Better, renamed  # noqa: PLC0415

    if better and better not in list(Better):
        raise UserError(f"--better {better}: give higher or lower")
    check_folders({"--junit": junit, "--markdown": markdown, "--save": save})
    if bool(files) == bool(run):
        raise UserError("give judge files, or commands to measure: --run A --run B")
    judged = partial(
        judge_rows, better=Better(better) if better else None, margin=margin / 100, gates=gate or [],
        baseline=baseline, control=AGAIN if aa else control,
    )  # fmt: skip
    if run:
        sides = _commands(run, names.split(","), aa=aa)
        reader = _reader(value, Better(better) if better else None, tool_output=tool_output)
        runner = Runner(sides, reader, prepare, timeout_s, _cpus(cpu) if cpu else None, same_output)
        shell(setup or [], "--setup")
        try:
            of_sides = partial(judged, baseline=baseline or next(iter(sides)))  # rows come in random order
            page = _measured(runner, of_sides, count, until, at_most_min, save)
        except WorseError as error:
            _without_rows(str(error), junit, markdown, as_json=as_json)
            raise SystemExit(Exit.WORSE) from None
    else:
        page = judged(renamed(_rows(files or [], names.split(","), file_as, paired=blocks), renames or []))
    code = exit_of(page, worse_than / 100)
    write_junit(junit, "vmtoll judge", (_case(each, page, worse_than / 100) for each in page.gates))
    if markdown:
        write_durably(markdown, _markdown(page, code, is_measured=bool(run)).encode())
    if as_json:
        print_json(document(page) | {"exit": code})
    else:
        show_page(page, is_measured=bool(run))
        print(code.line)
    raise SystemExit(code)


def _rows(files: Sequence[str], names: Sequence[str], file_as: str, *, paired: bool) -> "list[Row]":
    """The rows of judge files, or of a tool's files: one of each side is a block, two files alone are two sides."""
    from vmtoll.recordings.rows import FILE_AS, Row, is_judge_file, read_files  # noqa: PLC0415

    if file_as and file_as not in FILE_AS:
        raise UserError(f"--file-as {file_as}: give {' or '.join(FILE_AS)}")
    if not paired and all(is_judge_file(Path(file)) for file in files):
        return read_files(list(map(Path, files)), file_as)
    if file_as:
        raise UserError("--file-as: is for judge files; a tool's files name their benchmarks")
    if not paired and len(files) != 2:
        raise UserError(f"{files[0]}: is not a judge file; pair a tool's files by --blocks a1:b1 a2:b2 …")
    from vmtoll.recordings.formats import read_run  # noqa: PLC0415

    turns = [_sides(each, len(names)) for each in files] if paired else [[Path(files[0])], [Path(files[1])]]
    # Two files without --blocks are all of A, then all of B.
    places = [
        (block, file, names[index if paired else block - 1])
        for block, of in enumerate(turns, start=1) for index, file in enumerate(of)
    ]  # fmt: skip
    return [Row(block, side, value) for block, file, side in places for value in read_run(file)]


def _sides(text: str, sides: int) -> list[Path]:
    """The files of `a1:b1`. Raises UserError."""
    files = [Path(each) for each in text.split(":")]
    if len(files) != sides:
        raise UserError(f"{text}: give {sides} files, one for each side: {':'.join('ab'[:sides]) or 'a:b'}")
    return files


AGAIN = "A/A"  # the baseline's second run in a block


def _commands(commands: Sequence[str], names: Sequence[str], *, aa: bool) -> dict[str, str]:
    """Name of a side → its command, the baseline first. Raises UserError."""
    if len(commands) != len(names) or len(set(names)) < len(names):
        raise UserError(f"--run: {len(commands)} commands for the sides {', '.join(names)}; give as many --names")
    sides = dict(zip(names, commands, strict=True))
    return {names[0]: commands[0], **({AGAIN: commands[0]} if aa else {}), **sides}


def _cpus(text: str) -> set[int]:
    """The CPUs of a list such as `2,4-5`. Raises UserError for another text, or CPUs that are not there."""
    try:
        cpus = {*cpu_list(text)}
    except ValueError:
        raise UserError(f"--cpu {text}: give a list of CPUs such as 2,4-5") from None
    if not cpus or not cpus <= os.sched_getaffinity(0):
        available = ", ".join(map(str, sorted(os.sched_getaffinity(0))))
        raise UserError(f"--cpu {text}: this process may use the CPUs {available}")
    return cpus


def _reader(pattern: str, better: "Better | None", *, tool_output: bool) -> "Callable[[Trial], list[Value]]":
    from vmtoll.recordings.commands import pattern_values, time_values  # noqa: PLC0415

    if tool_output:
        from vmtoll.recordings.formats import read_run  # noqa: PLC0415

        return lambda trial: read_run(trial.output)
    return pattern_values(pattern, better) if pattern else time_values


def _measured(
    runner: "Runner", judged: "Callable[..., RecordedPage]", count: int, until: Until | None,
    at_most_min: float | None, save: Path | None,
) -> "RecordedPage":  # fmt: skip
    """Run blocks until their number is reached, or as `until` says; judge them."""
    from vmtoll.recordings.rows import row_line  # noqa: PLC0415

    began = monotonic()
    for side in runner.sides:  # the first run of a program warms caches, so it does not count
        runner.trial(side)
    block_s = monotonic() - began
    least_s = until.at_most_s if until else count * block_s
    if at_most_min is not None and least_s > 60 * at_most_min:
        raise UserError(
            f"it would take about {least_s / 60:.1f} minutes, and --at-most-min is {at_most_min:g}; give a smaller "
            "--count or --until"
        )
    say(f"{f'looks from {FIRST_LOOK} blocks on' if until else f'{count} blocks'}, about {number(block_s)} s each")
    rows: list[Row] = []
    looks: list[Look] = []
    stream = save.open("w", encoding="utf-8") if save else None
    began = monotonic()
    with stream or nullcontext():
        for block in itertools.count(1):
            for row in runner.block(block):
                rows.append(row)
                if stream:
                    print(row_line(row), file=stream, flush=True)
            spent_s = monotonic() - began
            if not until:
                if block == count:
                    return judged(rows)
                continue
            is_last = spent_s + block_s > until.at_most_s and block >= MIN_BLOCKS
            if is_last or block == next_look(block - 1, FIRST_LOOK):
                share = look_share(looks, spent_s / until.at_most_s, last=is_last)
                looks.append(Look(blocks=block, measured_s=spent_s, share=share))
                page = judged(rows, share=share)
                open_rows = _open(page, until.half_width_pct / 100)
                say(f"after {block} blocks {len(open_rows)} of {len(page.gates)} rows are open")
                if is_last or not open_rows:
                    return page
    raise AssertionError("blocks have no end")


def _open(page: "RecordedPage", enough: float) -> "list[RecordedComparison]":
    """The rows that more blocks may decide."""
    from vmtoll.analysis.recorded import Answer  # noqa: PLC0415

    return [
        each for each in page.gates
        if each.answer is Answer.UNDECIDED and (each.judged.half_width is None or each.judged.half_width > enough)
    ]  # fmt: skip


def exit_of(page: "RecordedPage", least: float = 0.0) -> Exit:
    """WORSE if a gating row is worse by more than `least`, a fraction, for sure; UNDECIDED if one may be."""
    outcomes = {_outcome(each, least) for each in page.gates}
    if Exit.WORSE in outcomes:
        return Exit.WORSE
    return Exit.UNDECIDED if not outcomes or Exit.UNDECIDED in outcomes else Exit.NOT_WORSE


def _outcome(comparison: "RecordedComparison", least: float) -> Exit:
    from vmtoll.analysis.recorded import Answer, loss_of  # noqa: PLC0415

    answer = comparison.answer
    if answer is Answer.NOT_JUDGED or (answer is Answer.UNDECIDED and not least):
        return Exit.UNDECIDED
    if not least or comparison.blank or comparison.subject.better is None:
        return Exit.WORSE if answer is Answer.WORSE else Exit.NOT_WORSE
    at_best, at_worst = loss_of(comparison)
    if answer is Answer.WORSE and at_best > least:
        return Exit.WORSE
    return Exit.NOT_WORSE if at_worst <= least or answer in (Answer.BETTER, Answer.EQUAL) else Exit.UNDECIDED


def _without_rows(problem: str, junit: Path | None, markdown: Path | None, *, as_json: bool) -> None:
    """The answer on a side that does not run: it is worse, and there is nothing to compare."""
    write_junit(junit, "vmtoll judge", [Case("vmtoll.judge", "every run", "failure", problem)])
    if markdown:
        write_durably(markdown, f"**{Exit.WORSE.line}**\n\n{problem}\n".encode())
    document = {"rows": [], "problem": problem, "exit": Exit.WORSE}
    print_either(as_json, lambda: document, lambda: [problem, Exit.WORSE.line])


def _case(comparison: "RecordedComparison", page: "RecordedPage", least: float) -> Case:
    from vmtoll.report.words.recorded import size_text, why_text  # noqa: PLC0415

    subject, outcome = comparison.subject, _outcome(comparison, least)
    message = "; ".join(
        filter(None, [f"{comparison.answer}: {size_text(comparison)}", why_text(comparison, page.baseline)])
    )
    name = f"{subject.name} on {subject.host}" if subject.host else subject.name
    outcomes = {Exit.WORSE: "failure", Exit.UNDECIDED: "skipped", Exit.NOT_WORSE: ""}
    return Case(f"vmtoll.judge.{subject.side}", name, outcomes[outcome], message)


def show_page(page: "RecordedPage", *, is_measured: bool) -> None:
    """Print the table of a page."""
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    from vmtoll.report.words.recorded import HEADS, cells, page_lines, title  # noqa: PLC0415

    styles = {"worse": "red", "better": "green", "undecided": "yellow", "not judged": "yellow"}
    table = Table(box=None, pad_edge=False, title=title(page), title_justify="left")
    for position, head in enumerate(HEADS):
        table.add_column(head, overflow="fold", no_wrap=position in (1, 2, 3))
    for comparison in page.comparisons:
        table.add_row(*cells(comparison, page), style=styles.get(comparison.answer, ""))
    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        console.width = 200
    console.print(table)
    for line in page_lines(page, is_measured=is_measured):
        console.print(line)


def _markdown(page: "RecordedPage", code: Exit, *, is_measured: bool) -> str:
    from vmtoll.report.words.recorded import HEADS, cells, page_lines, title  # noqa: PLC0415

    def row(texts: Sequence[str]) -> str:
        return f"| {' | '.join(text.replace('|', chr(92) + '|') for text in texts)} |"

    lines = [row(HEADS), row(["---"] * len(HEADS)), *(row(cells(each, page)) for each in page.comparisons)]
    return "\n".join(
        [f"**{title(page)}: {code.line}**", "", *lines, "", *page_lines(page, is_measured=is_measured), ""]
    )


def document(page: "RecordedPage") -> dict[str, Any]:
    """A page as JSON."""
    from vmtoll.report.words.recorded import why_text  # noqa: PLC0415

    return {
        "baseline": page.baseline,
        "control": page.control or None,
        "hosts": list(page.hosts),
        "lacking": {side: list(names) for side, names in page.lacking.items()},
        "maybe_renamed": [list(pair) for pair in page.alike],
        "rows": [
            {
                "benchmark": each.subject.benchmark, "metric": each.subject.metric, "unit": each.subject.unit,
                "side": each.subject.side, "host": each.subject.host, "better": each.subject.better,
                "gate": each.is_gate, "answer": each.answer, "because": each.blank or each.judged.because,
                "why": why_text(each, page.baseline),
                "ratio": each.judged.estimate and each.judged.estimate.value,
                "low": each.judged.estimate and each.judged.estimate.low,
                "high": each.judged.estimate and each.judged.estimate.high,
                "confidence": each.judged.confidence, "by_every_block": each.judged.by_every_block,
                "baseline_level": each.judged.baseline.level, "level": each.judged.compared.level,
                "blocks": each.judged.blocks, "boots": each.judged.boots,
                "blocks_needed": each.judged.blocks_needed, "detectable": each.detectable,
                "p": each.judged.tests.difference_holm, "p_unequal": each.judged.tests.equivalence_holm,
                "if_nothing_drifted": each.unpaired and {
                    "ratio": each.unpaired.value, "low": each.unpaired.low, "high": each.unpaired.high,
                },
            }
            for each in page.comparisons
        ],
    }  # fmt: skip

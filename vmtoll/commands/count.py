"""The command `count`: instructions per request, on an emulated host."""

import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vmtoll.commands.answer import print_json
from vmtoll.commands.help import ERROR, NOTHING_VALID, describe
from vmtoll.commands.options import JsonOption, ResultsOption, SuiteOption
from vmtoll.commands.outcome import Exit
from vmtoll.model.errors import UserError
from vmtoll.paths import RESULTS
from vmtoll.shell import say

if TYPE_CHECKING:
    from vmtoll.analysis.recorded import RecordedPage
    from vmtoll.counting.boots import Counts
    from vmtoll.counting.machine import Load
    from vmtoll.counting.requirements import Machine
    from vmtoll.counting.sides import Side
    from vmtoll.recordings.rows import Row

TOP = 20  # symbols of each level that --profile prints

describe(
    "count",
    "vmtoll count",
    "vmtoll count guest guest+vhost-off",
    "vmtoll count --against results/count/20261129T190000Z",
    "vmtoll count guest --profile",
    exits={
        Exit.WORSE: "with --against: a side takes more instructions than before",
        NOTHING_VALID: "boots of a side differ by more than 2%",
        Exit.UNDECIDED: "with --against: no side takes more, and at least one is undecided",
        ERROR: "error",
        2: "",
    },
)


def count(
    sides: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[SIDE...]",
            help="metal or guest, each with changes: +close, +64k, +host-mitigations-off; of a guest also +vhost-off, "
            "+event-idx-off, +guest-mitigations-off. Default: metal guest. The first is the baseline.",
        ),
    ] = None,
    boots: Annotated[int, typer.Option(help="Boots of each side.", min=1)] = 3,
    windows: Annotated[int, typer.Option(help="Windows of each side in a boot.", min=2)] = 5,
    requests: Annotated[int, typer.Option(help="Requests in a window.", min=1)] = 400,
    against: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Compare each side with this earlier count.", file_okay=False, exists=True),
    ] = None,
    profile: Annotated[
        bool, typer.Option("--profile", help=f"Also print the {TOP} symbols of each level that take most instructions.")
    ] = False,
    suite: SuiteOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the preconditions; count nothing.")] = False,
    results: ResultsOption = RESULTS,
    as_json: JsonOption = False,
) -> None:
    """Count the instructions of a request, by level, and the exits of the guest.

    QEMU emulates an AMD host with KVM, in which a client sends requests to lighttz, on the host (metal) or in a guest.
    The counts do not depend on this machine's load. They say nothing about times: docs/how-to/count-instructions.md.
    """
    from vmtoll.builds import emulator  # noqa: PLC0415 (few commands need these)
    from vmtoll.builds.suite import lab_release  # noqa: PLC0415
    from vmtoll.counting import requirements  # noqa: PLC0415
    from vmtoll.counting.machine import Load  # noqa: PLC0415
    from vmtoll.counting.sides import side  # noqa: PLC0415

    names = sides or ["metal", "guest"]
    if len(set(names)) < len(names):
        raise UserError(f"{' '.join(names)}: name each side once")
    wanted, release = [side(name) for name in names], lab_release(suite)
    qemu = emulator.ensure(say, build=not dry_run)
    machine = requirements.Machine(qemu, requirements.disk_of(release), release)
    if dry_run:
        from vmtoll.commands.preflight import print_results  # noqa: PLC0415

        raise SystemExit(print_results([("count", each) for each in machine.checks()], as_json=as_json))
    folder = results / "count" / time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    load = Load(requests=requests, windows=windows)
    code = _counted(machine, wanted, load, boots, folder, against, profile=profile, as_json=as_json)
    raise SystemExit(code)


def _counted(
    machine: "Machine", sides: "Sequence[Side]", load: "Load", boots: int, folder: Path, against: Path | None, *,
    profile: bool, as_json: bool,
) -> int:  # fmt: skip
    """Count, write the record, print what was found; return the exit code."""
    from vmtoll.builds import counting, emulator, servers  # noqa: PLC0415
    from vmtoll.counting import record  # noqa: PLC0415
    from vmtoll.counting.boots import count as count_sides  # noqa: PLC0415
    from vmtoll.counting.boots import rows  # noqa: PLC0415
    from vmtoll.counting.machine import Parts  # noqa: PLC0415
    from vmtoll.counting.requirements import require  # noqa: PLC0415
    from vmtoll.version import commit  # noqa: PLC0415

    disk = require(machine)
    parts = Parts(machine.qemu, disk, counting.ensure(), servers.program("lighttz"))
    began = time.monotonic()
    counts = count_sides(parts, sides, load, boots, say, profile=profile)
    about = {
        "qemu": emulator.version_of(machine.qemu), "suite": machine.release.suite, "image": disk.parent.name,
        "commit": commit(), "took_s": round(time.monotonic() - began),
    }  # fmt: skip
    document = record.write(folder, counts, load, about)
    counted = rows(counts, load)
    page = _judged(counted, against, sides)
    code = _exit(document, page, is_against=against is not None)
    if as_json:
        from vmtoll.commands.judge import document as page_document  # noqa: PLC0415

        print_json(document | {"folder": folder, "judged": page and page_document(page), "exit": code})
        return code
    _show(document)
    if page:
        from vmtoll.commands.judge import show_page  # noqa: PLC0415

        show_page(page, is_measured=True)
    if profile:
        _show_profile(counts, load)
    print(f"{folder}: {record.RECORD}, {record.ROWS}")
    return code


def _judged(counted: "list[Row]", against: Path | None, sides: "Sequence[Side]") -> "RecordedPage | None":
    """Sides against the first, or against an earlier count; None for one side alone."""
    from vmtoll.analysis.recorded import judge_rows  # noqa: PLC0415
    from vmtoll.counting import record  # noqa: PLC0415
    from vmtoll.counting.boots import METRIC  # noqa: PLC0415

    if against:
        return judge_rows(record.against(against, counted), baseline="before", gates=[f"*{METRIC}"])
    return judge_rows(counted, baseline=sides[0].name, gates=[METRIC]) if len(sides) > 1 else None


def _exit(document: Mapping[str, Any], page: "RecordedPage | None", *, is_against: bool) -> int:
    from vmtoll.commands.judge import exit_of  # noqa: PLC0415

    apart = {side: of["boots_apart"] for side, of in document["sides"].items()}
    if unsteady := [name for name, share in apart.items() if share > document["most_boots_apart"]]:
        for name in unsteady:
            print(f"{name}: no valid count: its boots differ by {apart[name]:.1%}", file=sys.stderr)
        return NOTHING_VALID
    return exit_of(page) if page and is_against else 0


def _show(document: Mapping[str, Any]) -> None:
    """Print the figures of each side, the toll against the first one, exits by reason."""
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    print(f"{document['label']}; per request")
    sides = document["sides"]
    first = next(iter(sides.values()))["per_request"]["instructions"]
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for name in sides:
        table.add_column(name, justify="right")
    for figure in next(iter(sides.values()))["per_request"]:
        digits = 2 if figure == "guest entries" else 0
        table.add_row(figure, *(f"{of['per_request'][figure]:,.{digits}f}" for of in sides.values()))
    table.add_row("toll", *(f"{of['per_request']['instructions'] / first:.3f}×" for of in sides.values()))
    table.add_row("boots differ by", *(f"{of['boots_apart']:.2%} ({of['boots']})" for of in sides.values()))
    for reason in dict.fromkeys(reason for of in sides.values() for reason in of["exits"]):
        table.add_row(f"exits: {reason}", *(f"{of['exits'].get(reason, 0):.2f}" for of in sides.values()))
    Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else 160).print(table)


def _show_profile(counts: "Counts", load: "Load") -> None:
    """Print the symbols of each side and level that take most instructions."""
    from vmtoll.counting.boots import profile_rows  # noqa: PLC0415

    printed: Counter[tuple[str, str]] = Counter()
    for side, level, symbol, per_request in profile_rows(counts, load):
        printed[side, level] += 1
        if printed[side, level] <= TOP:
            print(f"{side}  {level:5}  {per_request:10,.1f}  {symbol}")

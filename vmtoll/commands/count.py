"""The command `count`: instructions per request, on an emulated host."""

import sys
import tempfile
import time
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
    from vmtoll.counting.machine import Load, Replacements
    from vmtoll.counting.record import Record
    from vmtoll.counting.requirements import Machine
    from vmtoll.counting.sides import Side
    from vmtoll.recordings.rows import Row

describe(
    "count",
    "vmtoll count",
    "vmtoll count guest guest+vhost-off",
    "vmtoll count --against results/count/20261129T190000Z",
    "vmtoll count guest --profile",
    "vmtoll count --kernel linux-image-6.19-rc1.deb --against results/count/20261129T190000Z",
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
            help="metal or guest, each with changes: +close, +64k, +host-mitigations-off; guest also with +vhost-off, "
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
    kernel: Annotated[
        Path | None,
        typer.Option(metavar="DEB", help="Kernel of the host, as a Debian package.", dir_okay=False, exists=True),
    ] = None,
    guest_kernel: Annotated[
        Path | None,
        typer.Option(metavar="DEB", help="Kernel of the guest, as a Debian package.", dir_okay=False, exists=True),
    ] = None,
    qemu: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="QEMU that runs the guest: a program with libraries that the image has.",
            dir_okay=False,
            exists=True,
        ),
    ] = None,
    profile: Annotated[
        bool, typer.Option("--profile", help="Also print the 20 symbols of each level that take most instructions.")
    ] = False,
    suite: SuiteOption = None,
    results: ResultsOption = RESULTS,
    as_json: JsonOption = False,
) -> None:
    """Count the instructions of a request, by level, and the exits of the guest.

    QEMU emulates an AMD host with KVM, in which a client sends requests to lighttz, on the host (metal) or in a guest.
    The counts do not depend on this machine's load. They say nothing about times: docs/how-to/count-instructions.md.
    `vmtoll preflight --count` prints what this machine lacks; `vmtoll show` and `vmtoll report` read a count's folder.
    """
    from vmtoll.counting import requirements  # noqa: PLC0415 (few commands need these)
    from vmtoll.counting.machine import Load, Replacements  # noqa: PLC0415
    from vmtoll.counting.record import earlier  # noqa: PLC0415
    from vmtoll.counting.sides import side  # noqa: PLC0415

    names = sides or ["metal", "guest"]
    if len(set(names)) < len(names):
        raise UserError(f"{' '.join(names)}: name each side once")
    wanted, machine = [side(name) for name in names], requirements.this_machine(suite)
    if profile and guest_kernel != kernel:
        raise UserError("--profile needs the same kernel on host and guest; give --kernel and --guest-kernel the same "
                        "package")  # fmt: skip
    before = earlier(against, names) if against else []
    folder = results / "count" / time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    load = Load(requests=requests, windows=windows)
    replacements = Replacements(kernel, guest_kernel, qemu)
    record = _counted(machine, wanted, load, boots, folder, before, replacements, profile=profile)
    raise SystemExit(show_count(record, as_json=as_json, is_written=True))


def _counted(
    machine: "Machine", sides: "Sequence[Side]", load: "Load", boots: int, folder: Path, before: "Sequence[Row]",
    replacements: "Replacements", *, profile: bool,
) -> "Record":  # fmt: skip
    """Count and write the record."""
    from vmtoll.builds import counting, emulator, servers  # noqa: PLC0415
    from vmtoll.counting import record  # noqa: PLC0415
    from vmtoll.counting.boots import count as count_sides  # noqa: PLC0415
    from vmtoll.counting.machine import Parts  # noqa: PLC0415
    from vmtoll.counting.requirements import require  # noqa: PLC0415
    from vmtoll.version import commit  # noqa: PLC0415

    disk = require(machine)
    qemu = emulator.ensure(say)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="vmtoll-count-") as folder_of_kernels:
        parts = replacements.unpacked(
            Parts(qemu, disk, counting.ensure(), servers.program("lighttz")), Path(folder_of_kernels)
        )
        counts = count_sides(parts, sides, load, boots, say, profile=profile)
        about = {
            "qemu": emulator.version_of(qemu), "suite": machine.release.suite, "image": disk.parent.name,
            "guest_kernel": parts.guest.release, "replacements": replacements.names, "commit": commit(),
            "took_s": round(time.monotonic() - began),
        }  # fmt: skip
    return record.write(folder, counts, load, about, before)


def show_count(record: "Record", *, as_json: bool, is_written: bool) -> int:
    """Print a count with its verdicts, and write its report if `is_written`; return the exit code."""
    from vmtoll.commands.judge import document, exit_of, show_page  # noqa: PLC0415
    from vmtoll.report import counts  # noqa: PLC0415

    page, invalid = record.judged(), counts.invalid_texts(record.document)
    report = counts.write_report(record.folder, record.document, page, record.profile) if is_written else None
    code = NOTHING_VALID if invalid else exit_of(page) if page and record.before else 0
    if as_json:
        about = {"folder": record.folder, "report": report, "judged": page and document(page), "exit": code}
        print_json(dict(record.document) | about)
        return code
    _show(record.document, list(counts.table(record.document)))
    if page:
        show_page(page, is_measured=True)
    for side, level, symbols in counts.top_symbols(record.profile):
        for symbol, per_request in symbols:
            print(f"{side}  {level:5}  {per_request:10,.1f}  {symbol}")
    for text in invalid:
        print(text, file=sys.stderr)
    print(f"report: {report}\ntable:  {record.folder}/trials.csv" if report else f"record: {record.folder}")
    return code


def _show(document: "Mapping[str, Any]", rows: "Sequence[tuple[str, ...]]") -> None:
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    print(f"{document['label']}; per request")
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for name in document["sides"]:
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(*row)
    Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else 160).print(table)

"""The command `show`: a run on the terminal."""

from typing import Annotated

import typer

from vmtoll.commands import values
from vmtoll.commands.answer import print_json, print_text
from vmtoll.commands.help import describe
from vmtoll.commands.options import JsonOption, RunArgument
from vmtoll.model.errors import UserError
from vmtoll.model.metric import METRICS
from vmtoll.spec.catalog import unknown

describe(
    "show",
    "vmtoll show results/latest",
    "vmtoll show results/latest --metric throughput --server nginx",
)


def show(
    folder: RunArgument,
    metric: Annotated[
        list[str] | None,
        typer.Option("--metric", metavar="NAME", help=f"Only this metric (repeatable): {', '.join(METRICS)}."),
    ] = None,
    server: Annotated[
        list[str] | None,
        typer.Option("--server", metavar="NAME", help="Only this server (repeatable).", autocompletion=values.servers),
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Every metric, also those that say nothing under their load.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Print a run, a bundle or a count as a table: both sides' values, the ratio with its interval, the verdict.

    Below it: what widens the verdicts most, and what would decide the open ones. vmtoll judges the run again and writes
    nothing.
    """
    from vmtoll.analysis.verdict import analyse  # noqa: PLC0415 (loads the analysis)
    from vmtoll.commands.count import show_count  # noqa: PLC0415
    from vmtoll.counting.record import is_count  # noqa: PLC0415
    from vmtoll.counting.record import read as read_count  # noqa: PLC0415
    from vmtoll.model.verdict_columns import verdict_rows  # noqa: PLC0415
    from vmtoll.publish.bundle import open_run  # noqa: PLC0415
    from vmtoll.report.terminal import rows_of, summary  # noqa: PLC0415
    from vmtoll.report.words import remarks, sentence  # noqa: PLC0415

    metrics, servers = metric or [], server or []
    if is_count(folder):
        if metrics or servers:
            raise UserError(f"{folder}: a count of instructions; leave out --metric and --server")
        show_count(read_count(folder), as_json=as_json, is_written=False)
        return
    _check("metric", metrics, list(METRICS))
    run = open_run(folder)
    _check("server", servers, sorted({scenario.server for scenario in run.scenarios}))
    analysis = analyse(run)
    rows = rows_of(analysis, metrics, servers, with_inapplicable=every)
    if as_json:
        verdicts = list(verdict_rows(analysis, [verdict for _, verdict in rows]))
        document = {"run": run.manifest.run_id, "answer": sentence(analysis), "remarks": remarks(run, rows)}
        print_json(document | {"verdicts": verdicts})
    else:
        print_text(summary(run, analysis, rows))


def _check(kind: str, names: list[str], known: list[str]) -> None:
    for name in names:
        if name not in known:
            raise UserError(unknown(kind, name, known))

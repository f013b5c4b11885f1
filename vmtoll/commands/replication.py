"""The command `replication`."""

from pathlib import Path
from typing import Annotated

import typer

from vmtoll.commands import batch, values
from vmtoll.commands.answer import answer
from vmtoll.commands.conclude import replication_page
from vmtoll.commands.help import describe
from vmtoll.commands.options import JsonOption, ResultsOption, outside_bundles
from vmtoll.paths import RESULTS

describe("replication", "vmtoll replication", "vmtoll replication results/php-2006/* --output page.html")


def replication(
    folders: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Folders of runs (default: the newest `run all`).", autocompletion=values.runs, exists=True
        ),
    ] = None,
    output: Annotated[
        Path, typer.Option(help="File of the report; an earlier one is replaced.", callback=outside_bundles)
    ] = RESULTS / batch.PAGE,
    results: ResultsOption = RESULTS,
    as_json: JsonOption = False,
) -> None:
    """Write the report on published claims again: confirmed, refuted or inconclusive here."""
    answer({"page": replication_page(folders or batch.newest_runs(results), output)}, as_json=as_json)

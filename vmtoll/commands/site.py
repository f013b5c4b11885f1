"""The command `site`."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from vmtoll.commands.answer import answer
from vmtoll.commands.help import describe
from vmtoll.commands.options import JsonOption, ResultsOption, outside_bundles
from vmtoll.paths import RESULTS
from vmtoll.runs.folder import runs_in

describe("site", "vmtoll site --output public --from bundles", exits={1: "a run or bundle was refused"})


def site(
    output: Annotated[
        Path, typer.Option(help="Folder to write; an earlier site there is replaced.", callback=outside_bundles)
    ] = Path("site"),
    results: ResultsOption = RESULTS,
    contributed: Annotated[
        list[Path] | None,
        typer.Option("--from", help="A bundle, or a folder of bundles (repeatable).", exists=True, file_okay=False),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Write a static page over all runs, to filter, compare and link them.

    It includes the bundles in results/contributed/ and --from. vmtoll checks each one first, leaves out those that were
    altered, still have machine names or are incomplete, and prints why.
    """
    from vmtoll.publish.contributed import admit, bundles  # noqa: PLC0415 (loads the analysis)
    from vmtoll.report.explorer import write_site  # noqa: PLC0415

    runs = [folder.name for folder in runs_in(results) if folder.parent.name != "contributed"]
    admitted, refused = admit(bundles(results, contributed or ()), runs)
    page = write_site(results, output, {item.name: item.run for item in admitted}, refused.append)
    for sentence in refused:
        print(f"vmtoll: refused: {sentence}", file=sys.stderr)
    answer({"site": page} | ({"refused": refused} if as_json else {}), as_json=as_json)
    raise SystemExit(1 if refused else 0)

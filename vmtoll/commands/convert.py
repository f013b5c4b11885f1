"""The command `convert`: stored runs of an older schema."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from vmtoll.commands.answer import print_json
from vmtoll.commands.help import describe
from vmtoll.commands.options import JsonOption
from vmtoll.model.errors import UserError

describe("convert", "vmtoll convert results/tails/20261125T230019Z-dfb4", "vmtoll convert results")


def convert(
    folders: Annotated[
        list[Path], typer.Argument(metavar="FOLDER...", help="Runs, or folders of results with runs below.")
    ],
    as_json: JsonOption = False,
) -> None:
    """Convert stored runs of an older schema to the present one.

    All values stay the same. Bundles are sealed, so vmtoll reads older ones as they are. If a conversion was killed,
    start it again.
    """
    from vmtoll.model.run import SCHEMA  # noqa: PLC0415

    before: dict[str, int] = {}
    for run in dict.fromkeys(_runs(folders)):
        schema = before[str(run)] = convert_run(run)
        if not as_json:
            print(f"{run}: schema {SCHEMA}" + (" already" if schema == SCHEMA else f", was {schema}"))
    if as_json:
        print_json({"schema": SCHEMA, "schema_before": before})


def _runs(folders: Iterable[Path]) -> Iterator[Path]:
    """The runs among and below these folders, without bundles. Raises UserError for a folder that has none."""
    from vmtoll.runs.folder import MANIFEST, SUMS, runs_in, runs_of  # noqa: PLC0415

    for folder in folders:
        runs = [folder] if (folder / MANIFEST).is_file() else [*runs_of(folder), *runs_in(folder)]
        if not runs:
            raise UserError(f"{folder}: no run in it; give results/<experiment>/<run-id>, or a folder of results")
        yield from (run for run in runs if not (run / SUMS).exists())


def convert_run(run: Path) -> int:
    """Convert a run and export its table; return the schema that it had. Raises ResultsError."""
    from vmtoll.model.run import SCHEMA  # noqa: PLC0415
    from vmtoll.runs.folder import CAPACITIES, MANIFEST, TRIALS  # noqa: PLC0415
    from vmtoll.runs.migration import migrate as rewrite  # noqa: PLC0415
    from vmtoll.runs.store import Store  # noqa: PLC0415

    schema = rewrite(run, MANIFEST, (TRIALS, CAPACITIES.name))
    if schema != SCHEMA:
        Store(run).close()  # exports trials.csv
    return schema

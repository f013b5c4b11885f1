"""The command `publish`."""

from pathlib import Path
from typing import Annotated

import typer

from vmtoll.commands.answer import answer
from vmtoll.commands.help import describe
from vmtoll.commands.options import JsonOption, RunArgument
from vmtoll.shell import say

describe("publish", "vmtoll publish results/latest --output bundle --author 'Ada Example'")


def publish(
    folder: RunArgument,
    output: Annotated[Path, typer.Option(help="Folder of the bundle; an earlier bundle there is replaced.")],
    author: Annotated[
        list[str] | None,
        typer.Option(
            metavar="'GIVEN FAMILY <ORCID>'",
            help="Author to cite, with or without ORCID; also 'Family, Given' and '{Organization}' (repeatable).",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Write a run as a data package without machine names, for others to read, check, cite and re-run."""
    from vmtoll.publish.bundle import ANONYMOUS  # noqa: PLC0415 (loads the analysis)
    from vmtoll.publish.bundle import publish as write_bundle  # noqa: PLC0415
    from vmtoll.publish.seal import digest  # noqa: PLC0415
    from vmtoll.runs.folder import SUMS  # noqa: PLC0415

    bundle = write_bundle(folder, output, author or ANONYMOUS, say)
    answer({"bundle": bundle, SUMS: digest(bundle / SUMS)}, as_json=as_json)

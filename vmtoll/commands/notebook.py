"""The command `notebook`: run a notebook on a run, with parameters from the command line."""

import json
from importlib.util import find_spec
from typing import Annotated, Any

import typer
import yaml

from vmtoll.commands import values
from vmtoll.commands.answer import answer
from vmtoll.commands.help import describe
from vmtoll.commands.options import JsonOption, RunArgument, RunOutputOption
from vmtoll.model.errors import UserError

describe("notebook", "vmtoll notebook capacity results/latest --set RATE_RPS=500")


def notebook(
    name: Annotated[
        str,
        typer.Argument(
            help="Name of a notebook: metal_vs_kvm, tails, capacity, replication.", autocompletion=values.notebooks
        ),
    ],
    folder: RunArgument,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Override a notebook parameter (repeatable)."),
    ] = None,
    output: RunOutputOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run a notebook of analysis/notebooks on a run, without a browser, and write its HTML next to the report.

    --set changes a variable of the notebook's cell `parameters`.
    """
    from vmtoll.publish.seal import check_writable  # noqa: PLC0415

    if not find_spec("papermill"):
        raise UserError(
            "notebooks need more packages: install vmtoll with its extra, as in pipx install '.[notebooks]'"
        )
    from vmtoll.report.notebook import execute  # noqa: PLC0415 (loads the analysis)

    check_writable(output or folder, "write elsewhere: --output FOLDER")
    page = execute(name, folder, dict(map(_parameter, settings or [])), output)
    answer({"notebook": page}, as_json=as_json)


def _parameter(text: str) -> tuple[str, Any]:
    """`P99_MS=20` → ("P99_MS", 20): the value read as JSON, else as YAML."""
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise UserError(f"--set {text}: give NAME=VALUE, as in --set RATE_RPS=500")
    try:
        return name, json.loads(value)
    except ValueError:  # not JSON: YAML allows words without quotes, but reads 1e3 as a word
        pass
    try:
        return name, yaml.safe_load(value)
    except yaml.YAMLError:
        raise UserError(f"--set {text}: {value!r} is not valid JSON or YAML; quote it") from None

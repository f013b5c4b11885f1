"""Options that several verbs share."""

from pathlib import Path
from typing import Annotated

import typer

InventoryOption = Annotated[
    Path | None,
    typer.Option(
        "--inventory",
        "-i",
        help="Ansible inventory of real machines, a file or a folder (default: the embedded lab).",
        exists=True,
    ),
]
LimitOption = Annotated[
    str | None, typer.Option("--limit", help="Only these machines of the inventory: Ansible's pattern of hosts.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]

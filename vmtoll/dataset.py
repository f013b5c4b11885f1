"""Finished runs as a dataset of Parquet files, and what a campaign's page says of it."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from vmtoll.shell import UserError

# The analysis is loaded where it is needed: `--help` should not wait for it.


def check_name(kind: str, name: str) -> None:
    """Raises UserError when a campaign or a cell cannot be named so."""
    from analysis.campaign.partition import check  # noqa: PLC0415

    with _mendable():
        check(kind, name)


def keep(run: Path, dataset: Path, campaign: str, cell: str, *, anew: bool = False) -> None:
    """Add a complete run, unless it is there already and not wanted `anew`. Raises UserError."""
    from analysis.campaign.partition import holds, partition  # noqa: PLC0415

    with _mendable():
        if anew or not holds(dataset, campaign, cell, run):
            partition(run, dataset, campaign, cell)


def figures(dataset: str, campaign: str | None, memory_mb: int) -> dict[str, Any]:
    """See analysis.campaign. Raises UserError."""
    from analysis.campaign import campaign as figures_of  # noqa: PLC0415

    with _mendable():
        return figures_of(dataset, campaign, memory_mb=memory_mb)


def write_page(dataset: str, campaign: str | None, output: Path, memory_mb: int) -> Path:
    """Write campaign.html and figures.json into a folder; the page. Raises UserError."""
    from analysis.campaign.page import write_page as write  # noqa: PLC0415

    found = figures(dataset, campaign, memory_mb)
    output.mkdir(parents=True, exist_ok=True)
    (output / "figures.json").write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return write(found, output / "campaign.html")


@contextmanager
def _mendable() -> Iterator[None]:
    from analysis.load import LoadError  # noqa: PLC0415

    try:
        yield
    except LoadError as error:
        raise UserError(str(error)) from error

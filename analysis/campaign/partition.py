"""One run as Parquet, in its place in a dataset: `<table>/campaign=…/cell=…/experiment=…/<run-id>.parquet`.

Nothing is scrubbed: a dataset is for those who own the machines. What may leave is a bundle (`vmtoll publish`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from analysis.load import LoadError, Run, load_run
from analysis.publish import parquet

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")  # of a campaign or a cell: needs no escape in a path or a URL


def partition(run_dir: Path, dataset: Path, campaign: str, cell: str) -> list[Path]:
    """Write the four tables of a complete run and return their files; columns as in results/schema.

    Each file is made beside its place and renamed, the trials last: a run counts when its trials are there. The
    same run gives the same bytes, so that twice is harmless. Raises LoadError.
    """
    check("campaign", campaign)
    check("cell", cell)
    run = load_run(run_dir)
    if run.meta["status"] != "complete":
        raise LoadError(f"{run_dir / 'run.json'}: status is {run.meta['status']!r}: finish the run first (--resume)")
    files = []
    for table, write in _WRITERS.items():
        file = _place(dataset, table, campaign, cell, run.meta)
        file.parent.mkdir(parents=True, exist_ok=True)
        partial = file.with_name(f".{file.name}.partial")
        write(run, partial)
        files.append(partial.replace(file))
    return files


def holds(dataset: Path, campaign: str, cell: str, run_dir: Path) -> bool:
    """True when the dataset has the run's trials. Raises LoadError."""
    return _place(dataset, "trials", campaign, cell, load_run(run_dir).meta).exists()


def check(kind: str, name: str) -> None:
    """Raises LoadError when a campaign or a cell (`kind`) cannot be named so."""
    if not NAME.fullmatch(name):
        raise LoadError(f"{kind} {name!r}: letters, digits, dot, dash and underscore only: it becomes a folder's name")


def _place(dataset: Path, table: str, campaign: str, cell: str, meta: dict[str, Any]) -> Path:
    folder = dataset / table / f"campaign={campaign}" / f"cell={cell}" / f"experiment={meta['experiment']['name']}"
    return folder / f"{meta['run_id']}.parquet"


def _write_samples(run: Run, path: Path) -> None:
    parquet.write_samples(run, {name: name for name in run.hosts}, path)


_WRITERS: dict[str, Callable[[Run, Path], None]] = {
    "samples": _write_samples,
    "seconds": parquet.write_seconds,
    "histograms": parquet.write_histograms,
    "trials": parquet.write_trials,
}

"""One run as Parquet in a dataset: `<table>/campaign=…/testbed=…/experiment=…/<run-id>.parquet`.

Nothing is scrubbed: a dataset is for those who own the machines. To share a run, make a bundle (`vmtoll publish`).
"""

import os
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb

from vmtoll.analysis.run import Run, load_run
from vmtoll.analysis.verdict import analyse
from vmtoll.campaign.effects import campaign_figures
from vmtoll.campaign.files import merged_files, merged_runs, run_files, run_of_file
from vmtoll.campaign.objects import Bucket, Location
from vmtoll.campaign.page import write_page as write_html
from vmtoll.files import replacing, write_durably
from vmtoll.model.analysis import RunAnalysis
from vmtoll.model.errors import LoadError, UserError
from vmtoll.model.host_columns import host_rows
from vmtoll.model.run import Manifest
from vmtoll.model.verdict_columns import claim_rows, effect_rows, verdict_rows
from vmtoll.publish import tables
from vmtoll.runs.folder import read_manifest

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")  # of a campaign or a test bed: needs no escape in a path or a URL


def partition(run_dir: Path, dataset: Path, campaign: str, testbed: str) -> list[Path]:
    """Write the tables of a complete run and return their files; columns as in results/schema.

    It writes each file under another name, then renames it; the trials come last, because a run counts once its trials
    are there. The same run gives the same bytes, so a second call is harmless. Raises LoadError.
    """
    check_name("campaign", campaign)
    check_name("test bed", testbed)
    run = load_run(run_dir)
    run.require_complete()
    analysis, files = analyse(run), list[Path]()
    for table, write in _WRITERS.items():
        file = _file(dataset, table, campaign, testbed, run.manifest)
        _in_folder(file, partial(write, run, analysis))
        files.append(file)
    return files


def _in_folder(file: Path, write: Callable[[Path], None]) -> None:
    """Write a file by its draft; again, if a compaction removed the folder while it was empty."""
    for attempt in range(2):
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            with replacing(file) as draft:
                write(draft)
            return
        except FileNotFoundError:
            if attempt or file.parent.exists():
                raise


def has_run(dataset: Path, campaign: str, testbed: str, run_dir: Path) -> bool:
    """Return whether the dataset has every table of the run, in its own or in merged files. Raises LoadError."""
    manifest = read_manifest(run_dir)
    if all(_file(dataset, table, campaign, testbed, manifest).exists() for table in _WRITERS):
        return True
    with duckdb.connect() as database:
        merged = merged_runs(database, merged_files(database, str(dataset), campaign), testbed)
    return (testbed, manifest.experiment.name, manifest.run_id) in merged


def measured(dataset: Location, campaign: str, testbed: str | None = None) -> set[tuple[str, str]]:
    """The (test bed, experiment) of which the dataset has a run: its trials, which come last, are there.

    `testbed`: of this one alone. Raises UserError, also for a dataset on object storage that was compacted before it
    was copied there: jobs would measure its runs again.
    """
    if isinstance(dataset, Bucket):
        folder = f"trials/campaign={campaign}/"
        if next(iter(dataset.keys(f"{folder}merged-")), None):
            raise UserError(f"{dataset}: campaign {campaign} was compacted there; give its jobs another --dataset")
        files = dataset.keys(folder if testbed is None else f"{folder}testbed={testbed}/")
        return {run[:2] for run in map(run_of_file, files) if run}
    with duckdb.connect() as database:
        own = run_files(database, str(dataset), "trials", campaign, testbed or "*")
        merged = merged_runs(database, merged_files(database, str(dataset), campaign), testbed)
    return {run[:2] for run in {*own, *merged}}


def add_run(run_dir: Path, dataset: Location, campaign: str, testbed: str) -> None:
    """Add a complete run, unless it is there already. Raises LoadError, UserError."""
    if isinstance(dataset, Bucket):
        with TemporaryDirectory(prefix="vmtoll-partition-") as folder:
            files = partition(run_dir, Path(folder), campaign, testbed)
            names = [str(file.relative_to(folder)) for file in files]
            if not dataset.has(names[-1]):
                for file, name in zip(files, names, strict=True):
                    dataset.put(file, name)
    elif not has_run(dataset, campaign, testbed, run_dir):
        partition(run_dir, dataset, campaign, testbed)


def check_name(kind: str, name: str) -> None:
    """Check the name of a campaign or a test bed (`kind`). Raises LoadError."""
    if not NAME.fullmatch(name):
        raise LoadError(
            f"{kind} {name!r}: letters, digits, dot, dash and underscore only, for it becomes a folder's name"
        )


def write_page(dataset: str, campaign: str | None, output: Path, memory_mb: int) -> Path:
    """Write campaign.html and figures.json into a folder and return the path of the page. Raises LoadError."""
    figures = campaign_figures(dataset, campaign, memory_mb=memory_mb)
    output.mkdir(parents=True, exist_ok=True)
    write_durably(output / "figures.json", figures.to_json() + b"\n")
    link = dataset if "://" in dataset else os.path.relpath(dataset, output)
    return write_html(figures, output / "campaign.html", link)


def _file(dataset: Path, table: str, campaign: str, testbed: str, manifest: Manifest) -> Path:
    folder = dataset / table / f"campaign={campaign}" / f"testbed={testbed}"
    return folder / f"experiment={manifest.experiment.name}" / f"{manifest.run_id}.parquet"


_WRITERS: dict[str, Callable[[Run, RunAnalysis, Path], None]] = {
    "samples": lambda run, _, path: tables.write_samples(run, {name: name for name in run.hosts}, path),
    "seconds": lambda run, _, path: tables.write_seconds(run, path),
    "histograms": lambda run, _, path: tables.write_histograms(run, path),
    "hosts": lambda run, _, path: tables.write_rows(
        host_rows(run.manifest.run_id, run.hosts, run.manifest.disclosure, run.manifest.link_mbit), "hosts", path
    ),
    "claims": lambda _, analysis, path: tables.write_rows(claim_rows(analysis), "claims", path),
    "effects": lambda _, analysis, path: tables.write_rows(effect_rows(analysis), "effects", path),
    "verdicts": lambda _, analysis, path: tables.write_rows(verdict_rows(analysis), "verdicts", path),
    "trials": lambda run, _, path: tables.write_trials(run, path),
}

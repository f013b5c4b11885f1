"""Publish a run: a folder with its tables, its environment and its description, scrubbed, checked and sealed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from analysis.load import LoadError, Run, load_run
from analysis.ods import csv_rows, write_sheets
from analysis.publish import identities, machine, package, parquet, tables
from analysis.publish.package import TABLES
from analysis.publish.scrub import Scrubber
from analysis.publish.seal import SUMS, seal, verify
from analysis.schema import fields
from analysis.verdict import verdict_of

ANONYMOUS = ("anonymous",)
RUN_KEYS = (
    "schema", "run_id", "experiment", "order_seed", "versions", "commit", "started_at", "ended_at", "status",
    "accelerators", "emulated", "lab", "link", "link_mbit", "differences", "skipped",
    "trials_planned",
)  # fmt: skip


def publish(
    run_dir: Path, output: Path, authors: Sequence[str] = ANONYMOUS, say: Callable[[str], None] = lambda _: None
) -> Path:
    """Write the bundle of a complete run to `output`; the same run gives the same bytes. Returns `output`.

    It is made beside `output` and renamed at the end: what was interrupted never looks finished. An earlier
    bundle is replaced, any other folder is refused. Raises LoadError.
    """
    output = output.resolve()
    if (run_dir / SUMS).exists():
        raise LoadError(f"{run_dir} is a bundle already")
    run = load_run(run_dir)
    if run.meta["status"] != "complete":
        raise LoadError(f"{run_dir / 'run.json'}: status is {run.meta['status']!r}: finish the run first (--resume)")
    _may_write(output)
    partial = output.with_name(f".{output.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    _fill(partial, run, authors, say)
    say("checking every row against its schema")
    package.validate(partial)
    seal(partial)
    if output.exists():
        shutil.rmtree(output)
    return partial.rename(output)


def _may_write(output: Path) -> None:
    if not output.exists() or (output.is_dir() and not any(output.iterdir())):
        return
    try:
        verify(output)
    except LoadError as error:
        raise LoadError(f"{output} exists and is not an untouched bundle ({error}): name another folder") from None


def _fill(folder: Path, run: Run, authors: Sequence[str], say: Callable[[str], None]) -> None:
    if not (run.path / identities.PRIVATE).exists():
        say(f"{run.path} has no {identities.PRIVATE}: read the texts, no user and no host name is known for certain")
    scrub = identities.scrubber(run)
    names = identities.roles(run.hosts)
    say(f"trials: {len(run.attempts)}, machines: {len(names)}")
    tables.write(folder / "trials.csv", "trials", tables.trials(run, scrub))
    clean = _scrubbed(run, scrub, names)
    outcome = verdict_of(clean)
    _write_json(folder / "run.json", clean.meta | {"verdict": outcome})
    _write_json(folder / "hosts.json", clean.hosts)
    say("summaries, verdicts, percentiles")
    tables.write(folder / "summaries.csv", "summaries", tables.summaries(clean))
    tables.write(folder / "verdicts.csv", "verdicts", tables.verdicts(outcome))
    tables.write(folder / "percentiles.csv", "percentiles", tables.percentiles(clean))
    say("spreadsheet")
    write_sheets(folder / "tables.ods", [(name, csv_rows(folder / f"{name}.csv", fields(name))) for name in TABLES])
    say("samples and histograms")
    parquet.write_samples(run, names, folder / "samples.parquet")
    parquet.write_histograms(clean, folder / "histograms.parquet")
    parquet.write_seconds(clean, folder / "seconds.parquet")
    package.write(folder, clean, outcome, authors)


def _scrubbed(run: Run, scrub: Scrubber, names: dict[str, str]) -> Run:
    """The run without names: what is derived from it can name nothing either."""
    domains = identities.domains(run, scrub)
    meta = scrub.tree({key: run.meta[key] for key in RUN_KEYS if key in run.meta})
    hosts = {names[name]: machine.facts(facts, scrub, domains) for name, facts in run.hosts.items()}
    attempts = run.attempts.assign(reasons=[tables.reasons(text, scrub) for text in run.attempts["reasons"]])
    return replace(run, meta=meta, hosts=hosts, attempts=attempts)


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")

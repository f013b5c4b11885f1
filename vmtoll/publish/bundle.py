"""Publish a run: a folder with its tables, its environment and its description, scrubbed, checked and sealed."""

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from vmtoll.analysis.run import Run, load_run
from vmtoll.analysis.schema import fields
from vmtoll.analysis.verdict import analyse
from vmtoll.files import replacing
from vmtoll.model.columns import to_csv
from vmtoll.model.errors import LoadError
from vmtoll.model.trial import TrialRecord, to_json, without_thin_percentiles
from vmtoll.publish import intervals, package, scrub, tables
from vmtoll.publish.authors import Author, author_of
from vmtoll.publish.package import PACKAGE, TABLES
from vmtoll.publish.seal import check_writable, seal, verify
from vmtoll.report.disclosure import write_disclosure
from vmtoll.report.ods import csv_rows, write_sheets
from vmtoll.report.tables import RESULTS
from vmtoll.runs.folder import HOSTS, MANIFEST, SUMS, TRIALS

ANONYMOUS = ("anonymous",)
INTERVALS = Path(intervals.__file__)  # copied into each bundle


def publish(
    run_dir: Path, output: Path, authors: Sequence[str] = ANONYMOUS, say: Callable[[str], None] = lambda _: None
) -> Path:
    """Write the bundle of a complete run to `output`; the same run gives the same bytes. Returns `output`.

    Writes under another name and renames at the end, so that an interrupted bundle never looks finished; ^C leaves
    nothing behind. Replaces an earlier bundle and refuses any other folder that is not empty. `authors`: see
    `author_of`. Raises LoadError, and UserError for an author.
    """
    author_records = [author_of(text) for text in authors]
    output = output.resolve()
    check_writable(output.parent, "choose another --output")
    if (run_dir / SUMS).exists():
        raise LoadError(f"{run_dir}: a bundle already; give a run, results/<experiment>/<run-id>")
    run = load_run(run_dir)
    run.require_complete()
    _check_replaceable(output)
    with replacing(output) as draft:
        draft.mkdir(parents=True)
        _fill(draft, run, author_records, say)
        say("checking every row against its schema")
        package.validate(draft)
        seal(draft)
    return output


def open_run(folder: Path) -> Run:
    """Load a run, or a bundle if every file is as it was published. Raises LoadError."""
    return open_bundle(folder) if (folder / SUMS).exists() or (folder / PACKAGE).exists() else load_run(folder)


def open_bundle(folder: Path) -> Run:
    """Load a bundle if every file is as it was published. Raises LoadError."""
    verify(folder)
    return load_run(folder)


def _check_replaceable(output: Path) -> None:
    if not output.exists() or (output.is_dir() and not any(output.iterdir())):
        return
    if not (output / SUMS).is_file():
        raise LoadError(f"{output}: exists and is not a bundle; choose another --output")
    try:
        verify(output)
    except LoadError as error:
        raise LoadError(f"{error}; choose another --output, or remove {output}") from None


def _fill(folder: Path, run: Run, authors: Sequence[Author], say: Callable[[str], None]) -> None:
    if not (run.path / scrub.PRIVATE).exists():
        say(f"{run.path} has no {scrub.PRIVATE}: read the texts, no user and no host name is known for certain")
    names = scrub.roles(run.hosts)
    say(f"trials: {len(run.records)}, machines: {len(names)}")
    clean = _scrub_run(run, names, authors)
    analysis = analyse(clean)
    (folder / TRIALS).write_bytes(b"".join(to_json(_without_histograms(record)) + b"\n" for record in clean.records))
    (folder / "trials.csv").write_bytes(to_csv(clean.records))
    text = clean.manifest.model_dump_json(indent=1, by_alias=True)
    (folder / MANIFEST).write_text(text + "\n", encoding="utf-8")
    hosts = json.dumps({name: facts.recorded for name, facts in clean.hosts.items()}, indent=1, ensure_ascii=False)
    (folder / HOSTS).write_text(hosts + "\n", encoding="utf-8")
    say("summaries, verdicts, effects, claims, percentiles")
    for name, rows in RESULTS.items():
        tables.write(folder / f"{name}.csv", name, rows(clean, analysis))
    tables.write(folder / "percentiles.csv", "percentiles", tables.percentiles(clean))
    say("spreadsheet")
    write_sheets(folder / "tables.ods", [(name, csv_rows(folder / f"{name}.csv", fields(name))) for name in TABLES])
    say("samples and histograms")
    tables.write_samples(run, names, folder / "samples.parquet")
    tables.write_histograms(clean, folder / "histograms.parquet")
    tables.write_seconds(clean, folder / "seconds.parquet")
    write_disclosure(clean, folder)
    shutil.copyfile(INTERVALS, folder / INTERVALS.name)
    package.write(folder, clean, analysis, authors)


def _without_histograms(record: TrialRecord) -> TrialRecord:
    """Leave out the histograms: a bundle holds those of all trials as one table."""
    return replace(
        record, measurements=tuple(replace(measurement, histogram=None) for measurement in record.measurements)
    )


def _scrub_run(run: Run, names: dict[str, str], authors: Sequence[Author]) -> Run:
    """The run without names, so that nothing derived from it has any. The authors become its operator."""
    scrubber = scrub.scrubber_of(run)
    domains = scrub.domains(run, scrubber)
    return replace(
        run,
        manifest=scrub.manifest(run, scrubber, ", ".join(author.name for author in authors)),
        hosts={names[name]: scrub.facts(facts, scrubber, domains) for name, facts in run.hosts.items()},
        records=tuple(scrub.record(without_thin_percentiles(record), scrubber) for record in run.records),
    )

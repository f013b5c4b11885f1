"""A bundle's description of itself: datapackage.json (Data Package v2), CITATION.cff, README.md and LICENSE."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from vmtoll.analysis.equality import machines_under_test
from vmtoll.analysis.run import Run
from vmtoll.analysis.schema import fields, schema
from vmtoll.model.analysis import RunAnalysis
from vmtoll.model.errors import LoadError
from vmtoll.model.facts import LABELS
from vmtoll.publish.authors import Author
from vmtoll.publish.seal import digest
from vmtoll.report.tables import HOST_FACTS
from vmtoll.report.words import KVM_HARDWARE, sentence
from vmtoll.runs.folder import TRIALS

TEMPLATES = Path(__file__).parents[1] / "report" / "templates"
DESCRIPTION = ("datapackage.json", "CITATION.cff", "README.md", "LICENSE")  # the files that make a run a bundle
TABLES = ("trials", "summaries", "verdicts", "effects", "claims", "percentiles")
PACKAGE = DESCRIPTION[0]
LARGE_TABLES = ("samples", "histograms", "seconds")
LICENCE = {
    "name": "CC-BY-4.0", "title": "Creative Commons Attribution 4.0 International",
    "path": "https://creativecommons.org/licenses/by/4.0/",
}  # fmt: skip
Resource = dict[str, Any]  # an entry of datapackage.json
KEYWORDS = ["virtualization", "KVM", "web servers", "benchmark"]
_DOCUMENTS = (
    ("records", TRIALS, "json-lines", "application/jsonl",
     "Every attempt at a trial, as it was recorded: trials.csv is made of it."),
    ("tables", "tables.ods", "opendocument", "application/vnd.oasis.opendocument.spreadsheet",
     "The CSV tables as one spreadsheet."),
    ("run", "run.json", "json", "application/json",
     "The experiment, its workloads and site, versions and differences of the machines."),
    ("intervals", "intervals.py", "py", "text/x-python",
     "Recomputes every interval: `python intervals.py .`, with numpy and scipy."),
    ("hosts", "hosts.json", "json", "application/json", "Facts of every machine, under the name of its role."),
)  # fmt: skip


def write(folder: Path, run: Run, analysis: RunAnalysis, authors: Sequence[Author]) -> None:
    """Write the four documents into a folder that holds the tables already. `run` is scrubbed."""
    datapackage = _datapackage(folder, run, analysis, authors)
    text = json.dumps(datapackage, indent=1, ensure_ascii=False)
    (folder / PACKAGE).write_text(text + "\n", encoding="utf-8")
    (folder / "CITATION.cff").write_text(_citation(run, analysis, authors), encoding="utf-8")
    pages = Environment(
        loader=FileSystemLoader(TEMPLATES), undefined=StrictUndefined, trim_blocks=True, keep_trailing_newline=True
    )
    variables = {"manifest": run.manifest, "analysis": analysis, "licence": LICENCE, "title": _title(run)}
    variables |= {"answer": sentence(analysis), "resources": datapackage["resources"]}
    facts = [(key, LABELS[key]) for key in HOST_FACTS if key != "runtime"]
    variables |= {"suts": machines_under_test(run), "metal": run.metal, "machine_facts": facts}
    variables |= {"kvm_hardware": [KVM_HARDWARE[kind] for kind in analysis.kvm_hardware if kind in KVM_HARDWARE]}
    for name in ("README.md", "LICENSE"):
        (folder / name).write_text(pages.get_template(f"bundle-{name}.j2").render(variables), encoding="utf-8")


def validate(folder: Path) -> None:
    """Check the package and every row of its CSV tables with frictionless. Raises LoadError for the first mistake."""
    import frictionless  # noqa: PLC0415 (takes a second to load)

    report = frictionless.validate(str(folder / PACKAGE))
    if not report.valid:
        mistakes = report.flatten(["title", "message"])
        file = next((task.place for task in report.tasks if not task.valid), PACKAGE)
        raise LoadError(f"{folder / file}: {mistakes[0][1] if mistakes else 'is not valid'}")


def _title(run: Run) -> str:
    return f"vmtoll: experiment {run.manifest.experiment.name}, run {run.manifest.run_id}"


def _abstract(run: Run, analysis: RunAnalysis) -> str:
    return f"{run.manifest.experiment.question} {sentence(analysis)}"


def _datapackage(folder: Path, run: Run, analysis: RunAnalysis, authors: Sequence[Author]) -> Resource:
    resources = [
        *map(_table, TABLES),
        *map(_large_table, LARGE_TABLES),
        *(_resource(*document) for document in _DOCUMENTS),
    ]
    for resource in resources:
        file = folder / resource["path"]
        resource |= {"bytes": file.stat().st_size, "hash": f"sha256:{digest(file)}"}
    return {
        "$schema": "https://datapackage.org/profiles/2.0/datapackage.json",
        "name": f"vmtoll-{run.manifest.experiment.name}-{run.manifest.run_id}".lower(),
        "title": _title(run),
        "description": _abstract(run, analysis),
        "version": "1.0.0", "created": run.manifest.ended_at or run.manifest.started_at, "licenses": [LICENCE],
        "contributors": [author.contributor for author in authors],
        "keywords": KEYWORDS, "resources": resources,
    }  # fmt: skip


def _resource(name: str, path: str, file_format: str, mediatype: str, description: str) -> Resource:
    return {"name": name, "path": path, "format": file_format, "mediatype": mediatype, "description": description}


def _table(name: str) -> Resource:
    head = _resource(name, f"{name}.csv", "csv", "text/csv", schema(name)["description"])
    return {**head, "type": "table", "encoding": "utf-8", "schema": _schema(name)}


def _large_table(name: str) -> Resource:
    """A resource without `type: table`: readers without a Parquet library check it as a file, by its hash."""
    mediatype = "application/vnd.apache.parquet"
    head = _resource(name, f"{name}.parquet", "apache-parquet", mediatype, schema(name)["description"])
    return head | {"schema": _schema(name)}


def _schema(table: str) -> Mapping[str, object]:
    """The table's schema with a unit and constraints for each column."""
    columns = [
        {"unit": "1" if field["type"] in ("integer", "number") else "none", **field}
        | {"constraints": {"required": False, **field.get("constraints", {})}}
        for field in fields(table)
    ]
    return {**schema(table), "fields": columns}


def _citation(run: Run, analysis: RunAnalysis, authors: Sequence[Author]) -> str:
    """Citation File Format 1.2.0."""
    content = {
        "cff-version": "1.2.0", "message": "Please cite this data set as below.", "type": "dataset",
        "title": _title(run), "abstract": _abstract(run, analysis),
        "authors": [author.citation for author in authors], "version": run.manifest.run_id,
        "date-released": (run.manifest.ended_at or run.manifest.started_at)[:10],
        "license": LICENCE["name"], "keywords": KEYWORDS,
    }  # fmt: skip
    return yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=120)

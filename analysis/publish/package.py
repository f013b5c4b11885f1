"""What the bundle says about itself: datapackage.json (Data Package v2), CITATION.cff, README.md and LICENSE."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from analysis.equality import suts
from analysis.load import LoadError, Run
from analysis.publish.seal import digest
from analysis.schema import fields, schema
from analysis.tables import HOST_FACTS

TEMPLATES = Path(__file__).parents[1] / "templates"
TABLES = ("trials", "summaries", "verdicts", "percentiles")
LARGE_TABLES = ("samples", "histograms", "seconds")
LICENCE = {
    "name": "CC-BY-4.0",
    "title": "Creative Commons Attribution 4.0 International",
    "path": "https://creativecommons.org/licenses/by/4.0/",
}
_DOCUMENTS = [
    {
        "name": "tables",
        "path": "tables.ods",
        "format": "opendocument",
        "mediatype": "application/vnd.oasis.opendocument.spreadsheet",
        "description": "The CSV tables as one spreadsheet.",
    },
    {
        "name": "run",
        "path": "run.json",
        "format": "json",
        "mediatype": "application/json",
        "description": "The experiment, its workloads and site, versions, and the verdict.",
    },
    {
        "name": "hosts",
        "path": "hosts.json",
        "format": "json",
        "mediatype": "application/json",
        "description": "Facts of every machine, under the name of its role.",
    },
]


def write(folder: Path, run: Run, outcome: dict[str, Any], authors: Sequence[str]) -> None:
    """Write the four documents into a folder that holds the tables already. `run` is scrubbed."""
    described = _datapackage(folder, run, outcome, authors)
    (folder / "datapackage.json").write_text(_json(described), encoding="utf-8")
    (folder / "CITATION.cff").write_text(_citation(run, outcome, authors), encoding="utf-8")
    pages = Environment(
        loader=FileSystemLoader(TEMPLATES), undefined=StrictUndefined, trim_blocks=True, keep_trailing_newline=True
    )
    words = {"run": run, "outcome": outcome, "question": question(run), "licence": LICENCE, "title": _title(run)}
    words |= {"resources": described["resources"], "suts": suts(run), "machine_facts": HOST_FACTS}
    for name in ("README.md", "LICENSE"):
        (folder / name).write_text(pages.get_template(f"bundle-{name}.j2").render(words), encoding="utf-8")


def validate(folder: Path) -> None:
    """Check the package and every row of its CSV tables by frictionless. Raises LoadError with the first mistake."""
    import frictionless  # noqa: PLC0415 (takes a second to load)

    report = frictionless.validate(str(folder / "datapackage.json"))
    if not report.valid:
        found = report.flatten(["title", "message"])
        where = next((task.place for task in report.tasks if not task.valid), "datapackage.json")
        raise LoadError(f"{folder / where}: {found[0][1] if found else 'is not valid'}")


def question(run: Run) -> str:
    """The experiment's question, or its name where it asks none."""
    experiment = run.meta["experiment"]
    return str(experiment.get("question") or experiment.get("name"))


def _title(run: Run) -> str:
    return f"vmtoll: experiment {run.meta['experiment'].get('name')}, run {run.meta['run_id']}"


def _datapackage(folder: Path, run: Run, outcome: dict[str, Any], authors: Sequence[str]) -> dict[str, Any]:
    resources = [*map(_table, TABLES), *map(_large_table, LARGE_TABLES), *(dict(one) for one in _DOCUMENTS)]
    for resource in resources:
        file = folder / resource["path"]
        resource |= {"bytes": file.stat().st_size, "hash": f"sha256:{digest(file)}"}
    return {
        "$schema": "https://datapackage.org/profiles/2.0/datapackage.json",
        "name": f"vmtoll-{run.meta['experiment'].get('name')}-{run.meta['run_id']}".lower(),
        "title": _title(run),
        "description": f"{question(run)} {outcome['sentence']}",
        "version": "1.0.0",
        "created": _created(run),
        "licenses": [LICENCE],
        "contributors": [{"title": author, "roles": ["author"]} for author in authors],
        "keywords": ["virtualization", "KVM", "web servers", "benchmark"],
        "resources": resources,
    }


def _table(name: str) -> dict[str, Any]:
    head = {"name": name, "path": f"{name}.csv", "type": "table", "format": "csv", "mediatype": "text/csv"}
    return head | {"encoding": "utf-8", "description": schema(name)["description"], "schema": _schema(name)}


def _large_table(name: str) -> dict[str, Any]:
    """No `type: table` and a format of its own: readers without a Parquet library check it as a file, by its hash."""
    head = {"name": name, "path": f"{name}.parquet", "format": "apache-parquet"}
    head |= {"mediatype": "application/vnd.apache.parquet", "description": schema(name)["description"]}
    return head | {"schema": _schema(name)}


def _schema(table: str) -> dict[str, Any]:
    """The table's schema with nothing left unsaid: each column has a unit and constraints."""
    columns = []
    for field in fields(table):
        unit = "1" if field["type"] in ("integer", "number") else "none"
        constraints = {"required": False, **field.get("constraints", {})}
        columns.append({"unit": unit, **field, "constraints": constraints})
    return {**schema(table), "fields": columns}


def _created(run: Run) -> str:
    return str(run.meta.get("ended_at") or run.meta.get("started_at"))


def _citation(run: Run, outcome: dict[str, Any], authors: Sequence[str]) -> str:
    """Citation File Format 1.2.0."""
    return yaml.safe_dump(
        {
            "cff-version": "1.2.0",
            "message": "Please cite this data set as below.",
            "type": "dataset",
            "title": _title(run),
            "abstract": f"{question(run)} {outcome['sentence']}",
            "authors": [{"name": author} for author in authors],
            "version": str(run.meta["run_id"]),
            "date-released": _created(run)[:10],
            "license": LICENCE["name"],
            "keywords": ["virtualization", "KVM", "web servers", "benchmark"],
        },
        sort_keys=False,
        allow_unicode=True,
        width=120,
    )


def _json(value: Any) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"

"""The results explorer: a static page over all runs, from a file or from any web server."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from analysis.explorer.collect import collect
from analysis.load import LoadError
from analysis.metrics import METRICS

HERE = Path(__file__).parent
TEMPLATES = HERE.parent / "templates"
FACETS = ("server", "environment", "workload", "accelerator")
INDEX = "index.html"
GENERATOR = "vmtoll results explorer"


def write_site(results: Path, output: Path) -> Path:
    """Write the site of all runs in `results` into the folder `output` (replaced whole); return its index.html.

    The same results give the same bytes. Raises LoadError when there is no run, or when `output` holds
    something else than a site.
    """
    runs = collect(results)
    if not runs:
        raise LoadError(f"{results}: no run (<experiment>/<run-id>/run.json) in this folder; measure one first")
    if output.exists() and not _replaceable(output):
        raise LoadError(f"{output}: exists and is no results explorer; give another folder with --output")
    draft = output.with_name(f"{output.name}.part")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    for run in runs:
        if run["report"]:
            page = draft / run["report"]
            page.parent.mkdir(parents=True)
            shutil.copyfile(results / run["id"] / "report.html", page)
    (draft / INDEX).write_text(render(runs), encoding="utf-8")
    if output.exists():
        shutil.rmtree(output)
    return draft.rename(output) / INDEX


def _replaceable(output: Path) -> bool:
    """An earlier site, or an empty folder: nothing else is removed."""
    if not output.is_dir():
        return False
    index = output / INDEX
    return not any(output.iterdir()) or (index.is_file() and GENERATOR in index.read_text(errors="replace"))


def render(runs: list[dict[str, Any]]) -> str:
    """The page: one file with its data, style and program inside, so that it asks no server for anything."""
    page = Environment(
        loader=FileSystemLoader([HERE, TEMPLATES]), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    rows = [row for run in runs for row in run["rows"]]
    metrics = {m.name: {"label": m.label, "unit": m.unit} for m in METRICS}
    return page.get_template("index.html.j2").render(
        data=_embedded({"metrics": metrics, "runs": runs}),
        program=Markup((HERE / "app.js").read_text(encoding="utf-8")),
        facets={facet: sorted({row[facet] for row in rows}) for facet in FACETS},
        runs=runs,
        generator=GENERATOR,
    )


def _embedded(value: Any) -> Markup:
    """JSON that may stand inside a <script> element: no `<` in it can end the element."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return Markup(text.replace("<", "\\u003c"))

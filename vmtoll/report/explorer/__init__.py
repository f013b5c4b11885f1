"""The results explorer: a static page over all runs, opened as a file or served by any web server."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from markupsafe import Markup

from vmtoll.analysis.run import Run
from vmtoll.files import replacing
from vmtoll.model.errors import LoadError
from vmtoll.model.hardware import Hardware
from vmtoll.model.metric import METRICS
from vmtoll.model.trial import Accelerator, Arm
from vmtoll.report.disclosure import write_disclosure
from vmtoll.report.explorer.collect import Entry, collect
from vmtoll.report.explorer.machines import PLATFORM
from vmtoll.report.page import environment
from vmtoll.report.words import KVM_HARDWARE, METRIC_LABELS, arm_text

HERE = Path(__file__).parent
FACETS = ("server", "environment", "workload", "accelerator", "hardware", *PLATFORM)
PROGRAM = ("csv.js", "picture.js", "runs.js", "app.js")  # the last one starts the page
INDEX = "index.html"
GENERATOR = "vmtoll results explorer"


def write_site(
    results: Path,
    output: Path,
    contributed: Mapping[str, Run] | None = None,
    report_unreadable: Callable[[str], None] = lambda _: None,
) -> Path:
    """Write the site of all runs and bundles into the folder `output` (replaced whole); return its index.html.

    `contributed`: name on the site → the run of a checked bundle. `report_unreadable` gets one sentence for each run
    that cannot be read; the site shows its error. The same results give the same bytes. Raises LoadError when there is
    no run, or when `output` exists and is neither a site nor an empty folder.
    """
    bundles = contributed or {}
    runs = collect(results, bundles)
    if not runs:
        raise LoadError(f"{results}: no run (<experiment>/<run-id>/run.json) in this folder; measure one first")
    for run in runs:
        if run["error"]:
            report_unreadable(f"{results / run['id']}: {run['error']}")
    if output.exists() and not _replaceable(output):
        raise LoadError(f"{output}: exists and is not a results explorer; give another folder with --output")
    with replacing(output) as draft:
        _write_pages(draft, runs, results, bundles)
    return output / INDEX


def _write_pages(draft: Path, runs: list[Entry], results: Path, bundles: Mapping[str, Run]) -> None:
    """Write the pages of the runs, and the index."""
    draft.mkdir(parents=True)
    for run in runs:
        if run["id"] in bundles:  # the site shows no page of others, only this one, made from their facts
            write_disclosure(bundles[run["id"]], draft / "runs" / run["id"])
            continue
        for name in ("report", "disclosure"):
            if run[name]:
                page = draft / run[name]
                page.parent.mkdir(parents=True, exist_ok=True)
                page.write_bytes((results / run["id"] / f"{name}.html").read_bytes())
    (draft / INDEX).write_text(render(runs), encoding="utf-8")


def _replaceable(output: Path) -> bool:
    """Return whether `output` is an earlier site or an empty folder: vmtoll replaces nothing else."""
    if not output.is_dir():
        return False
    index = output / INDEX
    return not any(output.iterdir()) or (index.is_file() and GENERATOR in index.read_text(errors="replace"))


def render(runs: list[Entry]) -> str:
    """The page: one file that contains its data, style and program, so that it needs no server."""
    page = environment(HERE)
    rows = [row for run in runs for row in run["rows"]]
    metrics = {name: {"label": METRIC_LABELS[name].label, "unit": metric.unit} for name, metric in METRICS.items()}
    points = {kind.value: point for kind, (point, _) in KVM_HARDWARE.items()}
    accelerators = {each.value: each.text for each in Accelerator}
    arms = {name: _arm_text(name) for name in sorted({row["environment"] for row in rows})}
    hardware = {each.value: each.text for each in Hardware}
    texts = {"metrics": metrics, "accelerators": accelerators, "hardware": hardware, "kvm_hardware": points}
    return page.get_template("index.html.j2").render(
        data=_script_json(texts | {"arms": arms} | with_shared_facts(runs)),
        program=Markup("\n".join((HERE / name).read_text(encoding="utf-8") for name in PROGRAM)),
        labels={
            "accelerator": accelerators | {Accelerator.NONE.value: "none (metal, container)"},
            "hardware": hardware,
            "environment": arms,
        },
        facets={facet: sorted({row[facet] for row in rows}) for facet in FACETS},
        runs=runs,
        generator=GENERATOR,
    )


def _arm_text(name: str) -> str:
    """`metal again (A/A)` of `metal#2`."""
    environment, _, replicate = name.partition("#")
    return arm_text(Arm(environment, int(replicate or 1)))


def with_shared_facts(runs: list[Entry]) -> Entry:
    """`runs`, with each set of facts replaced by its index in the list `pool`: runs of one machine share them."""
    numbers: dict[str, int] = {}

    def number(facts: Entry) -> int:
        return numbers.setdefault(json.dumps(facts, ensure_ascii=False, sort_keys=True), len(numbers))

    entries = []
    for run in runs:
        rows = [row | {key: number(row[key]) for key in ("premises", "others")} for row in run["rows"]]
        machines = {part: number(facts) for part, facts in run.get("environment", {}).items()}
        entries.append(run | {"rows": rows, "environment": machines})
    return {"runs": entries, "pool": [json.loads(text) for text in numbers]}


def _script_json(value: Any) -> Markup:
    """JSON that is safe inside a <script> element: it has no `<` that could end the element."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return Markup(text.replace("<", "\\u003c"))

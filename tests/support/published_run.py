"""Synthetic runs of published experiments, with claims. Nothing in them was ever measured."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.support.synthetic_run import Row, Truth, closed_load, make_run
from vmtoll.analysis.run import Run, load_run

AB = "page-4k"
PAGE = {
    "kind": "closed", "description": "made up by a test", "site": "pages", "page": "page-4k.html", "tool": "ab",
    "crosscheck": None, "users": 100, "keep_alive": False,
}  # fmt: skip
PAGES = {"page-4k.html": 4096, "page-100k.html": 102400, "hello.html": "<html></html>"}


def claim(says: str = "it is so", metric: str = "throughput_rps", **keys: Any) -> dict[str, Any]:
    """A claim as run.json holds it; `of` and `over` default to nginx over lighttpd on metal."""
    base = {"server": "nginx", "environment": "metal", "workload": AB}
    document = {"published": [], "within_pct": None, "at_least": None, "at_most": None} | keys
    document["of"] = base | document.get("of", {})
    if document["at_least"] is None and document["at_most"] is None:
        document["over"] = document["of"] | document.get("over", {"server": "lighttpd"})
    return {"says": says, "metric": metric, "over": None} | document


def make_published(
    parent: Path,
    truth: Truth,
    claims: list[dict[str, Any]],
    *,
    workloads: dict[str, dict[str, Any]] | None = None,
    per_workload: dict[str, Row] | None = None,
    meta: dict[str, Any] | None = None,
    **experiment: Any,
) -> Run:
    """A run with the synthetic trials repeated for each workload and number of users; `per_workload` sets columns of
    the trials of a workload.

    `workloads`: name → differences from PAGE. `meta` overrides run.json, `experiment` its experiment.
    """
    documents = {name: {"name": name} | PAGE | keys for name, keys in (workloads or {AB: {}}).items()}
    for document in documents.values():
        if document["kind"] != "closed":
            del document["users"]

    def spread(row: Row) -> list[Row]:
        rows = []
        for name, document in documents.items():
            trial = row | {"workload": name, "tool": document["tool"]}
            if document["crosscheck"] is None:
                # Without a cross-check the tool logs its service times itself.
                prefix = "crosscheck_"
                times = {k.removeprefix(prefix): v for k, v in trial.items() if k.startswith(f"{prefix}service_time_")}
                trial = {key: value for key, value in trial.items() if not key.startswith(prefix)} | times
            if row["load"].is_open:
                loads: list[Row] = [{}]
            else:
                users = document["users"] if isinstance(document["users"], list) else [document["users"]]
                loads = [{"load": closed_load(count), "users": count} for count in users]
            rows += [trial | load | (per_workload or {}).get(name, {}) for load in loads]
        # Each trial has its own position in the block.
        rows = [trial | {"order": 100 * row["order"] + index} for index, trial in enumerate(rows)]
        return [changed for trial in rows for changed in (truth.change(trial) if truth.change else [trial])]

    path = make_run(parent, replace(truth, change=spread))
    document = json.loads((path / "run.json").read_text())
    document["experiment"] |= {"question": "which is faster?", "source": "An article", "claims": claims}
    document["experiment"] |= {"workloads": list(documents)} | experiment
    document["workloads"] = documents
    document["site"] = {"name": "pages", "description": "made up by a test", "seed": 1, "pages": PAGES}
    document |= meta or {}
    (path / "run.json").write_text(json.dumps(document))
    return load_run(path)

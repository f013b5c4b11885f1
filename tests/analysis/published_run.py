"""Synthetic runs of published experiments, with claims and a known truth. Nothing in them was ever measured."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from synthetic_run import Row, Truth, make_run

from analysis.load import Run, load_run

PAGE = {"site": "pages", "page": "page-4k.html", "tool": "ab", "twin": None, "users": 100, "keep_alive": False}
PAGES = {"page-4k.html": 4096, "page-100k.html": 102400, "hello.html": "<html></html>"}
AB = "page-4k-100"


def claim(says: str = "it is so", metric: str = "throughput_rps", **keys: Any) -> dict[str, Any]:
    """A claim as run.json holds it; `of` and `over` default to nginx over lighttpd on metal."""
    base = {"server": "nginx", "environment": "metal", "workload": AB}
    given = {"published": [], "within_pct": None, "at_least": None, "at_most": None} | keys
    given["of"] = base | given.get("of", {})
    if given["at_least"] is None and given["at_most"] is None:
        given["over"] = given["of"] | given.get("over", {"server": "lighttpd"})
    return {"says": says, "metric": metric, "over": None} | given


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
    """A run whose trials are the synthetic ones once per workload; `per_workload` sets columns of one.

    `workloads`: name → what differs from PAGE. `meta` goes over run.json, `experiment` over its experiment.
    """
    known = {name: {"name": name} | PAGE | keys for name, keys in (workloads or {AB: {}}).items()}

    def spread(row: Row) -> list[Row]:
        rows = []
        for name, one in known.items():
            mine = row | {"workload": name, "tool": one["tool"], "twin": one["twin"] or ""}
            mine |= {"offered_load": f"closed:{one['users']}"} if row["offered_load"].startswith("closed") else {}
            rows += [mine | (per_workload or {}).get(name, {})]
        return [changed for each in rows for changed in (truth.change(each) if truth.change else [each])]

    path = make_run(parent, replace(truth, change=spread))
    document = json.loads((path / "run.json").read_text())
    document["experiment"] |= {"question": "which is faster?", "source": "An article", "claims": claims} | experiment
    document["experiment"]["resolved"] = {"workloads": known, "site": {"name": "pages", "pages": PAGES}}
    document |= meta or {}
    (path / "run.json").write_text(json.dumps(document))
    return load_run(path)

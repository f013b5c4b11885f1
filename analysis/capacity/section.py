"""What the report shows of capacity: the objective is that of the run's own ladder or search."""

from __future__ import annotations

from typing import Any

from analysis.capacity import default_slo, findings
from analysis.capacity.words import beside, one_words, range_words, request_words, used_words
from analysis.load import Run

HEADINGS = ("one carries", "what binds", "p99 there, ms", "in use there", "a request takes", "notes")


def section(run: Run) -> dict[str, Any] | None:
    """`objective` in words, `rows` (`server`, `environment`, `shape_only`, and `cells` under `headings`), `beside`
    (sentences on guests per host and on scaling), `assumes`; None for a run that says nothing of any of it.
    """
    slo = default_slo(run)
    found = findings(run, slo)
    several = len({result["workload"] for result in found["results"]}) > 1
    rows = [
        {
            "server": f"{result['server']} · {result['workload']}" if several else result["server"],
            "environment": result["environment"],
            "shape_only": result["shape_only"],
            "size": result["size"],
            "cells": [
                one_words(result),
                result["binds"],
                range_words(result["p99_ms"]) if result["p99_ms"] else "–",
                used_words(result),
                request_words(result),
                "; ".join(result["notes"]) or "–",
            ],
        }
        for result in found["results"]
    ]
    more = list(beside(found))
    if not rows and not more:
        return None
    objective = slo.words if slo else ""
    return {"objective": objective, "rows": rows, "headings": HEADINGS, "beside": more, "assumes": found["assumes"]}

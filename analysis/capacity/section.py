"""What the report and the notebook show of capacity: the objective is that of the run's own ladder or search."""

from __future__ import annotations

from typing import Any

from analysis.capacity import capacity, default_slo
from analysis.capacity.words import one_words, range_words, request_words, used_words
from analysis.load import Run

HEADINGS = ("one carries", "what binds", "p99 there, ms", "in use there", "a request takes", "notes")


def section(run: Run) -> dict[str, Any] | None:
    """`objective` in words, `rows` (`server`, `environment`, `shape_only`, and `cells` under `headings`), `scaling`,
    `assumes`; None for a run with neither a ladder of rates nor a search.
    """
    slo = default_slo(run)
    if slo is None:
        return None
    found = capacity(run, slo)
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
    return {"objective": slo.words, "rows": rows, "headings": HEADINGS} | {
        key: found[key] for key in ("scaling", "assumes")
    }

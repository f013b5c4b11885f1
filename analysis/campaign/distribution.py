"""Percentiles of all requests of a campaign: the trials' histograms are added up in SQL, never averaged."""

from __future__ import annotations

import json
from typing import Any

from analysis.campaign.dataset import SCENARIOS, Dataset
from analysis.metrics import CLOSED, loop_of
from analysis.percentiles import ranked

GROUPS = [*SCENARIOS, "environment", "accelerator"]
# Billions of rows meet a number for each cell, scenario and environment instead of its names; what is left of them
# are the buckets of each.
_SIDES = """
CREATE TEMP TABLE sides AS
SELECT row_number() OVER () AS side, * FROM (SELECT DISTINCT cell, {groups} FROM trials)
"""
# The filter looks at the trial and not at the row, which keeps DuckDB from summing up each trial before the join: there
# is nothing to sum within one.
_COUNTS = """
CREATE TEMP TABLE counts AS
WITH placed AS (
    SELECT run_id, block, "order", attempt, side, verdict <> 'invalid' AS usable
    FROM trials JOIN sides USING (cell, {groups})
),
summed AS (
    SELECT side, latency_us AS value, sum("count") FILTER (WHERE usable)::BIGINT AS n
    FROM {source} AS histograms JOIN placed USING (run_id, block, "order", attempt)
    GROUP BY side, value
)
SELECT cell, {groups}, value, n FROM summed JOIN sides USING (side) WHERE n > 0
"""


def percentiles(dataset: Dataset) -> list[dict[str, Any]]:
    """Per scenario and environment: `latency` (response or service time), requests, and of each percentile the
    value in µs over all cells (`p99_us`), the least and the greatest of the cells' (`p99_least_us`, `…_greatest_us`).
    """
    grouped = ", ".join(GROUPS)
    dataset.database.execute(_SIDES.format(groups=grouped))
    dataset.database.execute(_COUNTS.format(groups=grouped, source=dataset.table("histograms")))
    over_all = f"SELECT {grouped}, value, sum(n) AS n FROM counts GROUP BY {grouped}, value"
    merged = ranked(dataset.database, over_all, GROUPS)
    each = ranked(dataset.database, "FROM counts", ["cell", *GROUPS])
    spread = each.groupby([*GROUPS, "percentile"])["value_us"].agg(["min", "max", "size"]).reset_index()
    table = merged.merge(spread, on=[*GROUPS, "percentile"])
    found: dict[tuple[str, ...], dict[str, Any]] = {}
    for row in json.loads(table.to_json(orient="records")):
        key = tuple(row[name] for name in GROUPS)
        kind = "service time" if loop_of(row["offered_load"]) == CLOSED else "response time"
        counted = {"latency": kind, "requests": row["samples"], "cells": row["size"]}
        one = found.setdefault(key, dict(zip(GROUPS, key, strict=True)) | counted)
        name = f"p{row['percentile']:g}".replace(".", "")
        one |= {f"{name}_us": row["value_us"], f"{name}_least_us": row["min"], f"{name}_greatest_us": row["max"]}
    return list(found.values())

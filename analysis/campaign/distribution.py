"""Percentiles of all requests of a campaign: the trials' histograms are added up in SQL, never averaged."""

from __future__ import annotations

import json
from typing import Any

from analysis.campaign.dataset import SCENARIOS, Dataset
from analysis.percentiles import PERCENTILES, ranked

GROUPS = [*SCENARIOS, "environment", "accelerator"]
# The join needs no more memory than the trials; what is left of the buckets are those of each cell and scenario.
_COUNTS = """
CREATE TEMP TABLE counts AS
SELECT trials.cell, {groups}, any_value(latency) AS latency, latency_us AS value, sum("count")::BIGINT AS n
FROM {source} AS histograms JOIN trials USING (run_id, block, "order", attempt)
WHERE verdict <> 'invalid'
GROUP BY trials.cell, {groups}, value
"""


def percentiles(dataset: Dataset) -> list[dict[str, Any]]:
    """Per scenario and environment: `latency` (response or service time), requests, and of each percentile the
    value in µs over all cells (`p99_us`), the least and the greatest of the cells' (`p99_least_us`, `…_greatest_us`).
    """
    columns = [f"trials.{name}" if name == "experiment" else name for name in GROUPS]
    source = dataset.table("histograms")
    dataset.database.execute(_COUNTS.format(groups=", ".join(columns), source=source))
    grouped = ", ".join(GROUPS)
    over_all = f"SELECT {grouped}, value, sum(n) AS n FROM counts GROUP BY {grouped}, value"
    merged = ranked(dataset.database, over_all, GROUPS)
    each = ranked(dataset.database, "FROM counts", ["cell", *GROUPS])
    spread = each.groupby([*GROUPS, "percentile"])["value_us"].agg(["min", "max", "size"]).reset_index()
    kinds = dataset.database.execute(f"SELECT {grouped}, any_value(latency) AS latency FROM counts GROUP BY ALL").df()
    table = merged.merge(spread, on=[*GROUPS, "percentile"]).merge(kinds, on=GROUPS)
    found: dict[tuple[str, ...], dict[str, Any]] = {}
    for row in json.loads(table.to_json(orient="records")):
        key = tuple(row[name] for name in GROUPS)
        one = found.setdefault(
            key,
            {name: row[name] for name in [*GROUPS, "latency"]} | {"requests": row["samples"], "cells": row["size"]},
        )
        name = f"p{row['percentile']:g}".replace(".", "")
        one |= {f"{name}_us": row["value_us"], f"{name}_least_us": row["min"], f"{name}_greatest_us": row["max"]}
    return list(found.values())


__all__ = ["GROUPS", "PERCENTILES", "percentiles"]

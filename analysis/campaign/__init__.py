"""Many runs as one dataset: what virtualization costs on each cell, and how much the cells differ.

A dataset is a folder of Parquet files that `partition` writes, one for each run and table. DuckDB reads it where
it lies, on a disk or on object storage, in bounded memory; only the figures of cells come to Python.
"""

from __future__ import annotations

from typing import Any

from analysis.campaign.across import across
from analysis.campaign.dataset import Dataset
from analysis.campaign.distribution import percentiles
from analysis.judge import MARGIN

__all__ = ["MEMORY_MB", "campaign"]

MEMORY_MB = 1000


def campaign(
    location: str, name: str | None = None, *, memory_mb: int = MEMORY_MB, margin: float = MARGIN
) -> dict[str, Any]:
    """All figures of a campaign, JSON-serialisable; writes nothing. Raises LoadError.

    `location`: the dataset's folder or its URL (`s3://bucket/folder`); `name`: the campaign, which may be left out
    where the dataset has one; `memory_mb`: what DuckDB may hold before it writes to the temporary folder; `margin`:
    a smaller difference is of no importance, a fraction.

    Keys: `campaign`; `emulated` (any guest was); `cells` (cell and experiment: runs, blocks, trials by verdict);
    `effects` (analysis.campaign.across: one entry per scenario, guest and metric, with `by_cell`); `percentiles`
    (of all requests of all cells, by scenario and environment, with the range of the cells'); `machines` (what
    each cell's machines did, second by second, by role).
    """
    with Dataset(location, name, memory_mb) as dataset:
        effects = across(dataset.effects(), margin)
        return {
            "campaign": dataset.campaign,
            "emulated": any(one["accelerator"] == "tcg" for one in effects),
            "margin": margin,
            "cells": dataset.cells(),
            "effects": effects,
            "percentiles": percentiles(dataset),
            "machines": dataset.machines(),
        }

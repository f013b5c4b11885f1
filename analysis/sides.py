"""What one side of a comparison has: its usable figures, its availability, its 2009 average."""

from __future__ import annotations

from typing import Any

import pandas as pd

from analysis.metrics import Metric
from analysis.stats import trimmed_2009, wilson

TRIMMED_LABEL = "estimator of 2009: the first six runs, best and worst dropped, the other four averaged; no interval"


def usable(cell: pd.DataFrame, environment: str, column: str) -> pd.Series:
    """Block → figure, for the trials of that environment that are not invalid and have one above zero."""
    keep = (cell["environment"] == environment) & (cell["verdict"] != "invalid") & (cell[column] > 0)
    return pd.Series(cell.loc[keep, column].to_numpy(dtype=float), index=cell.loc[keep, "block"])


def availability(cell: pd.DataFrame, environment: str, source: str) -> dict[str, Any] | None:
    """The share of planned requests that succeeded, with Wilson's 95% interval; None without a count.

    Over all trials of that side that have counts, those too that the gates refused: failures are what they
    were refused for. Requests of one trial fail together, so that the interval is the narrowest possible.
    """
    rows = cell[cell["environment"] == environment]
    if source == "twin":
        requests, successful = rows["twin_requests"], rows["twin_requests"] - rows["twin_failed"]
    else:
        requests, successful = rows["requests"], rows["successful"]
    counted = requests.notna() & successful.notna()
    total, good = int(requests[counted].sum()), int(successful[counted].sum())
    if total == 0:
        return None
    interval = wilson(good, total)
    return {"requests": total, "successful": good, "share": good / total, "low": interval.low, "high": interval.high}


def trimmed(cell: pd.DataFrame, guest: str, baseline: str, metric: Metric, source: str) -> dict[str, Any]:
    """The 2009 estimator per side, in the metric's unit, and guest ÷ metal; null below six figures."""
    metal = trimmed_2009(usable(cell, baseline, metric.column(source, guest=False)).to_numpy(dtype=float))
    other = trimmed_2009(usable(cell, guest, metric.column(source, guest=True)).to_numpy(dtype=float))
    return {
        "label": TRIMMED_LABEL,
        "metal": metal,
        "guest": other,
        "ratio": other / metal if metal and other else None,
    }

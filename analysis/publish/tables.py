"""The bundle's tables as CSV: the trials, what they come to, the verdicts, and every trial's percentiles."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.latency import read_histogram, trial_name
from analysis.load import GATES, Run
from analysis.publish.scrub import Scrubber
from analysis.schema import names
from analysis.tables import numbers

PERCENTILES = (1, 5, 10, 25, 50, 75, 90, 95, 99, 99.5, 99.9, 99.99, 100)
TRIAL = ("run_id", "block", "order", "attempt")
# The details of these come from other programs and may say anything.
ACCIDENTS = ("host-lost", "server-failed", "tool-failed")


def write(path: Path, table: str, rows: Iterable[dict[str, Any]]) -> None:
    """Write the columns of a table's schema, in its order; what a row does not have stays empty."""
    columns = names(table)
    with path.open("w", encoding="utf-8", newline="") as handle:
        writer = csv.DictWriter(handle, columns, restval="", extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows({key: _cell(row[key]) for key in columns if key in row} for row in rows)


def trials(run: Run, scrub: Scrubber) -> Iterator[dict[str, Any]]:
    """Every attempt as it stands in trials.csv, digit by digit; the reasons without names."""
    with (run.path / "trials.csv").open(encoding="utf-8", newline="") as handle:
        for row in csv.DictReader(handle):
            yield row | {"reasons": reasons(row["reasons"], scrub)}


def reasons(text: str, scrub: Scrubber) -> str:
    """`code: detail | code: detail`, scrubbed; of an accident only the code."""
    kept = []
    for reason in filter(None, text.split(" | ")):
        code, _, detail = reason.partition(": ")
        code = code if code in GATES else scrub.text(code)
        kept.append(code if code in ACCIDENTS or not detail else f"{code}: {scrub.text(detail)}")
    return " | ".join(kept)


def summaries(run: Run) -> Iterator[dict[str, Any]]:
    """One row per scenario and environment."""
    for row in numbers(run).to_dict("records"):
        yield {str(key): value for key, value in row.items()}


def verdicts(outcome: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """One row per scenario, guest and metric that applies to the kind of load."""
    for result in outcome["results"]:
        for metric, one in result["metrics"].items():
            if one["applies"]:
                yield result | one | _both_sides(one) | {"metric": metric, "notes": "; ".join(one["notes"])}


def _both_sides(one: dict[str, Any]) -> dict[str, Any]:
    """Availability and the estimator of 2009, which are nested, as columns."""
    row = {"trimmed_2009_ratio": (one["trimmed_2009"] or {}).get("ratio")}
    for side, found in (one["availability"] or {}).items():
        if found:
            row[f"{side}_availability"] = found["share"]
            row |= {f"{side}_availability_{end}": found[end] for end in ("low", "high")}
    return row


def percentiles(run: Run) -> Iterator[dict[str, Any]]:
    """One row per attempt and percentile, for every attempt that has a histogram."""
    for row, histogram in histograms(run):
        for percentile in PERCENTILES:
            latency_us = histogram.get_value_at_percentile(percentile)
            yield row | {"percentile": percentile, "latency_us": latency_us}


def histograms(run: Run) -> Iterator[tuple[dict[str, Any], Any]]:
    """(the trial's key and which latency it is, its HdrHistogram) of every attempt that has one."""
    for row in run.attempts.to_dict("records"):
        file = run.path / "histograms" / f"{trial_name(row['block'], row['order'], row['attempt'])}.hdr"
        if file.exists():
            kind = "service time" if str(row["offered_load"]).startswith("closed:") else "response time"
            yield {key: row[key] for key in TRIAL} | {"latency": kind}, read_histogram(file)


def _cell(value: Any) -> Any:
    """Missing values as empty cells."""
    if value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value)):
        return ""
    return value

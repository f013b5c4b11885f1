"""The Table Schemas (Data Package v2) of the tables that reports and bundles hold."""

import json
from dataclasses import replace
from functools import cache

from vmtoll.model.host_columns import HostRow
from vmtoll.model.table import Column, Described, Schema, columns_of, schema_of
from vmtoll.model.trial import TrialRecord
from vmtoll.model.verdict_columns import ClaimRow, EffectRow, VerdictRow
from vmtoll.paths import PROJECT
from vmtoll.recordings.rows import Row

FOLDER = PROJECT / "results" / "schema"

Fields = list[Column]
# Table that follows from the model → the class of its rows, what they are, its key.
MODEL_TABLES: dict[str, tuple[type, str, tuple[str, ...]]] = {
    "trials": (TrialRecord, "One row per attempt at a trial: what was sent, what came back, what it cost, what the"
     " gates found. Empty: not measured. Units are in the names.", ("run_id", "block", "order", "attempt")),
    "verdicts": (VerdictRow, "One row per scenario, environment and metric that applies to the kind of load, and per"
     " tuning step. It says whether the difference between the two sides is real, and how large it is. Ratios are"
     " compared ÷ baseline.", ()),
    "effects": (EffectRow, "One row per block of each row of verdicts, and of each A/A control: the effects that the"
     " block may have had. Ratios are compared ÷ baseline. With verdicts they give every interval.", ()),
    "claims": (ClaimRow, "One row per published claim of the experiment: confirmed, refuted or inconclusive here, and"
     " why. Ratios are of ÷ over; a claim about one side has levels in its unit instead.", ()),
    "hosts": (HostRow, "One row per machine of a run: what it reported of itself, or the inventory stated. Empty: not"
     " known.", ("run_id", "host")),
    "judge": (Row, "One row per value of a judge file, which `vmtoll judge` reads: what one run of a benchmark wrote."
     " trials.csv of `vmtoll count` is one.", ()),
}  # fmt: skip


@cache
def schema(table: str) -> Schema:
    """The schema of a table: `trials`, `summaries`, `verdicts`, `effects`, `claims`, `percentiles`, …"""
    if table in MODEL_TABLES:
        row, description, key = MODEL_TABLES[table]
        return schema_of(row, table, description, key)
    content: Schema = json.loads((FOLDER / f"{table}.json").read_text(encoding="utf-8"))
    if table == "summaries":
        listed = {column["name"] for column in content["fields"]}
        content["fields"] += [_median(figure) for figure in side_figures() if figure.name not in listed]
    return content


def side_figures() -> list[Described]:
    """The columns of trials whose medians the report and the summaries have, because their fields say so."""
    return [column for column in columns_of(TrialRecord) if column.heading]


def _median(figure: Described) -> Column:
    return replace(figure, kind="number", doc=f"median over the trials: {figure.doc}").schema


def fields(table: str) -> Fields:
    """The columns of a table, in order."""
    return schema(table)["fields"]


def names(table: str) -> list[str]:
    """The names of a table's columns, in order."""
    return [column["name"] for column in fields(table)]

"""The Table Schemas (Data Package v2) of the tables that reports and bundles hold."""

import json
from functools import cache

from vmtoll.model.columns import Column, Schema, table_schema
from vmtoll.model.host_columns import hosts_schema
from vmtoll.model.verdict_columns import claims_schema, effects_schema, verdicts_schema
from vmtoll.paths import PROJECT

FOLDER = PROJECT / "results" / "schema"

Fields = list[Column]
MODEL_SCHEMAS = {
    "trials": table_schema, "verdicts": verdicts_schema, "effects": effects_schema, "claims": claims_schema,
    "hosts": hosts_schema,
}  # fmt: skip


@cache
def schema(table: str) -> Schema:
    """The schema of a table: `trials`, `summaries`, `verdicts`, `effects`, `claims`, `percentiles`, …"""
    if table in MODEL_SCHEMAS:
        return MODEL_SCHEMAS[table]()
    content: Schema = json.loads((FOLDER / f"{table}.json").read_text(encoding="utf-8"))
    return content


def fields(table: str) -> Fields:
    """The columns of a table, in order."""
    return schema(table)["fields"]


def names(table: str) -> list[str]:
    """The names of a table's columns, in order."""
    return [column["name"] for column in fields(table)]

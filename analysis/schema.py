"""The tables' columns, from results/schema/: the one place that names them, their types, units and meanings."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "results" / "schema"

Fields = list[dict[str, Any]]


@cache
def schema(table: str) -> dict[str, Any]:
    """The Table Schema (Data Package v2) of a table: `trials`, `summaries`, `verdicts`, `percentiles`, …"""
    content: dict[str, Any] = json.loads((FOLDER / f"{table}.json").read_text(encoding="utf-8"))
    return content


def fields(table: str) -> Fields:
    """The columns of a table, in order."""
    found: Fields = schema(table)["fields"]
    return found


def names(table: str) -> list[str]:
    """The names of a table's columns, in order."""
    return [str(field["name"]) for field in fields(table)]

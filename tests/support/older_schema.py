"""Runs as an older vmtoll has written them."""

import json
from pathlib import Path
from typing import Any

from vmtoll.model.trial import TIME_COLUMNS


def as_schema_2(folder: Path) -> None:
    """Rewrite a run of the present schema as schema 2 had it: each figure a field of its measurement."""
    for name in ("trials.jsonl", "capacities.jsonl"):
        file = folder / name
        if file.exists():
            records = [json.loads(line) for line in file.read_text().splitlines()]
            file.write_text("".join(json.dumps(flattened(record)) + "\n" for record in records))
    manifest = folder / "run.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"schema": 2}))


def flattened(record: dict[str, Any]) -> dict[str, Any]:
    for measured in record["measurements"]:
        for column, (kind, statistic) in TIME_COLUMNS.items():
            value = measured.get(kind, {}).get(f"{statistic}_us")
            if value is not None:
                measured[column] = value
        for kind in {kind for kind, _ in TIME_COLUMNS.values()}:
            measured.pop(kind, None)
        measured.update(measured.pop("tool_figures", {}))
    return record

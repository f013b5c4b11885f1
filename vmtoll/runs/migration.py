"""Stored runs of an older schema, brought into the present one.

Schema 2 had the statistics of a measurement's times, and what only some tools print, as fields of the measurement.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vmtoll.files import locked, write_durably
from vmtoll.model.errors import ResultsError
from vmtoll.model.run import SCHEMA
from vmtoll.model.trial import TIME_COLUMNS, TOOL_FIGURES

Document = dict[str, Any]
LOCK = ".lock"  # in a run's folder


def _nested(record: Document) -> Document:
    """A record of schema 2 in schema 3; one that is in schema 3 stays as it is."""
    for measured in record.get("measurements", ()):
        for name in list(measured):
            if name in TIME_COLUMNS:
                kind, statistic = TIME_COLUMNS[name]
                measured.setdefault(kind, {})[f"{statistic}_us"] = measured.pop(name)
            elif name in TOOL_FIGURES:
                measured.setdefault("tool_figures", {})[name] = measured.pop(name)
    return record


# Schema → what brings a record of it into the next one.
STEPS: dict[int, Callable[[Document], Document]] = {2: _nested}


def is_older(schema: object) -> bool:
    """Return whether a run of this schema can be migrated."""
    return schema in STEPS


def migrated(record: Document, schema: int) -> Document:
    """A record of trials.jsonl, of an older schema, in the present one."""
    for step in range(schema, SCHEMA):
        record = STEPS[step](record)
    return record


def migrate(folder: Path, manifest: str, records: tuple[str, ...]) -> int:
    """Rewrite a run in the present schema and return the schema that it had. `manifest`, `records`: names of its files.

    A migration that was killed goes on when it is started again: run.json comes last, and records that are done stay as
    they are. A last line that a killed run left unfinished is left out. Raises ResultsError for a run that another
    process writes, or of a schema that is not known.
    """
    with locked(folder / LOCK, busy(folder)):
        content = json.loads((folder / manifest).read_bytes())
        schema = content.get("schema")
        if schema == SCHEMA:
            return SCHEMA
        if not is_older(schema):
            raise ResultsError(f"{folder / manifest}: schema {schema!r}; vmtoll migrates {', '.join(map(str, STEPS))}")
        for file in (folder / name for name in records if (folder / name).exists()):
            *lines, _unfinished = file.read_bytes().split(b"\n")
            write_durably(file, b"".join(_dumped(migrated(json.loads(line), schema)) + b"\n" for line in lines))
        write_durably(folder / manifest, json.dumps(content | {"schema": SCHEMA}, indent=1).encode() + b"\n")
        return int(schema)


def busy(folder: Path) -> ResultsError:
    """The error while another process holds the lock of a run's folder."""
    return ResultsError(f"{folder}: another process is running this run; wait for it")


def _dumped(record: Document) -> bytes:
    return json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode()

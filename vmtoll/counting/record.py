"""The record of a count: count.json, what was counted and how; rows.jsonl, a judge file of all windows; profile.csv."""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from vmtoll.counting.boots import METRICS as FIGURES
from vmtoll.counting.boots import MOST_APART, Counts, apart, exits, mean, profile_rows, rows
from vmtoll.counting.machine import Load
from vmtoll.files import cause_of, write_durably
from vmtoll.model.errors import UserError
from vmtoll.recordings.rows import Row, read_rows, row_line

LABEL = "counts of an emulated AMD host: no times"
ROWS, RECORD, PROFILE = "rows.jsonl", "count.json", "profile.csv"


def document(counts: Counts, load: Load, about: Mapping[str, Any]) -> dict[str, Any]:
    """What count.json holds: the label, the conditions `about` the machine, each side's figures per request."""
    sides = {
        side: {
            "boots": len(boots),
            "seeds": [each.seed for each in boots],
            "boots_apart": apart(boots),
            "per_request": {name: mean(boots, of, load) for name, of in FIGURES.items()}
            | {"client": mean(boots, lambda window: window.client, load)}
            | {"repeats": mean(boots, lambda window: window.repeats, load)},
            "exits": exits(boots, load),
        }
        for side, boots in counts.items()
    }
    return {"label": LABEL, **about, "load": asdict(load), "most_boots_apart": MOST_APART, "sides": sides}


def write(folder: Path, counts: Counts, load: Load, about: Mapping[str, Any]) -> dict[str, Any]:
    """Write the files; return what count.json holds."""
    content = document(counts, load, about)
    folder.mkdir(parents=True, exist_ok=True)
    lines = "".join(f"{row_line(row)}\n" for row in rows(counts, load))
    write_durably(folder / ROWS, lines.encode())
    if profiled := list(profile_rows(counts, load)):
        table = io.StringIO()
        csv.writer(table).writerows([("side", "level", "symbol", "per_request"), *profiled])
        write_durably(folder / PROFILE, table.getvalue().encode())
    write_durably(folder / RECORD, (json.dumps(content, indent=1) + "\n").encode())
    return content


def against(folder: Path, now: Sequence[Row]) -> list[Row]:
    """The rows of an earlier count and of this one, as the sides `before` and `now`: a side becomes a benchmark.

    Raises UserError where the folder has no count, or none of these sides.
    """
    try:
        label = json.loads((folder / RECORD).read_text())["label"]
    except (OSError, ValueError, KeyError) as error:
        cause = cause_of(error) if isinstance(error, OSError | ValueError) else "has no label"
        raise UserError(f"{folder / RECORD}: {cause}; give the folder that `vmtoll count` wrote") from error
    if label != LABEL:
        raise UserError(f"{folder / RECORD}: holds {label!r}; give the folder that `vmtoll count` wrote")
    before, sides = read_rows(folder / ROWS), {row.side for row in now}
    common = sides & {row.side for row in before}
    if not common:
        raise UserError(
            f"{folder}: counted {', '.join(sorted({row.side for row in before}))}; name one of them as a side"
        )
    return [
        replace(row, side=name, value=replace(row.value, benchmark=row.side))
        for name, of in (("before", before), ("now", now))
        for row in of
        if row.side in common
    ]

"""The record of a count: count.json, what was counted and how; trials.csv, a judge file of all windows; profile.csv;
before.csv, the trials.csv of the earlier count that it is compared with.
"""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from vmtoll.analysis.recorded import RecordedPage, judge_rows
from vmtoll.counting.boots import METRIC, MOST_APART, Counts, apart, exits, mean, profile_rows, rows
from vmtoll.counting.boots import METRICS as FIGURES
from vmtoll.counting.machine import Load
from vmtoll.files import cause_of, write_durably
from vmtoll.model.errors import UserError
from vmtoll.recordings.rows import Row, read_rows, to_csv

LABEL = "counts of an emulated AMD host: no times"
RECORD, TRIALS, BEFORE, PROFILE = "count.json", "trials.csv", "before.csv", "profile.csv"


@dataclass(frozen=True)
class Record:
    """A count in its folder. `before`: rows of the earlier count, if it is compared with one; `profile`: side, level,
    symbol and instructions per request, most first.
    """

    folder: Path
    document: Mapping[str, Any]
    rows: Sequence[Row]
    before: Sequence[Row]
    profile: Sequence[tuple[str, str, str, float]]

    @property
    def sides(self) -> list[str]:
        return list(self.document["sides"])

    def judged(self) -> RecordedPage | None:
        """Each side against the earlier count, else against the first side; None for one side alone."""
        if self.before:
            return judge_rows(compared(self.before, self.rows), baseline="before", gates=[f"*{METRIC}"])
        return judge_rows(self.rows, baseline=self.sides[0], gates=[METRIC]) if len(self.sides) > 1 else None


def is_count(folder: Path) -> bool:
    """Return whether a folder holds a count."""
    return (folder / RECORD).exists()


def read(folder: Path) -> Record:
    """The count in a folder. Raises UserError for another folder."""
    file = folder / RECORD
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
        label = document.get("label") if isinstance(document, dict) else document
    except (OSError, ValueError) as error:
        raise UserError(f"{file}: {cause_of(error)}; give the folder that `vmtoll count` wrote") from error
    if label != LABEL:
        raise UserError(f"{file}: holds {label!r}; give the folder that `vmtoll count` wrote")
    profile, before = folder / PROFILE, folder / BEFORE
    lines = [*csv.reader(profile.read_text(encoding="utf-8").splitlines())][1:] if profile.exists() else []
    return Record(
        folder, document, read_rows(folder / TRIALS), read_rows(before) if before.exists() else [],
        [(side, level, symbol, float(number)) for side, level, symbol, number in lines],
    )  # fmt: skip


def document(counts: Counts, load: Load, about: Mapping[str, Any]) -> dict[str, Any]:
    """What count.json holds: the label, the conditions `about` the machine, each side's figures per request."""
    sides = {
        side: {
            "boots": len(boots),
            "seeds": [each.seed for each in boots],
            "host": boots[-1].host,
            "boots_apart": apart(boots),
            "per_request": {name: mean(boots, of, load) for name, of in FIGURES.items()}
            | {"client": mean(boots, lambda window: window.client, load)}
            | {"repeats": mean(boots, lambda window: window.repeats, load)},
            "exits": exits(boots, load),
        }
        for side, boots in counts.items()
    }
    return {"label": LABEL, **about, "load": asdict(load), "most_boots_apart": MOST_APART, "sides": sides}


def write(folder: Path, counts: Counts, load: Load, about: Mapping[str, Any], before: Sequence[Row] = ()) -> Record:
    """Write the files; return the record."""
    folder.mkdir(parents=True, exist_ok=True)
    write_durably(folder / TRIALS, to_csv(rows(counts, load)))
    if before:
        write_durably(folder / BEFORE, to_csv(before))
    if profiled := list(profile_rows(counts, load)):
        table = io.StringIO()
        csv.writer(table).writerows([("side", "level", "symbol", "per_request"), *profiled])
        write_durably(folder / PROFILE, table.getvalue().encode())
    write_durably(folder / RECORD, (json.dumps(document(counts, load, about), indent=1) + "\n").encode())
    return read(folder)


def earlier(folder: Path, sides: Sequence[str]) -> list[Row]:
    """The rows of these sides in an earlier count. Raises UserError where the folder has no count, or none of them."""
    record = read(folder)
    if not (common := [row for row in record.rows if row.side in sides]):
        raise UserError(f"{folder}: counted {', '.join(record.sides)}; name one of them as a side")
    return common


def compared(before: Sequence[Row], now: Sequence[Row]) -> list[Row]:
    """The rows of an earlier count and of this one, as the sides `before` and `now`: a side becomes a benchmark."""
    sides = {row.side for row in before}
    return [
        replace(row, side=name, value=replace(row.value, benchmark=row.side))
        for name, of in (("before", before), ("now", now))
        for row in of
        if row.side in sides
    ]

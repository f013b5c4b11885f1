"""trials.csv: one flat row per trial record, exported from trials.jsonl."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence

from vmtoll.model.table import Cell, columns_of, rows
from vmtoll.model.trial import Scenario, TrialRecord, without_thin_percentiles

_TABLE = {each.name: each for each in columns_of(TrialRecord)}
COLUMNS = list(_TABLE)


def flat_scenario(scenario: Scenario) -> dict[str, Cell]:
    """The columns that identify a scenario."""
    return next(rows([scenario]))


def flat(record: TrialRecord) -> dict[str, Cell]:
    """The record as a row: column → value, in the order of COLUMNS.

    None where nothing was measured, and for percentiles of too few requests.
    """
    return next(rows([without_thin_percentiles(record)]))


def value_of(record: TrialRecord, column: str) -> float | None:
    """The figure of a record in a numeric column; None where it was not measured, or has too few requests."""
    value = _TABLE[column].cell(without_thin_percentiles(record))
    assert value is None or isinstance(value, int | float)
    return value


def to_csv(records: Iterable[TrialRecord]) -> bytes:
    """trials.csv of these records."""
    return csv_of(COLUMNS, map(flat, records))


def csv_of(columns: Sequence[str], rows_of: Iterable[Mapping[str, Cell]]) -> bytes:
    """A CSV file with these columns, of rows that have them in this order."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    for row in rows_of:
        writer.writerow([_cell(value) for value in row.values()])
    return text.getvalue().encode()


def _cell(value: Cell) -> Cell:
    if value is None:
        return ""
    return f"{value:.9g}" if isinstance(value, float) else value

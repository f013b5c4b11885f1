"""A small streaming OpenDocument spreadsheet writer (OpenDocument 1.2, zip of XML), and a run's trials.ods.

Cells are written row by row, so memory does not grow with the table. Numbers stay numbers, dates are text
(ISO 8601, as in trials.csv), missing values are empty cells.
"""

import csv
import json
import math
import numbers as abstract
import re
import shutil
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import pandas as pd

from vmtoll.analysis.run import Run
from vmtoll.analysis.schema import Fields, names
from vmtoll.files import replacing
from vmtoll.model.analysis import RunAnalysis
from vmtoll.model.columns import COLUMNS, flat
from vmtoll.model.table import Cell
from vmtoll.report import tables
from vmtoll.report.words import sentence

MIMETYPE = "application/vnd.oasis.opendocument.spreadsheet"
EPOCH = (1980, 1, 1, 0, 0, 0)  # the oldest date a zip can hold: the same run gives the same bytes
ROWS_PER_WRITE = 500
_NS = "urn:oasis:names:tc:opendocument:xmlns:"
_HEAD = (
    '<?xml version="1.0" encoding="UTF-8"?>\n'
    f'<office:document-content xmlns:office="{_NS}office:1.0" xmlns:table="{_NS}table:1.0"'
    f' xmlns:text="{_NS}text:1.0" office:version="1.2"><office:body><office:spreadsheet>'
)
_TAIL = "</office:spreadsheet></office:body></office:document-content>"
_MANIFEST = (
    '<?xml version="1.0" encoding="UTF-8"?>\n'
    f'<manifest:manifest xmlns:manifest="{_NS}manifest:1.0" manifest:version="1.2">'
    f'<manifest:file-entry manifest:full-path="/" manifest:version="1.2" manifest:media-type="{MIMETYPE}"/>'
    '<manifest:file-entry manifest:full-path="content.xml" manifest:media-type="text/xml"/>'
    "</manifest:manifest>"
)
_EMPTY = "<table:table-cell/>"
_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")  # XML 1.0 has no way to write these
_SPACES = re.compile(r"^ | {2,}|[\n\r\t]")

Row = Sequence[Any]
Sheet = tuple[str, Iterable[Row]]


def write_ods(run: Run, analysis: RunAnalysis) -> Path:
    """Write `trials.ods` (trials, summaries, verdicts, effects, claims, run) into the run's folder; return its path."""
    path = run.path / "trials.ods"
    manifest = run.manifest.model_dump(mode="json", by_alias=True, exclude_none=True)
    sheets: list[Sheet] = [
        ("trials", (COLUMNS, *(list(flat(record).values()) for record in run.records))),
        *((name, _table_rows(name, rows(run, analysis))) for name, rows in tables.RESULTS.items()),
        ("run", [("key", "value"), *_flatten(manifest | {"sentence": sentence(analysis)})]),
    ]  # fmt: skip
    with replacing(path) as draft:
        write_sheets(draft, sheets)
    return path


def write_sheets(path: Path, sheets: Iterable[Sheet]) -> None:
    """Write (name, rows) pairs as one spreadsheet; the mimetype comes first and uncompressed, as the format asks.

    The XML goes through a temporary file, so that its size is known. Below 2 GiB the ZIP then has no ZIP64 fields,
    which some readers do not support.
    """
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr(zipfile.ZipInfo("mimetype", EPOCH), MIMETYPE, zipfile.ZIP_STORED)
        archive.writestr(_deflated("META-INF/manifest.xml"), _MANIFEST)
        with TemporaryFile(dir=path.parent) as xml:
            xml.write(_HEAD.encode())
            for name, rows in sheets:
                for chunk in _sheet(name, rows):
                    xml.write(chunk.encode("utf-8", "replace"))
            xml.write(_TAIL.encode())
            content = _deflated("content.xml")
            content.file_size = xml.tell()
            xml.seek(0)
            with archive.open(content, "w") as handle:
                shutil.copyfileobj(xml, handle)


def csv_rows(path: Path, columns: Fields) -> Iterator[Row]:
    """Yield the heading and the rows of a CSV file, one at a time; the type of a field decides what is a number."""
    kinds = {str(field["name"]): _KINDS.get(field["type"], str) for field in columns}
    with path.open(encoding="utf-8", newline="") as handle:
        reader = csv.reader(handle)
        heading = next(reader)
        yield heading
        readers = [kinds.get(name, str) for name in heading]
        for row in reader:
            yield [read(text) if text else None for read, text in zip(readers, row, strict=True)]


_KINDS: dict[str, Callable[[str], Any]] = {"integer": lambda text: int(float(text)), "number": float}


def _deflated(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, EPOCH)
    info.compress_type = zipfile.ZIP_DEFLATED
    return info


def _sheet(name: str, rows: Iterable[Row]) -> Iterator[str]:
    """The XML of a table, in parts. OpenDocument's schema requires columns, a row, and a cell in each row."""
    remaining = iter(rows)
    heading = list(next(remaining, ())) or [None]
    yield f'<table:table table:name="{_attribute(name)}"><table:table-column'
    yield f' table:number-columns-repeated="{len(heading)}"/>{_row(heading)}'
    while chunk := list(islice(remaining, ROWS_PER_WRITE)):
        yield "".join([_row(row) for row in chunk])
    yield "</table:table>"


def _row(row: Row) -> str:
    cells = "".join([_CELLS.get(type(value), _other_cell)(value) for value in row]) or _EMPTY
    return f"<table:table-row>{cells}</table:table-row>"


def _integer_cell(value: int) -> str:
    return f'<table:table-cell office:value-type="float" office:value="{value}"/>'


def _number_cell(value: float) -> str:
    if not math.isfinite(value):
        return _EMPTY
    return f'<table:table-cell office:value-type="float" office:value="{value!r}"/>'


def _boolean_cell(value: bool) -> str:
    return f'<table:table-cell office:value-type="boolean" office:boolean-value="{"true" if value else "false"}"/>'


@lru_cache(maxsize=4096)
def _text_cell(value: str) -> str:
    return f'<table:table-cell office:value-type="string">{_paragraphs(value)}</table:table-cell>' if value else _EMPTY


def _other_cell(value: Any) -> str:
    """The cell of any other value: a number of numpy or pandas, their missing values, else the value as text."""
    if value is None or value is pd.NA:
        return _EMPTY
    if isinstance(value, abstract.Integral):
        return _integer_cell(int(value))
    return _number_cell(float(value)) if isinstance(value, abstract.Real) else _text_cell(str(value))


_CELLS: dict[type, Callable[[Any], str]] = {
    float: _number_cell,
    int: _integer_cell,
    bool: _boolean_cell,
    str: _text_cell,
}


def _paragraphs(text: str) -> str:
    """Text as paragraphs, one per line; runs of spaces, and tabs, become elements, because readers collapse them."""
    text = _FORBIDDEN.sub("\ufffd", text).translate(_ESCAPES)
    if not _SPACES.search(text):
        return f"<text:p>{text}</text:p>"
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return "".join(f"<text:p>{_SPACES.sub(_whitespace_element, line)}</text:p>" for line in lines)


def _whitespace_element(match: re.Match[str]) -> str:
    return "<text:tab/>" if match[0] == "\t" else f'<text:s text:c="{len(match[0])}"/>'


def _attribute(text: str) -> str:
    return text.translate(_ESCAPES).replace('"', "&quot;")


def _table_rows(table: str, rows: Iterable[Mapping[str, Cell]]) -> Iterator[Row]:
    """The columns of the table's schema, then the rows; a cell that a row lacks is empty."""
    columns = names(table)
    yield columns
    yield from ([row.get(column) for column in columns] for row in rows)


def _flatten(value: Mapping[str, Any], prefix: str = "") -> Iterator[Row]:
    """Nested keys joined by dots; lists as JSON text."""
    for key, item in value.items():
        name = f"{prefix}.{key}" if prefix else str(key)
        if isinstance(item, dict) and item:
            yield from _flatten(item, name)
        else:
            yield name, json.dumps(item, ensure_ascii=False) if isinstance(item, list | dict) else item

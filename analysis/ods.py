"""trials.ods: a small streaming OpenDocument spreadsheet writer (OpenDocument 1.2, zip of XML).

Cells are written row by row, so memory does not grow with the run. Numbers stay numbers, dates are text
(ISO 8601, as in trials.csv), missing values are empty cells.
"""

from __future__ import annotations

import json
import math
import numbers as abstract
import re
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.load import load_run
from analysis.tables import numbers
from analysis.verdict import verdict_of

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
_NUMBER = '<table:table-cell office:value-type="float" office:value="'
_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")  # XML 1.0 has no way to write these
_SPACES = re.compile(r"^ | {2,}|[\n\r\t]")

Row = Sequence[Any]
Sheet = tuple[str, Iterable[Row]]


def write_ods(run_dir: Path | str) -> Path:
    """Write `trials.ods` (sheets trials, summary, verdicts, run) into the run directory; returns its path.

    Raises LoadError when the run breaks the contract.
    """
    run = load_run(run_dir)
    outcome = verdict_of(run)
    path = run.path / "trials.ods"
    draft = path.with_suffix(".ods.part")
    attempts = run.attempts.drop(columns="codes")
    meta = {key: value for key, value in run.meta.items() if key != "verdict"}
    meta["sentence"] = outcome["sentence"]
    write_sheets(
        draft,
        [
            ("trials", _frame_rows(attempts)),
            ("summary", _frame_rows(numbers(run))),
            ("verdicts", _verdict_rows(outcome)),
            ("run", [("key", "value"), *_flatten(meta)]),
        ],
    )
    return draft.replace(path)


def write_sheets(path: Path, sheets: Iterable[Sheet]) -> None:
    """Write (name, rows) pairs as one spreadsheet; the mimetype comes first and uncompressed, as the format asks."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=3) as archive:
        archive.writestr(zipfile.ZipInfo("mimetype", EPOCH), MIMETYPE, zipfile.ZIP_STORED)
        archive.writestr(_deflated("META-INF/manifest.xml"), _MANIFEST)
        with archive.open(_deflated("content.xml"), "w", force_zip64=True) as content:
            content.write(_HEAD.encode())
            for name, rows in sheets:
                for chunk in _sheet(name, rows):
                    content.write(chunk.encode("utf-8", "replace"))
            content.write(_TAIL.encode())


def _deflated(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, EPOCH)
    info.compress_type = zipfile.ZIP_DEFLATED
    return info


def _sheet(name: str, rows: Iterable[Row]) -> Iterator[str]:
    yield f'<table:table table:name="{_attribute(name)}">'
    chunk: list[str] = []
    for row in rows:
        chunk.append(f"<table:table-row>{''.join([_cell(value) for value in row])}</table:table-row>")
        if len(chunk) >= ROWS_PER_WRITE:
            yield "".join(chunk)
            chunk = []
    yield "".join(chunk) + "</table:table>"


def _cell(value: Any) -> str:
    if type(value) is float and math.isfinite(value):  # most cells: the short way
        number = repr(value)
        return f'{_NUMBER}{number}"><text:p>{number}</text:p></table:table-cell>'
    if value is None or value is pd.NA or value == "":
        return "<table:table-cell/>"
    if isinstance(value, bool):
        word = "true" if value else "false"
        return (
            f'<table:table-cell office:value-type="boolean" office:boolean-value="{word}">'
            f"<text:p>{word.upper()}</text:p></table:table-cell>"
        )
    if isinstance(value, abstract.Real):
        if not math.isfinite(value):
            return "<table:table-cell/>"
        number = repr(int(value)) if isinstance(value, abstract.Integral) else repr(float(value))
        return f'{_NUMBER}{number}"><text:p>{number}</text:p></table:table-cell>'
    return f'<table:table-cell office:value-type="string">{_paragraphs(str(value))}</table:table-cell>'


def _paragraphs(text: str) -> str:
    """Text as paragraphs, one per line; runs of spaces and tabs would collapse if written plainly."""
    text = _FORBIDDEN.sub("\ufffd", text).translate(_ESCAPES)
    if not _SPACES.search(text):
        return f"<text:p>{text}</text:p>"
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return "".join(f"<text:p>{_SPACES.sub(_white, line)}</text:p>" for line in lines)


def _white(match: re.Match[str]) -> str:
    return "<text:tab/>" if match[0] == "\t" else f'<text:s text:c="{len(match[0])}"/>'


def _attribute(text: str) -> str:
    return text.translate(_ESCAPES).replace('"', "&quot;")


def _frame_rows(frame: pd.DataFrame) -> Iterator[Row]:
    """The header, then the rows; whole numbers stay whole."""
    yield [str(column) for column in frame.columns]
    yield from zip(*(frame[column].astype(object) for column in frame.columns), strict=True)


def _verdict_rows(outcome: dict[str, Any]) -> Iterator[Row]:
    columns = [
        "source", "kind", "bound", "text", "blocks", "more_blocks", "effect_is", "effect", "effect_low",
        "effect_high", "ratio", "ratio_low", "ratio_high", "hodges_lehmann_ratio",
        "hodges_lehmann_ratio_low", "hodges_lehmann_ratio_high", "noise_floor", "suspect", "excluded",
    ]  # fmt: skip
    keys = ["server", "workload", "tool", "offered_load", "environment", "accelerator"]
    yield [*keys, "metric", *columns, "notes"]
    for result in outcome["results"]:
        for name, one in result["metrics"].items():
            figures = [one.get(column) for column in columns]
            yield [*(result[key] for key in keys), name, *figures, "; ".join(one["notes"])]


def _flatten(value: dict[str, Any], prefix: str = "") -> Iterator[Row]:
    """Nested keys joined by dots; lists as JSON text."""
    for key, item in value.items():
        name = f"{prefix}.{key}" if prefix else str(key)
        if isinstance(item, dict) and item:
            yield from _flatten(item, name)
        else:
            yield name, json.dumps(item, ensure_ascii=False) if isinstance(item, list | dict) else item

"""trials.ods reads back equal, keeps its types, and is put together as the format asks."""

import csv
import zipfile
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pandas as pd
import pytest
import python_calamine

from benchmarks import ods as bench
from tests.support.synthetic_run import Row, Truth, failed_trial, make_run
from vmtoll.analysis.run import load_run
from vmtoll.analysis.verdict import analyse
from vmtoll.model.finding import Code
from vmtoll.model.verdict import Kind
from vmtoll.report.ods import MIMETYPE, write_ods, write_sheets

pytestmark = pytest.mark.slow


def _write(run_dir: Path) -> Path:
    run = load_run(run_dir)
    return write_ods(run, analyse(run))


def _sheet(path: Path, name: str) -> list[list[Any]]:
    workbook = python_calamine.CalamineWorkbook.from_path(str(path))
    rows: list[list[Any]] = workbook.get_sheet_by_name(name).to_python()
    return rows


def test_trials_read_back_equal(tmp_path: Path) -> None:
    def change(row: Row) -> list[Row]:
        return [failed_trial(row, Code.TOOL_FAILED, "killed")] if row["order"] == 2 else [row]

    run_dir = make_run(tmp_path, Truth({"nginx": 0.9, "lighttz": 0.8}, change=change))
    path = _write(run_dir)
    header, *rows = _sheet(path, "trials")
    written = pd.read_csv(run_dir / "trials.csv", keep_default_na=False, dtype=str)
    assert header == list(written.columns)
    assert len(rows) == len(written)
    for row, expected in zip(rows, written.itertuples(index=False), strict=True):
        for cell, text in zip(row, expected, strict=True):
            assert (float(text) == pytest.approx(cell, rel=1e-8)) if isinstance(cell, float) else (text == cell)
    started = header.index("started_at")
    assert all(isinstance(row[started], str) for row in rows)


def test_summaries_verdicts_and_run(tmp_path: Path) -> None:
    path = _write(make_run(tmp_path, Truth({"nginx": 0.9})))
    summary = _sheet(path, "summaries")
    assert [row[summary[0].index("environment")] for row in summary[1:]] == ["metal", "metal", "kvm-default"]
    assert [row[summary[0].index("replicate")] for row in summary[1:]] == [1, 2, 1]
    verdicts = _sheet(path, "verdicts")
    assert verdicts[1][verdicts[0].index("kind")] == Kind.SLOWER
    run = {row[0]: row[1] for row in _sheet(path, "run")[1:]}
    assert run["schema"] == 3
    assert run["accelerators.kvm-default"] == "kvm"
    assert str(run["sentence"]).endswith(".")


def test_package(tmp_path: Path) -> None:
    path = _write(make_run(tmp_path, Truth(blocks=1)))
    with zipfile.ZipFile(path) as archive:
        first = archive.infolist()[0]
        assert (first.filename, first.compress_type, first.extra) == ("mimetype", zipfile.ZIP_STORED, b"")
        assert archive.read("mimetype").decode() == MIMETYPE
        for name in ("content.xml", "META-INF/manifest.xml"):
            ElementTree.fromstring(archive.read(name))
        # No field of ZIP64 (version 4.5), which some readers do not know.
        assert {(info.extract_version, info.extra) for info in archive.infolist()} == {(20, b"")}
    before = path.read_bytes()
    assert _write(path.parent).read_bytes() == before


TABLE = "{urn:oasis:names:tc:opendocument:xmlns:table:1.0}"


@pytest.mark.parametrize("awkward", [False, True])
def test_every_table_is_what_the_schema_asks_for(tmp_path: Path, awkward: bool) -> None:
    """OpenDocument 1.2, 9.1.2 to 9.1.4: columns first, then rows of one cell or more."""
    path = tmp_path / "awkward.ods"
    if awkward:
        write_sheets(path, [("empty", []), ("no cells", [[]]), ("rows without cells", [["a", "b"], [], ["c"]])])
    else:
        path = _write(make_run(tmp_path, Truth({"nginx": 0.9})))
    with zipfile.ZipFile(path) as archive:
        tables = ElementTree.fromstring(archive.read("content.xml")).findall(f".//{TABLE}table")
    assert len(tables) == (3 if awkward else 6)
    for table in tables:
        columns, *rows = table
        assert columns.tag == f"{TABLE}table-column"
        assert columns.get(f"{TABLE}number-columns-repeated") == str(len(rows[0]))
        assert {row.tag for row in rows} == {f"{TABLE}table-row"}
        assert min(len(row) for row in rows) >= 1
        assert {cell.tag for row in rows for cell in row} == {f"{TABLE}table-cell"}


def test_awkward_cells(tmp_path: Path) -> None:
    rows = [["a<b>&\"c'", "two\nlines", "  wide  gap", "bell\x07", None, 1, 0.1, float("nan"), True, -1e300]]
    path = tmp_path / "awkward.ods"
    write_sheets(path, [('quo"ted & <odd>', rows)])
    (read,) = _sheet(path, 'quo"ted & <odd>')
    assert read == ["a<b>&\"c'", "two\nlines", "  wide  gap", "bell\ufffd", "", 1.0, 0.1, "", True, -1e300]


def test_memory_does_not_grow_with_the_table(tmp_path: Path) -> None:
    peaks_mb = []
    for rows in (500, 10_000):
        folder = tmp_path / str(rows)
        folder.mkdir()
        _, peak_mb = bench.run(rows, folder)
        peaks_mb.append(peak_mb)
    assert peaks_mb[1] < 1.2 * peaks_mb[0], "buffers fill up to 5,000 rows"
    heading, *read = _sheet(tmp_path / "500" / "trials.ods", "trials")
    with (tmp_path / "500" / "trials.csv").open(encoding="utf-8", newline="") as handle:
        written = list(csv.DictReader(handle))
    assert len(read) == len(written) == 500
    for row, texts in zip(read, written, strict=True):
        for name, cell in zip(heading, row, strict=True):
            text = texts[str(name)]
            assert cell == (float(text) if isinstance(cell, float) else text)

"""Time and memory that a spreadsheet takes: `python -m benchmarks.ods [ROWS]`.

Makes a trials.csv of ROWS made-up rows (default: 100,000) with every column filled, the same each time;
then writes it as a spreadsheet in a fresh process.
"""

import csv
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks import fresh_process, timed
from vmtoll.analysis.schema import fields, names
from vmtoll.report.ods import csv_rows, write_sheets

ROWS = 100_000


def make(file: Path, rows: int) -> None:
    """Write the table as CSV, numbers with nine digits as the runner does."""
    with file.open("w", encoding="utf-8", newline="") as handle:
        writer = csv.writer(handle, lineterminator="\n")
        writer.writerow(names("trials"))
        writer.writerows(_rows(rows))


def _rows(rows: int) -> Iterator[list[str]]:
    draw = random.Random(1)
    kinds = [str(field["type"]) for field in fields("trials")]
    for row in range(1, rows + 1):
        numbers = {"integer": str(row), "string": f"text {row % 50}", "datetime": "2026-01-01T00:00:00.000+00:00"}
        yield [numbers.get(kind) or f"{draw.lognormvariate(5, 1):.9g}" for kind in kinds]


def measure(file: Path) -> tuple[float, float]:
    """Seconds, and this process's peak memory in MB (10⁶ bytes)."""
    seconds, _, peak_mb, _ = timed(
        write_sheets, file.with_suffix(".ods"), [("trials", csv_rows(file, fields("trials")))]
    )
    return seconds, peak_mb


def run(rows: int, folder: Path) -> tuple[float, float]:
    """Make the table and measure in a fresh process."""
    file = folder / "trials.csv"
    make(file, rows)
    with fresh_process() as (_, call):
        seconds, peak_mb = call(measure, file)
        return seconds, peak_mb


if __name__ == "__main__":
    row_count = int(sys.argv[1]) if len(sys.argv) > 1 else ROWS
    with TemporaryDirectory() as folder:
        seconds, peak = run(row_count, Path(folder))
        size_mb = (Path(folder) / "trials.ods").stat().st_size / 1e6
    print(
        f"{row_count:,} rows of {len(names('trials'))} columns: {seconds:.1f} s, peak {peak:.0f} MB, {size_mb:.0f} MB"
    )

"""Judge files: values of two or more sides, block by block, as CSV or JSON lines."""

import csv
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from vmtoll.files import cause_of
from vmtoll.model.columns import csv_of
from vmtoll.model.errors import UserError
from vmtoll.model.table import column, columns_of, nested
from vmtoll.model.table import rows as table_rows

REQUIRED = ("block", "side", "metric", "value")
OPTIONAL = ("better", "benchmark", "unit", "replicate", "boot", "host", "failed", "requests")
_COUNTS = {"block": 0, "replicate": 1, "boot": 1, "failed": 0, "requests": 0}  # key → the least that it may be


class Better(StrEnum):
    """Which values of a metric are better."""

    HIGHER = "higher"
    LOWER = "lower"


@dataclass(frozen=True)
class Value:
    """A number that one run of a benchmark wrote."""

    metric: str = column("what the value measures")
    # Zero, negative and NaN are not judged.
    value: float = column("the value, of one run or of one of its repetitions", unit="that of the row", least=None)
    # None: neither the file nor the tool's format says it.
    better: Better | None = column("which values of the metric are better; empty: not known", default=None)
    benchmark: str = column("the benchmark that has the metric; empty: the only one", default="", required=False)
    unit: str = column("unit of the value", default="", required=False)
    replicate: int = column("repetition within the run, from 1", default=1, least=1)
    failed: int = column("requests or operations that failed; they count against their side", default=0)
    requests: int | None = column("requests of the run, the failed ones included", default=None)

    @property
    def name(self) -> str:
        """`parse time`: the benchmark and its metric."""
        return name_of(self.benchmark, self.metric)


def name_of(benchmark: str, metric: str) -> str:
    """`parse time`; the metric alone where the benchmark has no name."""
    return f"{benchmark} {metric}" if benchmark else metric


@dataclass(frozen=True)
class Row:
    """A value with its place in the comparison."""

    block: int = column("turn, in the order of time: its sides were measured next to each other")
    side: str = column("one of the sides that are compared")
    value: Value = nested()
    boot: int = column("boot of the machines, from 1", default=1, least=1)
    host: str = column("machine or test bed, of several", default="", required=False)


def is_judge_file(file: Path) -> bool:
    """Return whether a file begins as a judge file: with the heading of its columns, or a row as JSON.

    Raises UserError for a file that cannot be read.
    """
    if file.is_dir():  # a tool's
        return False
    first = next((line for line in _text(file).splitlines() if line.strip()), "")
    if not first.lstrip().startswith("{"):
        return {"block", "side"} <= {key.strip().strip('"') for key in first.split(",")}
    try:
        return {"block", "side"} <= set(json.loads(first))
    except (ValueError, TypeError):
        return False


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{file}: {cause_of(error)}") from error


def read_rows(file: Path) -> list[Row]:
    """The rows of a judge file: JSON lines if it begins with `{`, else CSV with a heading.

    Raises UserError with the line of the first one that is wrong.
    """
    text = _text(file)
    rows, places = list[Row](), dict[tuple[Any, ...], int]()
    for line, keys in _json_lines(text, file) if text.lstrip().startswith("{") else _csv_lines(text, file):
        try:
            row = _row(keys)
        except ValueError as error:
            raise UserError(f"{file}: line {line}: {error}") from None
        value = row.value
        place = (row.block, row.side, value.metric, value.benchmark, value.replicate, row.boot, row.host)
        if place in places:
            raise UserError(
                f"{file}: line {line}: {row.side} has a {value.metric} in block {row.block} already, in line "
                f"{places[place]}; number repetitions by `replicate`"
            )
        places[place] = line
        rows.append(row)
    if not rows:
        raise UserError(f"{file}: has no rows")
    return rows


FILE_AS = ("benchmark", "host")


def read_files(files: Sequence[Path], file_as: str = "") -> list[Row]:
    """The rows of judge files. `file_as`: of a matrix with a file for each job, what the name of a file is to its rows:
    `benchmark` (before the benchmark that they have), or `host`.

    Raises UserError for rows of two files with one place in the page, and for hosts in rows that get one.
    """
    rows, files_of = list[Row](), dict[tuple[Any, ...], Path]()
    for file, name in zip(files, _names(files), strict=True):
        for row in read_rows(file):
            if file_as == "benchmark":
                value = replace(row.value, benchmark=f"{name} {row.value.benchmark}".rstrip())
                row = replace(row, value=value)  # noqa: PLW2901
            elif file_as:
                if row.host:
                    raise UserError(f"{file}: its rows have a host, {row.host}; leave out --file-as host")
                row = replace(row, host=name)  # noqa: PLW2901
            place = (row.block, row.side, row.value.name, row.boot, row.host)
            if files_of.setdefault(place, file) != file:
                raise UserError(
                    f"{file}: {row.side} has a {row.value.name} in block {row.block}, and so it has in "
                    f"{files_of[place]}; of jobs of a matrix give --file-as benchmark, or host"
                )
            rows.append(row)
    return rows


def _names(files: Sequence[Path]) -> list[str]:
    """The part of each path that differs: `gcc` and `clang` of out/gcc/rows.jsonl and out/clang/rows.jsonl."""
    if len(set(files)) < len(files):
        raise UserError(f"{next(file for file in files if files.count(file) > 1)}: is given twice")
    parts = [[*file.parent.parts, file.stem] for file in files]
    for end in (-1, 0):
        while all(len(path) > 1 for path in parts) and len({path[end] for path in parts}) == 1:
            for path in parts:
                path.pop(end)
    return ["/".join(path) for path in parts]


def renamed(rows: Sequence[Row], pairs: Sequence[str]) -> list[Row]:
    """The rows, with benchmarks under their new names. `pairs`: OLD=NEW. Raises UserError for one that no row has."""
    names = dict[str, str]()
    for pair in pairs:
        old, sign, new = pair.partition("=")
        known = dict.fromkeys(row.value.benchmark for row in rows)
        if not (sign and old in known and new in known):
            raise UserError(f"--renamed {pair}: give OLD=NEW, two of the benchmarks {', '.join(filter(None, known))}")
        names[old] = new
    return [
        replace(row, value=replace(row.value, benchmark=names.get(row.value.benchmark, row.value.benchmark)))
        for row in rows
    ]  # fmt: skip


def _json_lines(text: str, file: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            keys = json.loads(line)
        except ValueError as error:
            raise UserError(f"{file}: line {number}: is not JSON: {error}") from None
        if not isinstance(keys, dict):
            raise UserError(f'{file}: line {number}: is not an object such as {{"block": 1, …}}')
        yield number, keys


def _csv_lines(text: str, file: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    reader = csv.DictReader(text.splitlines(), strict=True, skipinitialspace=True)
    try:
        for keys in reader:
            if None in keys or None in keys.values():
                raise UserError(f"{file}: line {reader.line_num}: has not as many fields as the heading")
            yield reader.line_num, {key.strip(): field for key, field in keys.items() if field != ""}
    except csv.Error as error:
        raise UserError(f"{file}: line {reader.line_num}: {error}") from None


def _row(keys: Mapping[str, Any]) -> Row:
    """Raises ValueError."""
    if lacking := [key for key in REQUIRED if key not in keys]:
        raise ValueError(f"has no {lacking[0]}; a row needs {', '.join(REQUIRED)}")
    if unknown := [key for key in keys if key not in (*REQUIRED, *OPTIONAL)]:
        raise ValueError(f"unknown key {unknown[0]!r}; known: {', '.join((*REQUIRED, *OPTIONAL))}")
    counts = {key: _count(key, keys[key]) for key in _COUNTS if keys.get(key) is not None}
    texts = {key: str(keys[key]).strip() for key in ("side", "metric", "benchmark", "unit", "host") if key in keys}
    for key in ("side", "metric"):
        if not texts[key]:
            raise ValueError(f"{key}: is empty")
    better = str(keys.get("better") or "")
    if better not in ("", *Better):
        raise ValueError(f"better: {better!r}; give higher or lower")
    value = Value(
        texts["metric"], _number(keys["value"]), Better(better) if better else None, texts.get("benchmark", ""),
        texts.get("unit", ""), counts.get("replicate", 1), counts.get("failed", 0), counts.get("requests"),
    )  # fmt: skip
    if value.requests is not None and value.failed > value.requests:
        raise ValueError(f"failed: {value.failed} of {value.requests} requests")
    return Row(counts["block"], texts["side"], value, counts.get("boot", 1), texts.get("host", ""))


def _count(key: str, given: Any) -> int:
    try:
        number = float(given)
    except (TypeError, ValueError):
        number = math.nan
    if isinstance(given, bool) or not number.is_integer() or number < _COUNTS[key]:
        order = ", in the order of time" if key == "block" else ""
        raise ValueError(f"{key}: {given!r} is not a whole number of {_COUNTS[key]} or more{order}")
    return int(number)


def _number(given: Any) -> float:
    try:
        return math.nan if isinstance(given, bool) else float(given)
    except (TypeError, ValueError):
        raise ValueError(f"value: {given!r} is not a number") from None


def to_csv(rows: Sequence[Row]) -> bytes:
    """A judge file of these rows, as CSV."""
    return csv_of([each.name for each in columns_of(Row)], table_rows(rows))


def row_line(row: Row) -> str:
    """A row as a line of JSON, without keys that have their default."""
    keys = vars(row.value) | {"block": row.block, "side": row.side, "boot": row.boot, "host": row.host}
    empty = {"better": None, "benchmark": "", "unit": "", "replicate": 1, "boot": 1, "host": "", "failed": 0}
    wanted = [*REQUIRED, *OPTIONAL]
    return json.dumps({key: keys[key] for key in wanted if keys[key] != empty.get(key)})
